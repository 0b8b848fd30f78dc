//! Copying complete buffers.

use towline_buffers::{BufferError, BufferState, NewBuffer};

use crate::storage::{NOW, TestStorage, WRITER, assert_refused, created, on_every_storage, tags};
use crate::writer::{TestWriter, read_all, written};

on_every_storage!(
    a_copy_survives_the_deletion_of_its_source,
    only_a_complete_buffer_can_be_copied,
    a_copy_never_replaces_a_buffer,
    a_failed_copy_leaves_no_data,
);

async fn a_copy_survives_the_deletion_of_its_source(storage: TestStorage) {
    let buffers = storage.open();
    let writer = written(&buffers, "b", &[b"one", b"two", b"three"]).await;
    let new = NewBuffer { tags: tags(&[("of", "b")]), expires_at_ms: Some(NOW + 9) };
    let meta = buffers.copy("b", "copy", new, NOW + 1).await.unwrap();
    assert_eq!(buffers.meta("copy").await.unwrap(), meta);
    assert_eq!((meta.created_at_ms, meta.expires_at_ms), (NOW + 1, Some(NOW + 9)));
    buffers.delete("b").await.unwrap();
    let shown = buffers.show("copy", NOW).await.unwrap();
    assert_eq!(
        (shown.state, shown.position),
        (BufferState::Complete { finished_at_ms: NOW + 1 }, writer.position)
    );
    assert_eq!(read_all(&storage.open(), "copy").await.unwrap(), b"onetwothree");
}

async fn only_a_complete_buffer_can_be_copied(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    let copy = |from: &'static str| buffers.copy(from, "copy", NewBuffer::default(), NOW);
    assert_refused!(copy("nowhere").await, BufferError::NotFound { .. });
    assert_refused!(copy("b").await, BufferError::NotComplete { .. });
    buffers.begin("b", WRITER, NOW).await.unwrap();
    TestWriter::new("b").put(&buffers, b"one").await.unwrap();
    assert_refused!(copy("b").await, BufferError::NotComplete { .. });
    buffers.fail("b", WRITER, "no", NOW).await.unwrap();
    assert_refused!(copy("b").await, BufferError::Failed { .. });
    assert_refused!(buffers.meta("copy").await, BufferError::NotFound { .. });
}

async fn a_copy_never_replaces_a_buffer(storage: TestStorage) {
    let buffers = storage.open();
    written(&buffers, "b", &[b"one"]).await;
    written(&buffers, "existing", &[b"other"]).await;
    for to in ["existing", "b"] {
        assert_refused!(buffers.copy("b", to, NewBuffer::default(), NOW).await, BufferError::Exists { .. });
    }
    assert_eq!(read_all(&buffers, "existing").await.unwrap(), b"other");
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"one");
}

async fn a_failed_copy_leaves_no_data(storage: TestStorage) {
    let buffers = storage.open();
    written(&buffers, "b", &[b"one", b"two"]).await;
    std::fs::remove_file(storage.file("buffers/b/c/00000001")).unwrap();
    let refused = buffers.copy("b", "copy", NewBuffer::default(), NOW).await.unwrap_err();
    assert!(refused.is_fault(), "{refused}");
    assert!(!storage.file("buffers/copy/writer").exists());
    assert!(!storage.file("meta/copy").exists());
    buffers.create("copy", NewBuffer::default(), NOW).await.unwrap();
}
