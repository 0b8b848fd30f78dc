//! Faults of the S3 service: failures, hangs, truncated and changed responses. Transient ones are retried, lasting ones
//! reported, and wrong data is never served.

use std::time::Duration;

use towline_buffers::{BufferError, Buffers, NewBuffer, Position, PutOutcome, Secret};

use crate::faulty_proxy::{Fault, Proxy};
use crate::storage::{LONG_WAIT, NOW, TestStorage, WRITER, assert_refused};
use crate::writer::{TestWriter, read_all, written};

const ALWAYS: usize = usize::MAX;

async fn faulty() -> (TestStorage, Proxy, Buffers) {
    let storage = TestStorage::s3().await;
    let proxy = Proxy::before(storage.endpoint().unwrap()).await;
    let buffers = storage.open_with(|options| {
        options.s3.endpoint = Some(proxy.endpoint.clone());
        options.s3.retries_max = 2;
        options.s3.request_timeout = Duration::from_millis(500);
    });
    (storage, proxy, buffers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transient_failure_is_retried() {
    let (_place, proxy, buffers) = faulty().await;
    for (n, (method, path_end)) in
        [("GET", "/end"), ("PUT", "/writer"), ("PUT", "/00000000"), ("PUT", "/end"), ("GET", "/00000000")]
            .into_iter()
            .enumerate()
    {
        proxy.inject(Fault::Refuse, method, path_end, 1);
        let id = format!("b{n}");
        written(&buffers, &id, &[b"one"]).await;
        assert_eq!(read_all(&buffers, &id).await.unwrap(), b"one");
        assert_eq!(proxy.left(), 0, "{method} {path_end} was never asked");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_after_a_lost_answer_succeeds() {
    let (_place, proxy, buffers) = faulty().await;
    proxy.inject(Fault::LoseAnswer, "PUT", "/meta/b", 1);
    buffers.create("b", NewBuffer::default(), NOW).await.unwrap();
    proxy.inject(Fault::LoseAnswer, "PUT", "/writer", 1);
    assert_eq!(buffers.begin("b", WRITER, NOW).await.unwrap(), Position::START);
    let mut writer = TestWriter::new("b");
    proxy.inject(Fault::LoseAnswer, "PUT", "/00000000", 1);
    assert_eq!(writer.put(&buffers, b"one").await.unwrap(), PutOutcome::Repeat);
    proxy.inject(Fault::LoseAnswer, "PUT", "/end", 1);
    writer.finish(&buffers).await.unwrap();
    proxy.inject(Fault::LoseAnswer, "PUT", "/fields/k", 1);
    buffers.put_blob("k", "content".into()).await.unwrap();
    assert_eq!(proxy.left(), 0);
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lasting_failure_is_reported_until_it_ends() {
    let (_place, proxy, buffers) = faulty().await;
    buffers.create("b", NewBuffer::default(), NOW).await.unwrap();
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new("b");
    let chunk = writer.next(b"one");
    for fault in [Fault::Refuse, Fault::Hang] {
        proxy.inject(fault, "PUT", "/00000000", ALWAYS);
        let refused = buffers.put_chunk("b", WRITER, chunk.clone(), NOW).await.unwrap_err();
        assert!(matches!(refused, BufferError::Unavailable { action: "writing buffer", .. }), "{refused}");
        assert!(refused.is_fault() && refused.to_string().contains("\"b\""), "{refused}");
    }
    assert_refused!(writer.finish(&buffers).await, BufferError::ChunkMissing { n: 0, .. });
    proxy.pass();
    buffers.put_chunk("b", WRITER, chunk, NOW).await.unwrap();
    writer.finish(&buffers).await.unwrap();

    for fault in [Fault::Refuse, Fault::Hang] {
        proxy.inject(fault, "GET", "/00000000", ALWAYS);
        assert_refused!(read_all(&buffers, "b").await, BufferError::Unavailable { .. });
    }
    proxy.pass();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_response_is_never_a_short_chunk() {
    let (_place, proxy, buffers) = faulty().await;
    let data = vec![7; 100_000];
    written(&buffers, "b", &[&data]).await;
    proxy.inject(Fault::Cut, "GET", "/00000000", ALWAYS);
    let refused = read_all(&buffers, "b").await.unwrap_err();
    assert!(refused.is_fault(), "{refused}");
    proxy.inject(Fault::Cut, "GET", "/00000000", 1);
    assert_eq!(read_all(&buffers, "b").await.unwrap(), data);
    assert_eq!(proxy.left(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_byte_is_damage() {
    let (_place, proxy, buffers) = faulty().await;
    written(&buffers, "b", &[b"one"]).await;
    buffers.put_blob("k", "content".into()).await.unwrap();
    proxy.inject(Fault::Flip, "GET", "/00000000", ALWAYS);
    assert_refused!(buffers.chunk("b", 0, LONG_WAIT, NOW).await, BufferError::Damaged { .. });
    assert_refused!(read_all(&buffers, "b").await, BufferError::Damaged { .. });
    proxy.inject(Fault::Flip, "GET", "/k", ALWAYS);
    assert_refused!(buffers.get_blob("k", 10).await, BufferError::Damaged { .. });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_replaces_objects_fails_the_check() {
    let (_place, proxy, buffers) = faulty().await;
    buffers.check([1; 16]).await.unwrap();
    proxy.inject(Fault::AcceptOverwrite, "PUT", "/end", ALWAYS);
    assert_refused!(buffers.check([2; 16]).await, BufferError::Misconfigured { .. });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_secret_key_is_reported_as_misconfigured() {
    let storage = TestStorage::s3().await;
    let stranger = storage.open_with(|options| options.s3.secret_access_key = Some(Secret::new("wrong")));
    let refused = stranger.create("b", NewBuffer::default(), NOW).await.unwrap_err();
    assert!(matches!(refused, BufferError::Misconfigured { .. }), "{refused}");
    assert!(!refused.to_string().contains("wrong"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_service_is_reported_as_unavailable() {
    let storage = TestStorage::s3().await;
    let lost = storage.open_with(|options| {
        options.s3.endpoint = Some("http://127.0.0.1:1".to_owned());
        options.s3.retries_max = 1;
    });
    assert_refused!(lost.check([1; 16]).await, BufferError::Unavailable { action: "checking with", .. });
}
