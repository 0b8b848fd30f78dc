//! The sweep: what it removes, what it leaves alone.

use towline_buffers::{BufferError, Buffers, NewBuffer, State, SweepFrom, Swept};

use crate::rig::{FAR, NOW, Place, WRITER, assert_refused, on_every_place};
use crate::script::{Script, read_all, written};

on_every_place!(
    expired_buffers_are_removed,
    vanished_writers_are_marked,
    data_without_a_description_is_removed_after_the_grace,
    a_damaged_buffer_does_not_stop_the_sweep,
    steps_are_small_and_can_be_repeated,
);

const GRACE: u64 = 3_600_000;

/// A whole sweep, in steps of `limit`.
async fn sweep(buffers: &Buffers, limit: usize, now_ms: u64) -> Swept {
    let mut sum = Swept::default();
    let mut from = SweepFrom::default();
    for _ in 0..200 {
        let step = buffers.sweep(from, limit, GRACE, now_ms).await.unwrap();
        assert!(step.looked_at <= limit as u64);
        sum.looked_at += step.looked_at;
        sum.expired_removed += step.expired_removed;
        sum.vanished_failed += step.vanished_failed;
        sum.orphans_removed += step.orphans_removed;
        sum.temporary_removed += step.temporary_removed;
        sum.skipped += step.skipped;
        match step.next {
            Some(next) => from = next,
            None => return sum,
        }
    }
    panic!("the sweep does not end");
}

async fn expired_buffers_are_removed(place: Place) {
    let buffers = place.open();
    written(&buffers, "stays", &[b"one"]).await;
    let expires = |at| NewBuffer { expires_at_ms: Some(at), ..NewBuffer::default() };
    buffers.create("later", expires(NOW + 1), NOW).await.unwrap();
    buffers.create("goes", expires(NOW), NOW).await.unwrap();
    buffers.begin("goes", WRITER, NOW).await.unwrap();
    Script::new("goes").put(&buffers, b"one").await.unwrap();
    let swept = sweep(&buffers, 10, NOW).await;
    assert_eq!(
        (swept.expired_removed, swept.vanished_failed, swept.orphans_removed, swept.skipped),
        (1, 0, 0, 0)
    );
    assert_refused!(buffers.meta("goes").await, BufferError::NotFound { .. });
    assert!(!place.file("buffers/goes/c/00000000").exists());
    buffers.meta("later").await.unwrap();
    assert_eq!(read_all(&buffers, "stays").await.unwrap(), b"one");
}

async fn vanished_writers_are_marked(place: Place) {
    let buffers = place.open();
    for id in ["quiet", "lively"] {
        buffers.create(id, NewBuffer::default(), NOW).await.unwrap();
        buffers.begin(id, WRITER, NOW).await.unwrap();
    }
    buffers.create("empty", NewBuffer::default(), NOW).await.unwrap();
    buffers.touch("lively", WRITER, NOW + 1).await.unwrap();
    let swept = sweep(&place.open(), 10, NOW + 60_001).await;
    assert_eq!((swept.vanished_failed, swept.expired_removed, swept.skipped), (1, 0, 0));
    assert!(matches!(buffers.show("quiet", NOW).await.unwrap().state, State::Failed { .. }));
    assert!(matches!(buffers.show("lively", NOW).await.unwrap().state, State::Writing { .. }));
    assert!(matches!(buffers.show("empty", NOW).await.unwrap().state, State::Empty));
    assert_eq!(sweep(&place.open(), 10, NOW + 60_001).await.vanished_failed, 0);
}

async fn data_without_a_description_is_removed_after_the_grace(place: Place) {
    let buffers = place.open();
    for id in ["a", "a-b", "b", "c"] {
        written(&buffers, id, &[b"one", b"two"]).await;
    }
    for id in ["a", "c"] {
        std::fs::remove_file(place.file(&format!("meta/{id}"))).unwrap();
    }
    // Its files are younger than any grace at this time.
    assert_eq!(sweep(&buffers, 10, 0).await.orphans_removed, 0);
    assert!(place.file("buffers/a/end").exists());
    assert_eq!(sweep(&buffers, 1, FAR).await.orphans_removed, 2);
    for id in ["a", "c"] {
        assert!(!place.file(&format!("buffers/{id}/end")).exists());
        assert!(!place.file(&format!("buffers/{id}/c/00000001")).exists());
    }
    assert_eq!(read_all(&buffers, "a-b").await.unwrap(), b"onetwo");
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwo");
    assert_eq!(sweep(&buffers, 10, FAR).await.orphans_removed, 0);
}

async fn a_damaged_buffer_does_not_stop_the_sweep(place: Place) {
    let buffers = place.open();
    buffers.create("a", NewBuffer::default(), NOW).await.unwrap();
    buffers.create("b", NewBuffer { expires_at_ms: Some(NOW), ..NewBuffer::default() }, NOW).await.unwrap();
    std::fs::write(place.file("meta/a"), b"{").unwrap();
    let swept = sweep(&buffers, 10, NOW).await;
    assert_eq!((swept.skipped, swept.expired_removed), (1, 1));
}

async fn steps_are_small_and_can_be_repeated(place: Place) {
    let buffers = place.open();
    for n in 0..7 {
        let new = NewBuffer { expires_at_ms: Some(NOW), ..NewBuffer::default() };
        buffers.create(&format!("b{n}"), new, NOW).await.unwrap();
    }
    // A server stops after its first step; the next one begins anew.
    let step = buffers.sweep(SweepFrom::Start, 3, GRACE, NOW).await.unwrap();
    assert_eq!((step.looked_at, step.expired_removed), (3, 3));
    assert_eq!(step.next, Some(SweepFrom::Buffers { after: "b2".into() }));
    assert_eq!(sweep(&place.open(), 3, NOW).await.expired_removed, 4);
}

/// A crash leaves files without their name; a reader never sees them, and the sweep removes them.
#[tokio::test]
async fn files_half_written_are_removed_after_the_grace() {
    let place = Place::directory().await;
    let buffers = place.open();
    let script = written(&buffers, "b", &[b"one"]).await;
    let left =
        ["meta/x#1", "fields/k#2", "buffers/b/end#1", "buffers/b/c/00000001#1", "buffers/b/c/00000001#2"];
    for name in left {
        std::fs::write(place.file(name), b"half").unwrap();
    }
    std::fs::write(place.file("buffers/b/c/notes"), b"not ours").unwrap();
    let buffers = place.open();
    assert_eq!(buffers.show("b", NOW).await.unwrap().position, script.position);
    assert_eq!(sweep(&buffers, 10, 0).await.temporary_removed, 0);
    assert_eq!(sweep(&buffers, 1, FAR).await.temporary_removed, 5);
    for name in left {
        assert!(!place.file(name).exists(), "{name}");
    }
    assert!(place.file("buffers/b/c/notes").exists());
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"one");
}
