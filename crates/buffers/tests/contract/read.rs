//! Reading whole buffers and ranges, before, during and after writing.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use proptest::prelude::*;
use towline_buffers::{BufferError, ChunkLookup};

use crate::storage::{LONG_WAIT, NOW, TestStorage, WRITER, assert_refused, created, on_every_storage};
use crate::writer::{TestWriter, read_all, read_range, written};

on_every_storage!(
    a_reader_waits_for_the_writer_to_begin,
    a_reader_sees_each_chunk_as_soon_as_it_is_acknowledged,
    a_reader_in_the_same_process_is_woken,
    a_reader_that_does_not_wait_gets_stored_chunks,
    a_read_reports_that_its_wait_is_over,
    ranges_may_begin_and_end_inside_chunks,
    a_range_can_be_read_during_writing,
    a_range_past_the_end_is_refused,
    a_reader_close_behind_the_writer_reads_from_the_cache,
);

async fn a_reader_waits_for_the_writer_to_begin(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    // One reader is in the writer's process, the other on another server.
    let readers = [buffers.clone(), storage.open()]
        .map(|reader| tokio::spawn(async move { read_all(&reader, "b").await }));
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new("b");
    for n in 0..5_u8 {
        writer.put(&buffers, &[n; 3]).await.unwrap();
    }
    writer.finish(&buffers).await.unwrap();
    for reader in readers {
        assert_eq!(reader.await.unwrap().unwrap(), [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]);
    }
}

async fn a_reader_close_behind_the_writer_reads_from_the_cache(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new("b");
    // No reader has asked yet, so this chunk is not cached.
    writer.put(&buffers, b"one").await.unwrap();
    assert!(matches!(buffers.chunk("b", 1, Duration::ZERO, NOW).await.unwrap(), ChunkLookup::NotYet));
    writer.put(&buffers, b"two").await.unwrap();
    for n in 0..2 {
        std::fs::write(storage.file(&format!("buffers/b/c/0000000{n}")), b"damaged").unwrap();
    }
    assert_refused!(buffers.chunk("b", 0, LONG_WAIT, NOW).await, BufferError::Damaged { .. });
    let ChunkLookup::Chunk(chunk) = buffers.chunk("b", 1, LONG_WAIT, NOW).await.unwrap() else {
        panic!("no chunk")
    };
    assert_eq!(chunk.data.concat(), b"two");
    // Another server and a later reader read from the storage.
    assert_refused!(storage.open().chunk("b", 1, LONG_WAIT, NOW).await, BufferError::Damaged { .. });
    assert_refused!(buffers.chunk("b", 1, LONG_WAIT, NOW + 60_000).await, BufferError::Damaged { .. });
    buffers.delete("b").await.unwrap();
    assert_refused!(buffers.chunk("b", 1, LONG_WAIT, NOW).await, BufferError::NotFound { .. });
}

async fn a_reader_sees_each_chunk_as_soon_as_it_is_acknowledged(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new("b");
    let mut streams = Vec::new();
    for reader in [buffers.clone(), storage.open()] {
        streams.push(reader.read("b", 0..u64::MAX, LONG_WAIT, NOW).await.unwrap());
    }
    for n in 0..4_u8 {
        writer.put(&buffers, &[n]).await.unwrap();
        for stream in &mut streams {
            // The writer sends the next chunk only after the reader got this one.
            assert_eq!(stream.next().await.unwrap().unwrap(), [n][..]);
        }
    }
    writer.finish(&buffers).await.unwrap();
    for stream in &mut streams {
        assert!(stream.next().await.is_none());
    }
}

