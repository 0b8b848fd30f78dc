//! A service that fails, hangs, cuts or changes what it sends: retried if it passes, told if not, never served.

use std::time::Duration;

use towline_buffers::{BufferError, Buffers, NewBuffer, Position, Secret, Stored};

use crate::proxy::{Proxy, Spoil};
use crate::rig::{LONG, NOW, Place, WRITER, assert_refused};
use crate::script::{Script, read_all, written};

const ALWAYS: usize = usize::MAX;

async fn spoiled() -> (Place, Proxy, Buffers) {
    let place = Place::s3().await;
    let proxy = Proxy::before(place.endpoint().unwrap()).await;
    let buffers = place.open_with(|options| {
        options.s3.endpoint = Some(proxy.endpoint.clone());
        options.s3.retries_max = 2;
        options.s3.request_timeout = Duration::from_millis(500);
    });
    (place, proxy, buffers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_passes_is_not_noticed() {
    let (_place, proxy, buffers) = spoiled().await;
    for (n, (method, path_end)) in
        [("GET", "/end"), ("PUT", "/writer"), ("PUT", "/00000000"), ("PUT", "/end"), ("GET", "/00000000")]
            .into_iter()
            .enumerate()
    {
        proxy.spoil(Spoil::Refuse, method, path_end, 1);
        let id = format!("b{n}");
        written(&buffers, &id, &[b"one"]).await;
        assert_eq!(read_all(&buffers, &id).await.unwrap(), b"one");
        assert_eq!(proxy.left(), 0, "{method} {path_end} was never asked");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_lost_does_not_refuse_the_retry() {
    let (_place, proxy, buffers) = spoiled().await;
    proxy.spoil(Spoil::LoseAnswer, "PUT", "/meta/b", 1);
    buffers.create("b", NewBuffer::default(), NOW).await.unwrap();
    proxy.spoil(Spoil::LoseAnswer, "PUT", "/writer", 1);
    assert_eq!(buffers.begin("b", WRITER, NOW).await.unwrap(), Position::START);
    let mut script = Script::new("b");
    proxy.spoil(Spoil::LoseAnswer, "PUT", "/00000000", 1);
    assert_eq!(script.put(&buffers, b"one").await.unwrap(), Stored::Repeat);
    proxy.spoil(Spoil::LoseAnswer, "PUT", "/end", 1);
    script.finish(&buffers).await.unwrap();
    proxy.spoil(Spoil::LoseAnswer, "PUT", "/fields/k", 1);
    buffers.put_blob("k", "content".into()).await.unwrap();
    assert_eq!(proxy.left(), 0);
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_lasts_is_told_and_passes() {
    let (_place, proxy, buffers) = spoiled().await;
    buffers.create("b", NewBuffer::default(), NOW).await.unwrap();
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut script = Script::new("b");
    let chunk = script.next(b"one");
    for spoil in [Spoil::Refuse, Spoil::Hang] {
        proxy.spoil(spoil, "PUT", "/00000000", ALWAYS);
        let refused = buffers.put_chunk("b", WRITER, chunk.clone(), NOW).await.unwrap_err();
        assert!(matches!(refused, BufferError::Unavailable { doing: "writing buffer", .. }), "{refused}");
        assert!(refused.is_fault() && refused.to_string().contains("\"b\""), "{refused}");
    }
    assert_refused!(script.finish(&buffers).await, BufferError::ChunkMissing { n: 0, .. });
    proxy.pass();
    buffers.put_chunk("b", WRITER, chunk, NOW).await.unwrap();
    script.finish(&buffers).await.unwrap();

    for spoil in [Spoil::Refuse, Spoil::Hang] {
        proxy.spoil(spoil, "GET", "/00000000", ALWAYS);
        assert_refused!(read_all(&buffers, "b").await, BufferError::Unavailable { .. });
    }
    proxy.pass();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_cut_is_never_a_short_chunk() {
    let (_place, proxy, buffers) = spoiled().await;
    let data = vec![7; 100_000];
    written(&buffers, "b", &[&data]).await;
    proxy.spoil(Spoil::Cut, "GET", "/00000000", ALWAYS);
    let refused = read_all(&buffers, "b").await.unwrap_err();
    assert!(refused.is_fault(), "{refused}");
    proxy.spoil(Spoil::Cut, "GET", "/00000000", 1);
    assert_eq!(read_all(&buffers, "b").await.unwrap(), data);
    assert_eq!(proxy.left(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_byte_is_damage() {
    let (_place, proxy, buffers) = spoiled().await;
    written(&buffers, "b", &[b"one"]).await;
    buffers.put_blob("k", "content".into()).await.unwrap();
    proxy.spoil(Spoil::Flip, "GET", "/00000000", ALWAYS);
    assert_refused!(buffers.chunk("b", 0, LONG, NOW).await, BufferError::Damaged { .. });
    assert_refused!(read_all(&buffers, "b").await, BufferError::Damaged { .. });
    proxy.spoil(Spoil::Flip, "GET", "/k", ALWAYS);
    assert_refused!(buffers.get_blob("k", 10).await, BufferError::Damaged { .. });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_writes_twice_does_not_pass_the_check() {
    let (_place, proxy, buffers) = spoiled().await;
    buffers.check([1; 16]).await.unwrap();
    proxy.spoil(Spoil::Deny412, "PUT", "/end", ALWAYS);
    assert_refused!(buffers.check([2; 16]).await, BufferError::Misconfigured { .. });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_keys_and_missing_buckets_are_told() {
    let place = Place::s3().await;
    let stranger = place.open_with(|options| options.s3.secret_access_key = Some(Secret::new("wrong")));
    let refused = stranger.create("b", NewBuffer::default(), NOW).await.unwrap_err();
    assert!(matches!(refused, BufferError::Misconfigured { .. }), "{refused}");
    assert!(!refused.to_string().contains("wrong"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_not_there_is_told() {
    let place = Place::s3().await;
    let lost = place.open_with(|options| {
        options.s3.endpoint = Some("http://127.0.0.1:1".to_owned());
        options.s3.retries_max = 1;
    });
    assert_refused!(lost.check([1; 16]).await, BufferError::Unavailable { doing: "checking with", .. });
}
