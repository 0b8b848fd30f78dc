//! Readers: before the writer, with it, after it; whole buffers and ranges.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use proptest::prelude::*;
use towline_buffers::{BufferError, Next};

use crate::rig::{LONG, NOW, Place, WRITER, assert_refused, created, on_every_place};
use crate::script::{Script, read_all, read_range, written};

on_every_place!(
    a_reader_that_comes_first_waits,
    a_reader_sees_each_chunk_as_soon_as_it_is_acknowledged,
    a_reader_in_the_same_process_is_woken,
    a_wait_of_nothing_gets_what_is_there,
    a_read_that_waited_enough_says_so,
    ranges_are_cut_out_of_chunks,
    a_range_of_a_buffer_being_written_begins_where_it_should,
    a_range_past_the_end_is_refused,
    a_reader_close_behind_its_writer_needs_no_storage,
);

async fn a_reader_that_comes_first_waits(place: Place) {
    let buffers = created(&place, "b").await;
    // One in the writer's process, one elsewhere.
    let readers = [buffers.clone(), place.open()]
        .map(|reader| tokio::spawn(async move { read_all(&reader, "b").await }));
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut script = Script::new("b");
    for n in 0..5_u8 {
        script.put(&buffers, &[n; 3]).await.unwrap();
    }
    script.finish(&buffers).await.unwrap();
    for reader in readers {
        assert_eq!(reader.await.unwrap().unwrap(), [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]);
    }
}

async fn a_reader_close_behind_its_writer_needs_no_storage(place: Place) {
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut script = Script::new("b");
    // Nobody reads yet, so this one is not kept.
    script.put(&buffers, b"one").await.unwrap();
    assert!(matches!(buffers.chunk("b", 1, Duration::ZERO, NOW).await.unwrap(), Next::NotYet));
    script.put(&buffers, b"two").await.unwrap();
    for n in 0..2 {
        std::fs::write(place.file(&format!("buffers/b/c/0000000{n}")), b"damaged").unwrap();
    }
    assert_refused!(buffers.chunk("b", 0, LONG, NOW).await, BufferError::Damaged { .. });
    let Next::Chunk(chunk) = buffers.chunk("b", 1, LONG, NOW).await.unwrap() else { panic!("no chunk") };
    assert_eq!(chunk.data.concat(), b"two");
    // Others, and whoever comes later, see what is stored.
    assert_refused!(place.open().chunk("b", 1, LONG, NOW).await, BufferError::Damaged { .. });
    assert_refused!(buffers.chunk("b", 1, LONG, NOW + 60_000).await, BufferError::Damaged { .. });
    buffers.delete("b").await.unwrap();
    assert_refused!(buffers.chunk("b", 1, LONG, NOW).await, BufferError::NotFound { .. });
}

async fn a_reader_sees_each_chunk_as_soon_as_it_is_acknowledged(place: Place) {
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut script = Script::new("b");
    let mut streams = Vec::new();
    for reader in [buffers.clone(), place.open()] {
        streams.push(reader.read("b", 0..u64::MAX, LONG, NOW).await.unwrap());
    }
    for n in 0..4_u8 {
        script.put(&buffers, &[n]).await.unwrap();
        for stream in &mut streams {
            // The writer goes on only after the reader got this one.
            assert_eq!(stream.next().await.unwrap().unwrap(), [n][..]);
        }
    }
    script.finish(&buffers).await.unwrap();
    for stream in &mut streams {
        assert!(stream.next().await.is_none());
    }
}

/// Whoever has to look again by itself does so after hours.
async fn a_reader_in_the_same_process_is_woken(place: Place) {
    let buffers = place.open_with(|options| {
        options.poll_first = Duration::from_secs(36_000);
        options.poll_max = Duration::from_secs(36_000);
    });
    let wait = |id: &'static str, n| {
        let buffers = buffers.clone();
        let waiting = tokio::spawn(async move { buffers.chunk(id, n, LONG, NOW).await });
        async move { waiting.await.unwrap() }
    };
    for id in ["finished", "failed", "deleted"] {
        buffers.create(id, Default::default(), NOW).await.unwrap();
        let first = wait(id, 0);
        buffers.begin(id, WRITER, NOW).await.unwrap();
        let mut script = Script::new(id);
        script.put(&buffers, b"one").await.unwrap();
        assert!(matches!(first.await.unwrap(), Next::Chunk(_)));
        let second = wait(id, 1);
        match id {
            "finished" => {
                script.finish(&buffers).await.unwrap();
                assert!(matches!(second.await.unwrap(), Next::End(_)));
            }
            "failed" => {
                buffers.fail(id, WRITER, "no", NOW).await.unwrap();
                assert_refused!(second.await, BufferError::Failed { .. });
            }
            _ => {
                buffers.delete(id).await.unwrap();
                assert_refused!(second.await, BufferError::NotFound { .. });
            }
        }
    }
}

