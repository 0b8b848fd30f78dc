//! Create, show, end, delete: the states of a buffer.

use towline_buffers::{BufferError, NewBuffer, Next, Position, State};

use crate::rig::{LONG, NOW, OTHER, Place, WRITER, assert_refused, created, on_every_place, tags};
use crate::script::{Script, read_all, written};

on_every_place!(
    a_buffer_goes_from_empty_to_complete,
    an_id_is_taken_once,
    what_is_not_there_is_said_to_be_missing,
    no_id_leads_elsewhere,
    a_complete_buffer_is_not_written_again,
    a_failed_buffer_gives_an_error_at_its_end,
    an_abandoned_buffer_fails_with_or_without_a_writer,
    an_end_is_never_replaced,
    a_deleted_buffer_is_gone_for_readers_and_writers,
    what_is_stored_does_not_tell_how_to_write,
    what_is_left_of_a_deleted_buffer_is_not_taken_for_a_new_one,
    tags_have_bounds,
    a_place_that_works_passes_the_check,
);

async fn a_buffer_goes_from_empty_to_complete(place: Place) {
    let buffers = place.open();
    let new = NewBuffer { tags: tags(&[("kind", "model")]), expires_at_ms: Some(NOW + 5) };
    let meta = buffers.create("b", new.clone(), NOW).await.unwrap();
    assert_eq!((meta.created_at_ms, &meta.tags, meta.expires_at_ms), (NOW, &new.tags, Some(NOW + 5)));
    assert_eq!(buffers.meta("b").await.unwrap(), meta);
    let shown = buffers.show("b", NOW).await.unwrap();
    assert_eq!((shown.state, shown.position, shown.meta), (State::Empty, Position::START, meta));

    assert_eq!(buffers.begin("b", WRITER, NOW + 1).await.unwrap(), Position::START);
    let mut script = Script::new("b");
    script.put(&buffers, b"one").await.unwrap();
    let shown = buffers.show("b", NOW + 2).await.unwrap();
    assert_eq!(shown.state, State::Writing { begun_at_ms: NOW + 1, last_sign_ms: NOW + 1 });
    assert_eq!(shown.position, script.position);

    buffers.finish("b", WRITER, script.position, NOW + 3).await.unwrap();
    // As another server sees it.
    let shown = place.open().show("b", NOW + 4).await.unwrap();
    assert_eq!((shown.state, shown.position), (State::Complete { finished_at_ms: NOW + 3 }, script.position));
}

async fn an_id_is_taken_once(place: Place) {
    let buffers = created(&place, "b").await;
    // The same call again, its answer lost.
    buffers.create("b", NewBuffer::default(), NOW).await.unwrap();
    assert_refused!(buffers.create("b", NewBuffer::default(), NOW + 1).await, BufferError::Exists { .. });
    let tagged = NewBuffer { tags: tags(&[("a", "b")]), expires_at_ms: None };
    assert_refused!(buffers.create("b", tagged, NOW).await, BufferError::Exists { .. });
    assert!(buffers.meta("b").await.unwrap().tags.is_empty());
}

async fn what_is_not_there_is_said_to_be_missing(place: Place) {
    let buffers = place.open();
    assert_refused!(buffers.meta("b").await, BufferError::NotFound { id } if id == "b");
    assert_refused!(buffers.show("b", NOW).await, BufferError::NotFound { .. });
    assert_refused!(buffers.position("b").await, BufferError::NotFound { .. });
    assert_refused!(buffers.begin("b", WRITER, NOW).await, BufferError::NotFound { .. });
    assert_refused!(buffers.chunk("b", 0, LONG, NOW).await, BufferError::NotFound { .. });
    assert_refused!(read_all(&buffers, "b").await, BufferError::NotFound { .. });
    assert_refused!(buffers.touch("b", WRITER, NOW).await, BufferError::NotFound { .. });
    assert_refused!(buffers.fail("b", WRITER, "no", NOW).await, BufferError::NotFound { .. });
    assert_refused!(Script::new("b").put(&buffers, b"x").await, BufferError::NotFound { .. });
    assert_refused!(Script::new("b").finish(&buffers).await, BufferError::NotFound { .. });

    buffers.create("b", NewBuffer::default(), NOW).await.unwrap();
    assert_refused!(Script::new("b").put(&buffers, b"x").await, BufferError::NotBegun { .. });
    assert_refused!(Script::new("b").finish(&buffers).await, BufferError::NotBegun { .. });
    assert_refused!(buffers.touch("b", WRITER, NOW).await, BufferError::NotBegun { .. });
}

