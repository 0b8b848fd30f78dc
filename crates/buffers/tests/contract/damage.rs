//! Stored objects that are not what was written: told, never served. And what a crash leaves behind.

use towline_buffers::{BufferError, State};

use crate::rig::{LONG, NOW, Place, WRITER, assert_refused, created, on_every_place};
use crate::script::{Script, read_all, read_range, written};

on_every_place!(
    a_changed_chunk_is_damage,
    a_chunk_that_is_gone_is_damage,
    chunks_that_changed_places_are_damage,
    changed_small_objects_are_damage,
    a_crash_in_the_middle_leaves_what_was_acknowledged,
);

async fn a_changed_chunk_is_damage(place: Place) {
    let buffers = place.open();
    written(&buffers, "b", &[b"one", b"two"]).await;
    let file = place.file("buffers/b/c/00000001");
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
        assert_refused!(buffers.chunk("b", 1, LONG, NOW).await, BufferError::Damaged { .. });
        assert_refused!(read_all(&buffers, "b").await, BufferError::Damaged { id, .. } if id == "b" && n < 100);
    }
    std::fs::write(&file, good).unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwo");
}

async fn a_chunk_that_is_gone_is_damage(place: Place) {
    let buffers = place.open();
    written(&buffers, "b", &[b"one", b"two", b"three"]).await;
    std::fs::remove_file(place.file("buffers/b/c/00000001")).unwrap();
    assert_refused!(read_all(&buffers, "b").await, BufferError::Damaged { .. });
    assert_refused!(buffers.chunk("b", 1, LONG, NOW).await, BufferError::Damaged { .. });
}

async fn chunks_that_changed_places_are_damage(place: Place) {
    let buffers = place.open();
    written(&buffers, "b", &[b"one", b"two", b"six", b"ten"]).await;
    written(&buffers, "other", &[b"eno", b"owt", b"xis", b"net"]).await;
    // Of the same number and size, and whole: only the chain tells, from both sides and at the end.
    for (n, good_until) in [(1, 3), (3, 9)] {
        let (file, good) = (place.file(&format!("buffers/b/c/0000000{n}")), place.file("good"));
        std::fs::rename(&file, &good).unwrap();
        std::fs::copy(place.file(&format!("buffers/other/c/0000000{n}")), &file).unwrap();
        assert_refused!(read_all(&buffers, "b").await, BufferError::Damaged { .. });
        assert_refused!(read_range(&buffers, "b", 0, good_until + 1).await, BufferError::Damaged { .. });
        assert_eq!(
            read_range(&buffers, "b", 0, good_until).await.unwrap(),
            b"onetwosix"[..good_until as usize]
        );
        std::fs::rename(&good, &file).unwrap();
    }
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwosixten");
    std::fs::copy(place.file("buffers/b/c/00000000"), place.file("buffers/b/c/00000001")).unwrap();
    assert_refused!(buffers.chunk("b", 1, LONG, NOW).await, BufferError::Damaged { .. });
}

async fn changed_small_objects_are_damage(place: Place) {
    let buffers = place.open();
    written(&buffers, "b", &[b"one"]).await;
    let end = place.file("buffers/b/end");
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
    // It adds up, and still the chain tells.
    std::fs::write(&end, shorter).unwrap();
    assert_refused!(read_all(&buffers, "b").await, BufferError::Damaged { .. });
    std::fs::write(&end, good).unwrap();
    std::fs::write(place.file("meta/b"), b"[]").unwrap();
    assert_refused!(buffers.meta("b").await, BufferError::Damaged { .. });
    assert_refused!(buffers.list(None, 10, &Default::default()).await, BufferError::Damaged { .. });
}

async fn a_crash_in_the_middle_leaves_what_was_acknowledged(place: Place) {
    let mut script = Script::new("b");
    {
        let buffers = created(&place, "b").await;
        buffers.begin("b", WRITER, NOW).await.unwrap();
        script.put(&buffers, b"one").await.unwrap();
        let (_missing, ahead) = (script.clone().next(b"two"), {
            let mut s = script.clone();
            s.next(b"two");
            s.next(b"three")
        });
        buffers.put_chunk("b", WRITER, ahead, NOW).await.unwrap();
    }
    let buffers = place.open();
    let shown = buffers.show("b", NOW).await.unwrap();
    assert_eq!(
        (shown.state, shown.position),
        (State::Writing { begun_at_ms: NOW, last_sign_ms: NOW }, script.position)
    );
    assert_eq!(buffers.begin("b", WRITER, NOW).await.unwrap(), script.position);
    script.put(&buffers, b"two").await.unwrap();
    script.next(b"three");
    // The one ahead was acknowledged before the crash, and counts.
    assert_eq!(buffers.position("b").await.unwrap(), script.position);
    script.finish(&buffers).await.unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwothree");
}
