//! The states of a buffer: create, show, finish, fail, delete.

use towline_buffers::{BufferError, BufferState, ChunkLookup, NewBuffer, Position};

use crate::storage::{
    LONG_WAIT, NOW, OTHER_WRITER, TestStorage, WRITER, assert_refused, created, on_every_storage, tags,
};
use crate::writer::{TestWriter, read_all, written};

on_every_storage!(
    a_buffer_goes_from_empty_to_complete,
    an_id_can_be_created_once,
    calls_on_a_missing_buffer_report_not_found,
    ids_that_could_leave_the_directory_are_refused,
    a_complete_buffer_is_not_written_again,
    a_failed_buffer_gives_an_error_after_its_last_chunk,
    an_abandoned_buffer_fails_with_or_without_a_writer,
    an_end_is_never_replaced,
    a_deleted_buffer_is_not_found_by_readers_and_writers,
    stored_objects_do_not_reveal_the_writer_id,
    a_new_buffer_does_not_inherit_data_of_a_deleted_one,
    tags_above_the_limits_are_refused,
    a_working_storage_passes_the_check,
);

async fn a_buffer_goes_from_empty_to_complete(storage: TestStorage) {
    let buffers = storage.open();
    let new = NewBuffer { tags: tags(&[("kind", "model")]), expires_at_ms: Some(NOW + 5) };
    let meta = buffers.create("b", new.clone(), NOW).await.unwrap();
    assert_eq!((meta.created_at_ms, &meta.tags, meta.expires_at_ms), (NOW, &new.tags, Some(NOW + 5)));
    assert_eq!(buffers.meta("b").await.unwrap(), meta);
    let shown = buffers.show("b", NOW).await.unwrap();
    assert_eq!((shown.state, shown.position, shown.meta), (BufferState::Empty, Position::START, meta));

    assert_eq!(buffers.begin("b", WRITER, NOW + 1).await.unwrap(), Position::START);
    let mut writer = TestWriter::new("b");
    writer.put(&buffers, b"one").await.unwrap();
    let shown = buffers.show("b", NOW + 2).await.unwrap();
    assert_eq!(shown.state, BufferState::Writing { begun_at_ms: NOW + 1, last_activity_ms: NOW + 1 });
    assert_eq!(shown.position, writer.position);

    buffers.finish("b", WRITER, writer.position, NOW + 3).await.unwrap();
    // Another server sees the same.
    let shown = storage.open().show("b", NOW + 4).await.unwrap();
    assert_eq!(
        (shown.state, shown.position),
        (BufferState::Complete { finished_at_ms: NOW + 3 }, writer.position)
    );
}

async fn an_id_can_be_created_once(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    // A repeat of the same call, as after a lost answer.
    buffers.create("b", NewBuffer::default(), NOW).await.unwrap();
    assert_refused!(buffers.create("b", NewBuffer::default(), NOW + 1).await, BufferError::Exists { .. });
    let tagged = NewBuffer { tags: tags(&[("a", "b")]), expires_at_ms: None };
    assert_refused!(buffers.create("b", tagged, NOW).await, BufferError::Exists { .. });
    assert!(buffers.meta("b").await.unwrap().tags.is_empty());
}

async fn calls_on_a_missing_buffer_report_not_found(storage: TestStorage) {
    let buffers = storage.open();
    assert_refused!(buffers.meta("b").await, BufferError::NotFound { id } if id == "b");
    assert_refused!(buffers.show("b", NOW).await, BufferError::NotFound { .. });
    assert_refused!(buffers.position("b").await, BufferError::NotFound { .. });
    assert_refused!(buffers.begin("b", WRITER, NOW).await, BufferError::NotFound { .. });
    assert_refused!(buffers.chunk("b", 0, LONG_WAIT, NOW).await, BufferError::NotFound { .. });
    assert_refused!(read_all(&buffers, "b").await, BufferError::NotFound { .. });
    assert_refused!(buffers.touch("b", WRITER, NOW).await, BufferError::NotFound { .. });
    assert_refused!(buffers.fail("b", WRITER, "no", NOW).await, BufferError::NotFound { .. });
    assert_refused!(TestWriter::new("b").put(&buffers, b"x").await, BufferError::NotFound { .. });
    assert_refused!(TestWriter::new("b").finish(&buffers).await, BufferError::NotFound { .. });

    buffers.create("b", NewBuffer::default(), NOW).await.unwrap();
    assert_refused!(TestWriter::new("b").put(&buffers, b"x").await, BufferError::NotBegun { .. });
    assert_refused!(TestWriter::new("b").finish(&buffers).await, BufferError::NotBegun { .. });
    assert_refused!(buffers.touch("b", WRITER, NOW).await, BufferError::NotBegun { .. });
}

