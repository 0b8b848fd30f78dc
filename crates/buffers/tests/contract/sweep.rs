//! The sweep: what it removes and what it keeps.

use towline_buffers::{BufferError, BufferState, Buffers, NewBuffer, SweepCursor, SweepReport};

use crate::storage::{FAR_FUTURE, NOW, TestStorage, WRITER, assert_refused, on_every_storage};
use crate::writer::{TestWriter, read_all, written};

on_every_storage!(
    expired_buffers_are_removed,
    buffers_of_vanished_writers_fail,
    data_without_a_description_is_removed_after_the_grace_period,
    a_damaged_buffer_does_not_stop_the_sweep,
    sweep_steps_are_bounded_and_repeatable,
);

const GRACE: u64 = 3_600_000;

/// Runs a whole sweep in steps of `limit`.
async fn sweep(buffers: &Buffers, limit: usize, now_ms: u64) -> SweepReport {
    let mut sum = SweepReport::default();
    let mut from = SweepCursor::default();
    for _ in 0..200 {
        let step = buffers.sweep(from, limit, GRACE, now_ms).await.unwrap();
        assert!(step.examined <= limit as u64);
        sum.examined += step.examined;
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

async fn expired_buffers_are_removed(storage: TestStorage) {
    let buffers = storage.open();
    written(&buffers, "stays", &[b"one"]).await;
    let expires = |at| NewBuffer { expires_at_ms: Some(at), ..NewBuffer::default() };
    buffers.create("later", expires(NOW + 1), NOW).await.unwrap();
    buffers.create("goes", expires(NOW), NOW).await.unwrap();
    // The broker decides about it: its attempt may be under way, or another item may have committed it.
    let of_attempt = "out.00000000-0000-0000-0000-000000000001.result.0000000000000001";
    buffers.create(of_attempt, expires(NOW), NOW).await.unwrap();
    buffers.begin("goes", WRITER, NOW).await.unwrap();
    TestWriter::new("goes").put(&buffers, b"one").await.unwrap();
    let swept = sweep(&buffers, 10, NOW).await;
    assert_eq!(
        (swept.expired_removed, swept.vanished_failed, swept.orphans_removed, swept.skipped),
        (1, 0, 0, 0)
    );
    assert_refused!(buffers.meta("goes").await, BufferError::NotFound { .. });
    assert!(!storage.file("buffers/goes/c/00000000").exists());
    buffers.meta("later").await.unwrap();
    buffers.meta(of_attempt).await.unwrap();
    assert_eq!(read_all(&buffers, "stays").await.unwrap(), b"one");
}

async fn buffers_of_vanished_writers_fail(storage: TestStorage) {
    let buffers = storage.open();
    for id in ["quiet", "lively"] {
        buffers.create(id, NewBuffer::default(), NOW).await.unwrap();
        buffers.begin(id, WRITER, NOW).await.unwrap();
    }
    buffers.create("empty", NewBuffer::default(), NOW).await.unwrap();
    buffers.touch("lively", WRITER, NOW + 1).await.unwrap();
    let swept = sweep(&storage.open(), 10, NOW + 60_001).await;
    assert_eq!((swept.vanished_failed, swept.expired_removed, swept.skipped), (1, 0, 0));
    assert!(matches!(buffers.show("quiet", NOW).await.unwrap().state, BufferState::Failed { .. }));
    assert!(matches!(buffers.show("lively", NOW).await.unwrap().state, BufferState::Writing { .. }));
    assert!(matches!(buffers.show("empty", NOW).await.unwrap().state, BufferState::Empty));
    assert_eq!(sweep(&storage.open(), 10, NOW + 60_001).await.vanished_failed, 0);
}

async fn data_without_a_description_is_removed_after_the_grace_period(storage: TestStorage) {
    let buffers = storage.open();
    for id in ["a", "a-b", "b", "c"] {
        written(&buffers, id, &[b"one", b"two"]).await;
    }
    for id in ["a", "c"] {
        std::fs::remove_file(storage.file(&format!("meta/{id}"))).unwrap();
    }
    // At time 0 the files are younger than the grace period.
    assert_eq!(sweep(&buffers, 10, 0).await.orphans_removed, 0);
    assert!(storage.file("buffers/a/end").exists());
    assert_eq!(sweep(&buffers, 1, FAR_FUTURE).await.orphans_removed, 2);
    for id in ["a", "c"] {
        assert!(!storage.file(&format!("buffers/{id}/end")).exists());
        assert!(!storage.file(&format!("buffers/{id}/c/00000001")).exists());
    }
    assert_eq!(read_all(&buffers, "a-b").await.unwrap(), b"onetwo");
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwo");
    assert_eq!(sweep(&buffers, 10, FAR_FUTURE).await.orphans_removed, 0);
}

async fn a_damaged_buffer_does_not_stop_the_sweep(storage: TestStorage) {
    let buffers = storage.open();
    buffers.create("a", NewBuffer::default(), NOW).await.unwrap();
    buffers.create("b", NewBuffer { expires_at_ms: Some(NOW), ..NewBuffer::default() }, NOW).await.unwrap();
    std::fs::write(storage.file("meta/a"), b"{").unwrap();
    let swept = sweep(&buffers, 10, NOW).await;
    assert_eq!((swept.skipped, swept.expired_removed), (1, 1));
}

async fn sweep_steps_are_bounded_and_repeatable(storage: TestStorage) {
    let buffers = storage.open();
    for n in 0..7 {
        let new = NewBuffer { expires_at_ms: Some(NOW), ..NewBuffer::default() };
        buffers.create(&format!("b{n}"), new, NOW).await.unwrap();
    }
    // A server stops after its first step. Another server starts a new sweep.
    let step = buffers.sweep(SweepCursor::Start, 3, GRACE, NOW).await.unwrap();
    assert_eq!((step.examined, step.expired_removed), (3, 3));
    assert_eq!(step.next, Some(SweepCursor::Buffers { after: "b2".into() }));
    assert_eq!(sweep(&storage.open(), 3, NOW).await.expired_removed, 4);
}

/// A crash leaves temporary files. Readers never see them, and the sweep removes them.
#[tokio::test]
async fn temporary_files_are_removed_after_the_grace_period() {
    let storage = TestStorage::directory().await;
    let buffers = storage.open();
    let writer = written(&buffers, "b", &[b"one"]).await;
    let left =
        ["meta/x#1", "fields/k#2", "buffers/b/end#1", "buffers/b/c/00000001#1", "buffers/b/c/00000001#2"];
    for name in left {
        std::fs::write(storage.file(name), b"half").unwrap();
    }
    std::fs::write(storage.file("buffers/b/c/notes"), b"not ours").unwrap();
    let buffers = storage.open();
    assert_eq!(buffers.show("b", NOW).await.unwrap().position, writer.position);
    assert_eq!(sweep(&buffers, 10, 0).await.temporary_removed, 0);
    assert_eq!(sweep(&buffers, 1, FAR_FUTURE).await.temporary_removed, 5);
    for name in left {
        assert!(!storage.file(name).exists(), "{name}");
    }
    assert!(storage.file("buffers/b/c/notes").exists());
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"one");
}
