//! Copies of complete buffers.

use towline_buffers::{BufferError, NewBuffer, State};

use crate::rig::{NOW, Place, WRITER, assert_refused, created, on_every_place, tags};
use crate::script::{Script, read_all, written};

on_every_place!(
    a_copy_is_a_buffer_of_its_own,
    only_what_is_complete_is_copied,
    nothing_is_copied_over,
    a_copy_that_fails_leaves_nothing,
);

async fn a_copy_is_a_buffer_of_its_own(place: Place) {
    let buffers = place.open();
    let script = written(&buffers, "b", &[b"one", b"two", b"three"]).await;
    let new = NewBuffer { tags: tags(&[("of", "b")]), expires_at_ms: Some(NOW + 9) };
    let meta = buffers.copy("b", "copy", new, NOW + 1).await.unwrap();
    assert_eq!(buffers.meta("copy").await.unwrap(), meta);
    assert_eq!((meta.created_at_ms, meta.expires_at_ms), (NOW + 1, Some(NOW + 9)));
    buffers.delete("b").await.unwrap();
    let shown = buffers.show("copy", NOW).await.unwrap();
    assert_eq!((shown.state, shown.position), (State::Complete { finished_at_ms: NOW + 1 }, script.position));
    assert_eq!(read_all(&place.open(), "copy").await.unwrap(), b"onetwothree");
}

async fn only_what_is_complete_is_copied(place: Place) {
    let buffers = created(&place, "b").await;
    let copy = |from: &'static str| buffers.copy(from, "copy", NewBuffer::default(), NOW);
    assert_refused!(copy("nowhere").await, BufferError::NotFound { .. });
    assert_refused!(copy("b").await, BufferError::NotComplete { .. });
    buffers.begin("b", WRITER, NOW).await.unwrap();
    Script::new("b").put(&buffers, b"one").await.unwrap();
    assert_refused!(copy("b").await, BufferError::NotComplete { .. });
    buffers.fail("b", WRITER, "no", NOW).await.unwrap();
    assert_refused!(copy("b").await, BufferError::Failed { .. });
    assert_refused!(buffers.meta("copy").await, BufferError::NotFound { .. });
}

async fn nothing_is_copied_over(place: Place) {
    let buffers = place.open();
    written(&buffers, "b", &[b"one"]).await;
    written(&buffers, "there", &[b"other"]).await;
    for to in ["there", "b"] {
        assert_refused!(buffers.copy("b", to, NewBuffer::default(), NOW).await, BufferError::Exists { .. });
    }
    assert_eq!(read_all(&buffers, "there").await.unwrap(), b"other");
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"one");
}

async fn a_copy_that_fails_leaves_nothing(place: Place) {
    let buffers = place.open();
    written(&buffers, "b", &[b"one", b"two"]).await;
    std::fs::remove_file(place.file("buffers/b/c/00000001")).unwrap();
    let refused = buffers.copy("b", "copy", NewBuffer::default(), NOW).await.unwrap_err();
    assert!(refused.is_fault(), "{refused}");
    assert!(!place.file("buffers/copy/writer").exists());
    assert!(!place.file("meta/copy").exists());
    buffers.create("copy", NewBuffer::default(), NOW).await.unwrap();
}