/// The poll interval is ten hours, so only a wake-up can make these readers return.
async fn a_reader_in_the_same_process_is_woken(storage: TestStorage) {
    let buffers = storage.open_with(|options| {
        options.poll_first = Duration::from_secs(36_000);
        options.poll_max = Duration::from_secs(36_000);
    });
    let wait = |id: &'static str, n| {
        let buffers = buffers.clone();
        let waiting = tokio::spawn(async move { buffers.chunk(id, n, LONG_WAIT, NOW).await });
        async move { waiting.await.unwrap() }
    };
    for id in ["finished", "failed", "deleted"] {
        buffers.create(id, Default::default(), NOW).await.unwrap();
        let first = wait(id, 0);
        buffers.begin(id, WRITER, NOW).await.unwrap();
        let mut writer = TestWriter::new(id);
        writer.put(&buffers, b"one").await.unwrap();
        assert!(matches!(first.await.unwrap(), ChunkLookup::Chunk(_)));
        let second = wait(id, 1);
        match id {
            "finished" => {
                writer.finish(&buffers).await.unwrap();
                assert!(matches!(second.await.unwrap(), ChunkLookup::End(_)));
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

async fn a_reader_that_does_not_wait_gets_stored_chunks(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    assert!(matches!(buffers.chunk("b", 0, Duration::ZERO, NOW).await.unwrap(), ChunkLookup::NotYet));
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new("b");
    writer.put(&buffers, b"one").await.unwrap();
    let ChunkLookup::Chunk(chunk) = buffers.chunk("b", 0, Duration::ZERO, NOW).await.unwrap() else {
        panic!("no chunk")
    };
    assert_eq!((chunk.header.n, chunk.header.length, chunk.header.chain), (0, 3, writer.position.chain));
    assert_eq!(chunk.data.concat(), b"one");
    assert!(matches!(buffers.chunk("b", 1, Duration::ZERO, NOW).await.unwrap(), ChunkLookup::NotYet));
    writer.finish(&buffers).await.unwrap();
    for n in [1, 2, u32::MAX] {
        let end = buffers.chunk("b", n, Duration::ZERO, NOW).await.unwrap();
        assert!(matches!(end, ChunkLookup::End(totals) if totals == writer.position), "{end:?}");
    }
}

async fn a_read_reports_that_its_wait_is_over(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    TestWriter::new("b").put(&buffers, b"one").await.unwrap();
    let stream = buffers.read("b", 0..u64::MAX, Duration::from_millis(30), NOW).await.unwrap();
    let mut pieces = stream.collect::<Vec<_>>().await;
    assert_refused!(pieces.pop().unwrap(), BufferError::NotYet { n: 1, .. });
    assert_eq!(pieces.pop().unwrap().unwrap(), "one");
}

async fn ranges_may_begin_and_end_inside_chunks(storage: TestStorage) {
    let buffers = storage.open();
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

async fn a_range_can_be_read_during_writing(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new("b");
    writer.put(&buffers, b"abc").await.unwrap();
    writer.put(&buffers, b"d").await.unwrap();
    let within = buffers.read("b", 2..5, LONG_WAIT, NOW).await.unwrap();
    let beyond = buffers.read("b", 5..7, LONG_WAIT, NOW).await.unwrap();
    writer.put(&buffers, b"efgh").await.unwrap();
    // Both ranges are complete although the buffer has not ended.
    assert_eq!(within.try_collect::<Vec<Bytes>>().await.unwrap().concat(), b"cde");
    assert_eq!(beyond.try_collect::<Vec<Bytes>>().await.unwrap().concat(), b"fg");
}

async fn a_range_past_the_end_is_refused(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new("b");
    writer.put(&buffers, b"abc").await.unwrap();
    let early = buffers.read("b", 4..9, LONG_WAIT, NOW).await.unwrap();
    writer.finish(&buffers).await.unwrap();
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
    fn every_range_equals_the_slice_of_an_array(
        sizes in proptest::collection::vec(1..40_usize, 1..12),
        ranges in proptest::collection::vec((0..500_u64, 0..500_u64), 8),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let storage = TestStorage::directory().await;
            let buffers = storage.open();
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
