//! Damaged objects are reported and never served. Acknowledged chunks survive a crash.

use towline_buffers::{BufferError, BufferState};

use crate::storage::{LONG_WAIT, NOW, TestStorage, WRITER, assert_refused, created, on_every_storage};
use crate::writer::{TestWriter, read_all, read_range, written};

on_every_storage!(
    a_changed_chunk_is_damage,
    a_missing_chunk_is_damage,
    a_chunk_of_another_buffer_is_damage,
    a_changed_record_is_damage,
    acknowledged_chunks_survive_a_crash,
);

async fn a_changed_chunk_is_damage(storage: TestStorage) {
    let buffers = storage.open();
    written(&buffers, "b", &[b"one", b"two"]).await;
    let file = storage.file("buffers/b/c/00000001");
    let good = std::fs::read(&file).unwrap();
    let mut cases =
        vec![good[..good.len() - 1].to_vec(), good[..100].to_vec(), Vec::new(), [&good[..], b"x"].concat()];
    for at in [0, 20, 60, 100, 127, 128, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        cases.push(bad);
    }
    for (n, bad) in cases.into_iter().enumerate() {
        std::fs::write(&file, bad).unwrap();
        assert_refused!(buffers.chunk("b", 1, LONG_WAIT, NOW).await, BufferError::Damaged { .. });
        assert_refused!(read_all(&buffers, "b").await, BufferError::Damaged { id, .. } if id == "b" && n < 100);
    }
    std::fs::write(&file, good).unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwo");
}

async fn a_missing_chunk_is_damage(storage: TestStorage) {
    let buffers = storage.open();
    written(&buffers, "b", &[b"one", b"two", b"three"]).await;
    std::fs::remove_file(storage.file("buffers/b/c/00000001")).unwrap();
    assert_refused!(read_all(&buffers, "b").await, BufferError::Damaged { .. });
    assert_refused!(buffers.chunk("b", 1, LONG_WAIT, NOW).await, BufferError::Damaged { .. });
}

async fn a_chunk_of_another_buffer_is_damage(storage: TestStorage) {
    let buffers = storage.open();
    written(&buffers, "b", &[b"one", b"two", b"six", b"ten"]).await;
    written(&buffers, "other", &[b"eno", b"owt", b"xis", b"net"]).await;
    // The other chunk is valid and has the same number and size: only the hash chain detects it.
    for (n, good_until) in [(1, 3), (3, 9)] {
        let (file, good) = (storage.file(&format!("buffers/b/c/0000000{n}")), storage.file("good"));
        std::fs::rename(&file, &good).unwrap();
        std::fs::copy(storage.file(&format!("buffers/other/c/0000000{n}")), &file).unwrap();
        assert_refused!(read_all(&buffers, "b").await, BufferError::Damaged { .. });
        assert_refused!(read_range(&buffers, "b", 0, good_until + 1).await, BufferError::Damaged { .. });
        assert_eq!(
            read_range(&buffers, "b", 0, good_until).await.unwrap(),
            b"onetwosix"[..good_until as usize]
        );
        std::fs::rename(&good, &file).unwrap();
    }
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwosixten");
    std::fs::copy(storage.file("buffers/b/c/00000000"), storage.file("buffers/b/c/00000001")).unwrap();
    assert_refused!(buffers.chunk("b", 1, LONG_WAIT, NOW).await, BufferError::Damaged { .. });
}

async fn a_changed_record_is_damage(storage: TestStorage) {
    let buffers = storage.open();
    written(&buffers, "b", &[b"one"]).await;
    let end = storage.file("buffers/b/end");
    let good = std::fs::read_to_string(&end).unwrap();
    // An end that says less would make a short buffer look whole.
    let short = good.replace("\"chunks\":1", "\"chunks\":0");
    assert_ne!(good, short);
    let shorter = short.replace("\"bytes\":3", "\"bytes\":0").replace("[[1,3]]", "[]");
    for bad in [&good[..good.len() - 1], "", &short, &good.replace("\"version\":1", "\"version\":2")] {
        std::fs::write(&end, bad).unwrap();
        assert_refused!(buffers.show("b", NOW).await, BufferError::Damaged { .. });
        assert_refused!(read_all(&buffers, "b").await, BufferError::Damaged { .. });
    }
    // The sizes add up, but the hash chain differs.
    std::fs::write(&end, shorter).unwrap();
    assert_refused!(read_all(&buffers, "b").await, BufferError::Damaged { .. });
    std::fs::write(&end, good).unwrap();
    std::fs::write(storage.file("meta/b"), b"[]").unwrap();
    assert_refused!(buffers.meta("b").await, BufferError::Damaged { .. });
    assert_refused!(buffers.list(None, 10, &Default::default()).await, BufferError::Damaged { .. });
}

async fn acknowledged_chunks_survive_a_crash(storage: TestStorage) {
    let mut writer = TestWriter::new("b");
    {
        let buffers = created(&storage, "b").await;
        buffers.begin("b", WRITER, NOW).await.unwrap();
        writer.put(&buffers, b"one").await.unwrap();
        let (_missing, ahead) = (writer.clone().next(b"two"), {
            let mut s = writer.clone();
            s.next(b"two");
            s.next(b"three")
        });
        buffers.put_chunk("b", WRITER, ahead, NOW).await.unwrap();
    }
    let buffers = storage.open();
    let shown = buffers.show("b", NOW).await.unwrap();
    assert_eq!(
        (shown.state, shown.position),
        (BufferState::Writing { begun_at_ms: NOW, last_activity_ms: NOW }, writer.position)
    );
    assert_eq!(buffers.begin("b", WRITER, NOW).await.unwrap(), writer.position);
    writer.put(&buffers, b"two").await.unwrap();
    writer.next(b"three");
    // The chunk ahead was acknowledged before the crash, so it counts.
    assert_eq!(buffers.position("b").await.unwrap(), writer.position);
    writer.finish(&buffers).await.unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwothree");
}