async fn no_id_leads_elsewhere(place: Place) {
    let buffers = place.open();
    for id in ["", ".", "..", "../b", "a/b", "/b", "a\\b", "b#1", "%2e%2e", "a\0"] {
        assert_refused!(buffers.create(id, NewBuffer::default(), NOW).await, BufferError::BadId { .. });
        assert_refused!(buffers.delete(id).await, BufferError::BadId { .. });
        assert_refused!(buffers.begin(id, WRITER, NOW).await, BufferError::BadId { .. });
        assert_refused!(buffers.chunk(id, 0, LONG, NOW).await, BufferError::BadId { .. });
        assert_refused!(read_all(&buffers, id).await, BufferError::BadId { .. });
        assert_refused!(buffers.copy("b", id, NewBuffer::default(), NOW).await, BufferError::BadId { .. });
        assert_refused!(buffers.put_blob(id, "x".into()).await, BufferError::BadId { .. });
        assert_refused!(buffers.get_blob(id, 10).await, BufferError::BadId { .. });
        assert_refused!(buffers.delete_blob(id).await, BufferError::BadId { .. });
    }
}

async fn a_complete_buffer_is_not_written_again(place: Place) {
    let buffers = place.open();
    let mut script = written(&buffers, "b", &[b"one"]).await;
    script.finish(&buffers).await.unwrap();
    assert_refused!(buffers.begin("b", OTHER, NOW).await, BufferError::AlreadyWritten { .. });
    assert_refused!(buffers.begin("b", WRITER, NOW).await, BufferError::AlreadyWritten { .. });
    assert_refused!(buffers.fail("b", WRITER, "no", NOW).await, BufferError::AlreadyWritten { .. });
    assert_refused!(buffers.abandon("b", "no", NOW).await, BufferError::AlreadyWritten { .. });
    assert_refused!(script.put(&buffers, b"two").await, BufferError::AlreadyWritten { .. });
    assert_refused!(script.finish(&buffers).await, BufferError::AlreadyWritten { .. });
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"one");
}

async fn a_failed_buffer_gives_an_error_at_its_end(place: Place) {
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut script = Script::new("b");
    script.put(&buffers, b"one").await.unwrap();
    assert_refused!(buffers.fail("b", OTHER, "no", NOW).await, BufferError::BeingWritten { .. });
    for _ in 0..2 {
        buffers.fail("b", WRITER, "ran out of ink", NOW + 1).await.unwrap();
    }
    let shown = buffers.show("b", NOW).await.unwrap();
    assert_eq!(shown.state, State::Failed { finished_at_ms: NOW + 1, reason: "ran out of ink".into() });
    assert_eq!(shown.position, script.position);
    assert!(
        matches!(buffers.chunk("b", 0, LONG, NOW).await.unwrap(), Next::Chunk(chunk) if chunk.data.concat() == b"one")
    );
    assert_refused!(
        buffers.chunk("b", 1, LONG, NOW).await,
        BufferError::Failed { reason, .. } if reason == "ran out of ink"
    );
    assert_refused!(read_all(&buffers, "b").await, BufferError::Failed { .. });
    assert_refused!(script.put(&buffers, b"two").await, BufferError::Failed { .. });
    assert_refused!(buffers.begin("b", WRITER, NOW).await, BufferError::Failed { .. });
}

