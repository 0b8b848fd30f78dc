//! Writers that vanish, and writers that are only slow.

use futures::TryStreamExt;
use towline_buffers::{BufferError, State};

use crate::rig::{LONG, NOW, Place, WRITER, assert_refused, created, on_every_place};
use crate::script::{Script, read_all};

on_every_place!(
    a_reader_gets_an_error_when_the_writer_vanishes,
    a_writer_that_vanished_is_refused_when_it_comes_back,
    a_writer_that_gives_signs_is_not_given_up,
    a_chunk_is_a_sign_for_other_servers,
);

const TIMEOUT: u64 = 60_000;

async fn a_reader_gets_an_error_when_the_writer_vanishes(place: Place) {
    let writer = created(&place, "b").await;
    writer.begin("b", WRITER, NOW).await.unwrap();
    Script::new("b").put(&writer, b"one").await.unwrap();
    // Its server goes down with it; the readers are elsewhere, and their patience is shorter.
    drop(writer);
    let reader = place.open_with(|options| options.writer_timeout_ms = 50);
    let mut stream = reader.read("b", 0..u64::MAX, LONG, NOW).await.unwrap();
    assert_eq!(stream.try_next().await.unwrap().unwrap(), "one");
    assert_refused!(
        stream.try_next().await,
        BufferError::Failed { reason, .. } if reason.starts_with("the writer vanished")
    );
    // Everybody sees it from now on.
    let shown = place.open().show("b", NOW).await.unwrap();
    assert!(matches!(shown.state, State::Failed { .. }), "{shown:?}");
    assert_eq!((shown.position.chunks, shown.position.bytes), (1, 3));
}

async fn a_writer_that_vanished_is_refused_when_it_comes_back(place: Place) {
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut script = Script::new("b");
    script.put(&buffers, b"one").await.unwrap();
    let shown = place.open().show("b", NOW + TIMEOUT + 1).await.unwrap();
    assert!(matches!(shown.state, State::Failed { .. }), "{shown:?}");
    assert_refused!(script.finish(&buffers).await, BufferError::Failed { .. });
    assert_refused!(buffers.begin("b", WRITER, NOW).await, BufferError::Failed { .. });
    assert_refused!(buffers.touch("b", WRITER, NOW).await, BufferError::Failed { .. });
    assert_refused!(read_all(&buffers, "b").await, BufferError::Failed { .. });
}

async fn a_writer_that_gives_signs_is_not_given_up(place: Place) {
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    for server in [buffers.clone(), place.open()] {
        assert!(matches!(server.show("b", NOW + TIMEOUT).await.unwrap().state, State::Writing { .. }));
    }
    buffers.touch("b", WRITER, NOW + TIMEOUT).await.unwrap();
    let state = place.open().show("b", NOW + 2 * TIMEOUT).await.unwrap().state;
    assert_eq!(state, State::Writing { begun_at_ms: NOW, last_sign_ms: NOW + TIMEOUT });
    let state = place.open().show("b", NOW + 2 * TIMEOUT + 1).await.unwrap().state;
    assert!(matches!(state, State::Failed { .. }), "{state:?}");
}

async fn a_chunk_is_a_sign_for_other_servers(place: Place) {
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut script = Script::new("b");
    let (_first, second) = (script.next(b"one"), script.next(b"two"));
    // Even one that came ahead of others.
    buffers.put_chunk("b", WRITER, second, NOW + TIMEOUT).await.unwrap();
    let state = place.open().show("b", NOW + 2 * TIMEOUT).await.unwrap().state;
    assert_eq!(state, State::Writing { begun_at_ms: NOW, last_sign_ms: NOW + TIMEOUT });
    let refused = place.open().begin("b", crate::rig::OTHER, NOW + 2 * TIMEOUT).await;
    assert_refused!(refused, BufferError::BeingWritten { .. });
    let refused = place.open().begin("b", crate::rig::OTHER, NOW + 2 * TIMEOUT + 1).await;
    assert_refused!(refused, BufferError::Failed { .. });
}
