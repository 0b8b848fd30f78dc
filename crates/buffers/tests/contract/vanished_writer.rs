//! Writers that vanish, and writers that are slow but active.

use futures::TryStreamExt;
use towline_buffers::{BufferError, BufferState};

use crate::storage::{LONG_WAIT, NOW, TestStorage, WRITER, assert_refused, created, on_every_storage};
use crate::writer::{TestWriter, read_all};

on_every_storage!(
    a_reader_gets_an_error_when_the_writer_vanishes,
    a_vanished_writer_is_refused_when_it_returns,
    an_active_writer_does_not_vanish,
    a_chunk_counts_as_activity_on_other_servers,
);

const TIMEOUT: u64 = 60_000;

async fn a_reader_gets_an_error_when_the_writer_vanishes(storage: TestStorage) {
    let writer = created(&storage, "b").await;
    writer.begin("b", WRITER, NOW).await.unwrap();
    TestWriter::new("b").put(&writer, b"one").await.unwrap();
    // The writer's server stops. The reader is on another server, with a shorter timeout.
    drop(writer);
    let reader = storage.open_with(|options| options.writer_timeout_ms = 50);
    let mut stream = reader.read("b", 0..u64::MAX, LONG_WAIT, NOW).await.unwrap();
    assert_eq!(stream.try_next().await.unwrap().unwrap(), "one");
    assert_refused!(
        stream.try_next().await,
        BufferError::Failed { reason, .. } if reason.starts_with("the writer vanished")
    );
    // Every server sees the failure from now on.
    let shown = storage.open().show("b", NOW).await.unwrap();
    assert!(matches!(shown.state, BufferState::Failed { .. }), "{shown:?}");
    assert_eq!((shown.position.chunks, shown.position.bytes), (1, 3));
}

async fn a_vanished_writer_is_refused_when_it_returns(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new("b");
    writer.put(&buffers, b"one").await.unwrap();
    let shown = storage.open().show("b", NOW + TIMEOUT + 1).await.unwrap();
    assert!(matches!(shown.state, BufferState::Failed { .. }), "{shown:?}");
    assert_refused!(writer.finish(&buffers).await, BufferError::Failed { .. });
    assert_refused!(buffers.begin("b", WRITER, NOW).await, BufferError::Failed { .. });
    assert_refused!(buffers.touch("b", WRITER, NOW).await, BufferError::Failed { .. });
    assert_refused!(read_all(&buffers, "b").await, BufferError::Failed { .. });
}

async fn an_active_writer_does_not_vanish(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    for server in [buffers.clone(), storage.open()] {
        assert!(matches!(server.show("b", NOW + TIMEOUT).await.unwrap().state, BufferState::Writing { .. }));
    }
    buffers.touch("b", WRITER, NOW + TIMEOUT).await.unwrap();
    let state = storage.open().show("b", NOW + 2 * TIMEOUT).await.unwrap().state;
    assert_eq!(state, BufferState::Writing { begun_at_ms: NOW, last_activity_ms: NOW + TIMEOUT });
    let state = storage.open().show("b", NOW + 2 * TIMEOUT + 1).await.unwrap().state;
    assert!(matches!(state, BufferState::Failed { .. }), "{state:?}");
}

async fn a_chunk_counts_as_activity_on_other_servers(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new("b");
    let (_first, second) = (writer.next(b"one"), writer.next(b"two"));
    // Even a chunk ahead of a missing one counts.
    buffers.put_chunk("b", WRITER, second, NOW + TIMEOUT).await.unwrap();
    let state = storage.open().show("b", NOW + 2 * TIMEOUT).await.unwrap().state;
    assert_eq!(state, BufferState::Writing { begun_at_ms: NOW, last_activity_ms: NOW + TIMEOUT });
    let refused = storage.open().begin("b", crate::storage::OTHER_WRITER, NOW + 2 * TIMEOUT).await;
    assert_refused!(refused, BufferError::BeingWritten { .. });
    let refused = storage.open().begin("b", crate::storage::OTHER_WRITER, NOW + 2 * TIMEOUT + 1).await;
    assert_refused!(refused, BufferError::Failed { .. });
}