async fn an_abandoned_buffer_fails_with_or_without_a_writer(place: Place) {
    let buffers = created(&place, "empty").await;
    buffers.abandon("empty", "its lease was lost", NOW).await.unwrap();
    assert_refused!(buffers.begin("empty", WRITER, NOW).await, BufferError::Failed { .. });
    assert_refused!(read_all(&buffers, "empty").await, BufferError::Failed { .. });

    buffers.create("written", NewBuffer::default(), NOW).await.unwrap();
    buffers.begin("written", WRITER, NOW).await.unwrap();
    // By another server than the writer's.
    place.open().abandon("written", "its lease was lost", NOW).await.unwrap();
    assert_refused!(Script::new("written").finish(&buffers).await, BufferError::Failed { .. });
}

async fn an_end_is_never_replaced(place: Place) {
    let buffers = place.open();
    written(&buffers, "b", &[]).await;
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"");
    assert_refused!(buffers.abandon("b", "no", NOW).await, BufferError::AlreadyWritten { .. });
    buffers.create("c", NewBuffer::default(), NOW).await.unwrap();
    buffers.abandon("c", "first", NOW).await.unwrap();
    buffers.abandon("c", "second", NOW).await.unwrap();
    assert_refused!(read_all(&buffers, "c").await, BufferError::Failed { reason, .. } if reason == "first");
}

async fn a_deleted_buffer_is_gone_for_readers_and_writers(place: Place) {
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut script = Script::new("b");
    script.put(&buffers, b"one").await.unwrap();
    let waiting = tokio::spawn({
        let buffers = place.open();
        async move { buffers.chunk("b", 1, LONG, NOW).await }
    });
    for _ in 0..2 {
        buffers.delete("b").await.unwrap();
    }
    assert_refused!(waiting.await.unwrap(), BufferError::NotFound { .. });
    assert_refused!(script.put(&buffers, b"two").await, BufferError::NotFound { .. });
    assert_refused!(buffers.chunk("b", 0, LONG, NOW).await, BufferError::NotFound { .. });
    assert!(!place.file("buffers/b/c/00000000").exists());
    // Nothing is left, so the id can be used again.
    written(&buffers, "b", &[b"new"]).await;
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"new");
}

async fn what_is_stored_does_not_tell_how_to_write(place: Place) {
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    Script::new("b").put(&buffers, b"one").await.unwrap();
    let Next::Chunk(chunk) = buffers.chunk("b", 0, LONG, NOW).await.unwrap() else { panic!("no chunk") };
    let as_seen = towline_buffers::WriterId::from_bytes(*chunk.header.writer.as_bytes());
    assert_ne!(as_seen, WRITER);
    assert_refused!(buffers.touch("b", as_seen, NOW).await, BufferError::BeingWritten { .. });
    let record = std::fs::read_to_string(place.file("buffers/b/writer")).unwrap();
    assert!(!record.contains(&WRITER.to_string()), "{record}");
}

async fn what_is_left_of_a_deleted_buffer_is_not_taken_for_a_new_one(place: Place) {
    let buffers = place.open();
    written(&buffers, "b", &[b"old"]).await;
    // A delete that got no further than the description.
    std::fs::remove_file(place.file("meta/b")).unwrap();
    assert_refused!(buffers.create("b", NewBuffer::default(), NOW).await, BufferError::Exists { .. });
    assert_refused!(buffers.begin("b", OTHER, NOW).await, BufferError::NotFound { .. });
    buffers.delete("b").await.unwrap();
    buffers.create("b", NewBuffer::default(), NOW).await.unwrap();
    assert_eq!(buffers.show("b", NOW).await.unwrap().state, State::Empty);
}

async fn tags_have_bounds(place: Place) {
    let buffers = place.open();
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

async fn a_place_that_works_passes_the_check(place: Place) {
    let buffers = place.open();
    buffers.check([3; 16]).await.unwrap();
    buffers.check([3; 16]).await.unwrap();
}