async fn ids_that_could_leave_the_directory_are_refused(storage: TestStorage) {
    let buffers = storage.open();
    for id in ["", ".", "..", "../b", "a/b", "/b", "a\\b", "b#1", "%2e%2e", "a\0"] {
        assert_refused!(buffers.create(id, NewBuffer::default(), NOW).await, BufferError::BadId { .. });
        assert_refused!(buffers.delete(id).await, BufferError::BadId { .. });
        assert_refused!(buffers.begin(id, WRITER, NOW).await, BufferError::BadId { .. });
        assert_refused!(buffers.chunk(id, 0, LONG_WAIT, NOW).await, BufferError::BadId { .. });
        assert_refused!(read_all(&buffers, id).await, BufferError::BadId { .. });
        assert_refused!(buffers.copy("b", id, NewBuffer::default(), NOW).await, BufferError::BadId { .. });
        assert_refused!(buffers.put_blob(id, "x".into()).await, BufferError::BadId { .. });
        assert_refused!(buffers.get_blob(id, 10).await, BufferError::BadId { .. });
        assert_refused!(buffers.delete_blob(id).await, BufferError::BadId { .. });
    }
}

async fn a_complete_buffer_is_not_written_again(storage: TestStorage) {
    let buffers = storage.open();
    let mut writer = written(&buffers, "b", &[b"one"]).await;
    writer.finish(&buffers).await.unwrap();
    assert_refused!(buffers.begin("b", OTHER_WRITER, NOW).await, BufferError::AlreadyWritten { .. });
    assert_refused!(buffers.begin("b", WRITER, NOW).await, BufferError::AlreadyWritten { .. });
    assert_refused!(buffers.fail("b", WRITER, "no", NOW).await, BufferError::AlreadyWritten { .. });
    assert_refused!(buffers.abandon("b", "no", NOW).await, BufferError::AlreadyWritten { .. });
    assert_refused!(writer.put(&buffers, b"two").await, BufferError::AlreadyWritten { .. });
    assert_refused!(writer.finish(&buffers).await, BufferError::AlreadyWritten { .. });
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"one");
}

async fn a_failed_buffer_gives_an_error_after_its_last_chunk(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new("b");
    writer.put(&buffers, b"one").await.unwrap();
    assert_refused!(buffers.fail("b", OTHER_WRITER, "no", NOW).await, BufferError::BeingWritten { .. });
    for _ in 0..2 {
        buffers.fail("b", WRITER, "ran out of ink", NOW + 1).await.unwrap();
    }
    let shown = buffers.show("b", NOW).await.unwrap();
    assert_eq!(shown.state, BufferState::Failed { finished_at_ms: NOW + 1, reason: "ran out of ink".into() });
    assert_eq!(shown.position, writer.position);
    assert!(
        matches!(buffers.chunk("b", 0, LONG_WAIT, NOW).await.unwrap(), ChunkLookup::Chunk(chunk) if chunk.data.concat() == b"one")
    );
    assert_refused!(
        buffers.chunk("b", 1, LONG_WAIT, NOW).await,
        BufferError::Failed { reason, .. } if reason == "ran out of ink"
    );
    assert_refused!(read_all(&buffers, "b").await, BufferError::Failed { .. });
    assert_refused!(writer.put(&buffers, b"two").await, BufferError::Failed { .. });
    assert_refused!(buffers.begin("b", WRITER, NOW).await, BufferError::Failed { .. });
}

async fn an_abandoned_buffer_fails_with_or_without_a_writer(storage: TestStorage) {
    let buffers = created(&storage, "empty").await;
    buffers.abandon("empty", "its lease was lost", NOW).await.unwrap();
    assert_refused!(buffers.begin("empty", WRITER, NOW).await, BufferError::Failed { .. });
    assert_refused!(read_all(&buffers, "empty").await, BufferError::Failed { .. });

    buffers.create("written", NewBuffer::default(), NOW).await.unwrap();
    buffers.begin("written", WRITER, NOW).await.unwrap();
    // Another server abandons the buffer.
    storage.open().abandon("written", "its lease was lost", NOW).await.unwrap();
    assert_refused!(TestWriter::new("written").finish(&buffers).await, BufferError::Failed { .. });
}