async fn a_wait_of_nothing_gets_what_is_there(place: Place) {
    let buffers = created(&place, "b").await;
    assert!(matches!(buffers.chunk("b", 0, Duration::ZERO, NOW).await.unwrap(), Next::NotYet));
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut script = Script::new("b");
    script.put(&buffers, b"one").await.unwrap();
    let Next::Chunk(chunk) = buffers.chunk("b", 0, Duration::ZERO, NOW).await.unwrap() else {
        panic!("no chunk")
    };
    assert_eq!((chunk.header.n, chunk.header.length, chunk.header.chain), (0, 3, script.position.chain));
    assert_eq!(chunk.data.concat(), b"one");
    assert!(matches!(buffers.chunk("b", 1, Duration::ZERO, NOW).await.unwrap(), Next::NotYet));
    script.finish(&buffers).await.unwrap();
    for n in [1, 2, u32::MAX] {
        let end = buffers.chunk("b", n, Duration::ZERO, NOW).await.unwrap();
        assert!(matches!(end, Next::End(totals) if totals == script.position), "{end:?}");
    }
}

async fn a_read_that_waited_enough_says_so(place: Place) {
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    Script::new("b").put(&buffers, b"one").await.unwrap();
    let stream = buffers.read("b", 0..u64::MAX, Duration::from_millis(30), NOW).await.unwrap();
    let mut pieces = stream.collect::<Vec<_>>().await;
    assert_refused!(pieces.pop().unwrap(), BufferError::NotYet { n: 1, .. });
    assert_eq!(pieces.pop().unwrap().unwrap(), "one");
}

async fn ranges_are_cut_out_of_chunks(place: Place) {
    let buffers = place.open();
    written(&buffers, "b", &[b"abc", b"d", b"efgh", b"i"]).await;
    for (start, end, expected) in [
        (0, 9, "abcdefghi"),
        (0, u64::MAX, "abcdefghi"),
        (2, 5, "cde"),
        (3, 4, "d"),
        (8, 9, "i"),
        (9, 9, ""),
        (9, u64::MAX, ""),
        (4, 4, ""),
        (5, 2, ""),
    ] {
        let read = read_range(&buffers, "b", start, end).await.unwrap();
        assert_eq!(read, expected.as_bytes(), "{start}..{end}");
    }
}

async fn a_range_of_a_buffer_being_written_begins_where_it_should(place: Place) {
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut script = Script::new("b");
    script.put(&buffers, b"abc").await.unwrap();
    script.put(&buffers, b"d").await.unwrap();
    let within = buffers.read("b", 2..5, LONG, NOW).await.unwrap();
    let beyond = buffers.read("b", 5..7, LONG, NOW).await.unwrap();
    script.put(&buffers, b"efgh").await.unwrap();
    // Both have all they asked for, though the buffer has no end yet.
    assert_eq!(within.try_collect::<Vec<Bytes>>().await.unwrap().concat(), b"cde");
    assert_eq!(beyond.try_collect::<Vec<Bytes>>().await.unwrap().concat(), b"fg");
}

async fn a_range_past_the_end_is_refused(place: Place) {
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut script = Script::new("b");
    script.put(&buffers, b"abc").await.unwrap();
    let early = buffers.read("b", 4..9, LONG, NOW).await.unwrap();
    script.finish(&buffers).await.unwrap();
    assert_refused!(
        early.try_collect::<Vec<_>>().await,
        BufferError::RangeOutside { start: 4, bytes: 3, .. }
    );
    assert_refused!(
        read_range(&buffers, "b", 4, 9).await,
        BufferError::RangeOutside { start: 4, bytes: 3, .. }
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_range_is_what_a_plain_array_gives(
        sizes in proptest::collection::vec(1..40_usize, 1..12),
        ranges in proptest::collection::vec((0..500_u64, 0..500_u64), 8),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let place = Place::directory().await;
            let buffers = place.open();
            let model: Vec<u8> = (0..sizes.iter().sum()).map(|n: usize| n as u8).collect();
            let mut rest = &model[..];
            let chunks: Vec<&[u8]> = sizes.iter().map(|&size| rest.split_off(..size).unwrap()).collect();
            written(&buffers, "b", &chunks).await;
            for (start, end) in ranges {
                let read = read_range(&buffers, "b", start, end).await;
                if start > model.len() as u64 {
                    assert_refused!(read, BufferError::RangeOutside { .. });
                    continue;
                }
                let end = end.clamp(start, (model.len() as u64).max(start));
                assert_eq!(read.unwrap(), model[start as usize..end as usize], "{start}..{end}");
            }
        });
    }
}