async fn an_end_is_never_replaced(storage: TestStorage) {
    let buffers = storage.open();
    written(&buffers, "b", &[]).await;
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"");
    assert_refused!(buffers.abandon("b", "no", NOW).await, BufferError::AlreadyWritten { .. });
    buffers.create("c", NewBuffer::default(), NOW).await.unwrap();
    buffers.abandon("c", "first", NOW).await.unwrap();
    buffers.abandon("c", "second", NOW).await.unwrap();
    assert_refused!(read_all(&buffers, "c").await, BufferError::Failed { reason, .. } if reason == "first");
}

async fn a_deleted_buffer_is_not_found_by_readers_and_writers(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new("b");
    writer.put(&buffers, b"one").await.unwrap();
    let waiting = tokio::spawn({
        let buffers = storage.open();
        async move { buffers.chunk("b", 1, LONG_WAIT, NOW).await }
    });
    for _ in 0..2 {
        buffers.delete("b").await.unwrap();
    }
    assert_refused!(waiting.await.unwrap(), BufferError::NotFound { .. });
    assert_refused!(writer.put(&buffers, b"two").await, BufferError::NotFound { .. });
    assert_refused!(buffers.chunk("b", 0, LONG_WAIT, NOW).await, BufferError::NotFound { .. });
    assert!(!storage.file("buffers/b/c/00000000").exists());
    // No data is left, so the id can be used again.
    written(&buffers, "b", &[b"new"]).await;
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"new");
}

async fn stored_objects_do_not_reveal_the_writer_id(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    TestWriter::new("b").put(&buffers, b"one").await.unwrap();
    let ChunkLookup::Chunk(chunk) = buffers.chunk("b", 0, LONG_WAIT, NOW).await.unwrap() else {
        panic!("no chunk")
    };
    let as_seen = towline_buffers::WriterId::from_bytes(*chunk.header.writer.as_bytes());
    assert_ne!(as_seen, WRITER);
    assert_refused!(buffers.touch("b", as_seen, NOW).await, BufferError::BeingWritten { .. });
    let record = std::fs::read_to_string(storage.file("buffers/b/writer")).unwrap();
    assert!(!record.contains(&WRITER.to_string()), "{record}");
}

async fn a_new_buffer_does_not_inherit_data_of_a_deleted_one(storage: TestStorage) {
    let buffers = storage.open();
    written(&buffers, "b", &[b"old"]).await;
    // As after a delete that crashed after removing the description.
    std::fs::remove_file(storage.file("meta/b")).unwrap();
    assert_refused!(buffers.create("b", NewBuffer::default(), NOW).await, BufferError::Exists { .. });
    assert_refused!(buffers.begin("b", OTHER_WRITER, NOW).await, BufferError::NotFound { .. });
    buffers.delete("b").await.unwrap();
    buffers.create("b", NewBuffer::default(), NOW).await.unwrap();
    assert_eq!(buffers.show("b", NOW).await.unwrap().state, BufferState::Empty);
}

async fn tags_above_the_limits_are_refused(storage: TestStorage) {
    let buffers = storage.open();
    let with = |name: &str, value: &str| NewBuffer { tags: tags(&[(name, value)]), expires_at_ms: None };
    let (name, value) = ("n".repeat(64), "v".repeat(256));
    buffers.create("b", with(&name, &value), NOW).await.unwrap();
    for new in [with("", "v"), with(&format!("{name}n"), "v"), with("n", &format!("{value}v"))] {
        assert_refused!(buffers.create("c", new, NOW).await, BufferError::BadMeta { .. });
    }
    let many =
        NewBuffer { tags: (0..33).map(|n| (n.to_string(), String::new())).collect(), expires_at_ms: None };
    assert_refused!(buffers.create("c", many, NOW).await, BufferError::BadMeta { .. });
}

async fn a_working_storage_passes_the_check(storage: TestStorage) {
    let buffers = storage.open();
    buffers.check([3; 16]).await.unwrap();
    buffers.check([3; 16]).await.unwrap();
}
