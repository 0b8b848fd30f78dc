//! Writing chunks: in order, out of order, repeated and wrong ones, with one or two writers, on one or two servers.

use bytes::Bytes;
use futures::future::join_all;
use towline_buffers::{BufferError, CHUNK_BYTES_MAX, CHUNKS_MAX, NewBuffer, Position, PutOutcome};

use crate::storage::{NOW, OTHER_WRITER, TestStorage, WRITER, assert_refused, created, on_every_storage};
use crate::writer::{TestWriter, read_all};

on_every_storage!(
    chunks_may_come_in_any_order_and_in_parallel,
    a_repeated_chunk_succeeds_and_different_content_is_refused,
    a_chunk_with_a_wrong_hash_is_refused_and_can_be_sent_again,
    a_chunk_that_breaks_the_chain_is_refused,
    finish_reports_a_chain_broken_across_servers,
    a_chunk_too_far_ahead_is_refused,
    chunks_outside_the_size_limits_are_refused,
    finish_checks_the_totals,
    the_second_writer_is_refused,
    a_writer_can_continue_on_another_server,
    a_chunk_may_come_in_pieces,
);

async fn begun(storage: &TestStorage) -> (towline_buffers::Buffers, TestWriter) {
    let buffers = created(storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    (buffers, TestWriter::new("b"))
}

async fn chunks_may_come_in_any_order_and_in_parallel(storage: TestStorage) {
    let (buffers, mut writer) = begun(&storage).await;
    let data: Vec<Vec<u8>> = (0..12_u8).map(|n| vec![n; 1000 + usize::from(n)]).collect();
    let mut chunks: Vec<_> = data.iter().map(|data| writer.next(data)).collect();
    chunks.reverse();
    let puts = chunks.into_iter().map(|chunk| buffers.put_chunk("b", WRITER, chunk, NOW));
    for stored in join_all(puts).await {
        assert_eq!(stored.unwrap(), PutOutcome::New);
    }
    assert_eq!(buffers.position("b").await.unwrap(), writer.position);
    writer.finish(&buffers).await.unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), data.concat());
}

async fn a_repeated_chunk_succeeds_and_different_content_is_refused(storage: TestStorage) {
    let (buffers, mut writer) = begun(&storage).await;
    let first = writer.next(b"one");
    assert_eq!(buffers.put_chunk("b", WRITER, first.clone(), NOW).await.unwrap(), PutOutcome::New);
    let servers = [buffers.clone(), storage.open()];
    for server in &servers {
        assert_eq!(server.put_chunk("b", WRITER, first.clone(), NOW + 1).await.unwrap(), PutOutcome::Repeat);
        let other = TestWriter::new("b").next(b"eno");
        assert_refused!(
            server.put_chunk("b", WRITER, other, NOW).await,
            BufferError::ChunkConflict { n: 0, .. }
        );
    }
    assert_eq!(buffers.position("b").await.unwrap(), writer.position);
    writer.put(&buffers, b"two").await.unwrap();
    writer.finish(&buffers).await.unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwo");
}

async fn a_chunk_with_a_wrong_hash_is_refused_and_can_be_sent_again(storage: TestStorage) {
    let (buffers, mut writer) = begun(&storage).await;
    let right = writer.next(b"one");
    let mut wrong = right.clone();
    wrong.data = vec![Bytes::from_static(b"onE")];
    assert_refused!(buffers.put_chunk("b", WRITER, wrong, NOW).await, BufferError::WrongHash { n: 0, .. });
    assert_eq!(buffers.position("b").await.unwrap(), Position::START);
    assert_eq!(buffers.put_chunk("b", WRITER, right, NOW).await.unwrap(), PutOutcome::New);
}

async fn a_chunk_that_breaks_the_chain_is_refused(storage: TestStorage) {
    let (buffers, mut writer) = begun(&storage).await;
    writer.put(&buffers, b"one").await.unwrap();
    let mut wrong = writer.clone().next(b"two");
    wrong.chain = blake3::hash(b"elsewhere");
    assert_refused!(
        buffers.put_chunk("b", WRITER, wrong.clone(), NOW).await,
        BufferError::ChainBroken { n: 1, .. }
    );
    // A server that has no cached progress detects it too.
    assert_refused!(
        storage.open().put_chunk("b", WRITER, wrong, NOW).await,
        BufferError::ChainBroken { n: 1, .. }
    );
    writer.put(&buffers, b"two").await.unwrap();
}

async fn finish_reports_a_chain_broken_across_servers(storage: TestStorage) {
    let (buffers, mut writer) = begun(&storage).await;
    let (first, mut second) = (writer.next(b"one"), writer.next(b"two"));
    second.chain = blake3::hash(b"elsewhere");
    // The chunk before it is still missing, so no server can check the chain yet.
    storage.open().put_chunk("b", WRITER, second, NOW).await.unwrap();
    buffers.put_chunk("b", WRITER, first, NOW).await.unwrap();
    assert_refused!(writer.finish(&buffers).await, BufferError::ChainBroken { n: 1, .. });
    assert_refused!(storage.open().begin("b", WRITER, NOW).await, BufferError::ChainBroken { n: 1, .. });
    buffers.fail("b", WRITER, "broken", NOW).await.unwrap();
}

async fn a_chunk_too_far_ahead_is_refused(storage: TestStorage) {
    let (buffers, mut writer) = begun(&storage).await;
    let chunks: Vec<_> = (0..66_u8).map(|n| writer.next(&[n])).collect();
    let put = |n: usize| buffers.put_chunk("b", WRITER, chunks[n].clone(), NOW);
    assert_refused!(put(65).await, BufferError::ChunkTooFar { n: 65, next: 0, ahead_max: 64, .. });
    put(64).await.unwrap();
    // The writer sends the missing chunk through another server, and this server finds it.
    storage.open().put_chunk("b", WRITER, chunks[0].clone(), NOW).await.unwrap();
    put(65).await.unwrap();
}

async fn chunks_outside_the_size_limits_are_refused(storage: TestStorage) {
    let (buffers, writer) = begun(&storage).await;
    let empty = writer.clone().next(b"");
    assert_refused!(
        buffers.put_chunk("b", WRITER, empty, NOW).await,
        BufferError::ChunkSize { bytes: 0, .. }
    );
    let large = writer.clone().next(&vec![0; CHUNK_BYTES_MAX as usize + 1]);
    assert_refused!(buffers.put_chunk("b", WRITER, large, NOW).await, BufferError::ChunkSize { .. });
    let mut many = writer.clone().next(b"x");
    many.n = CHUNKS_MAX;
    assert_refused!(buffers.put_chunk("b", WRITER, many, NOW).await, BufferError::TooManyChunks { .. });
    assert_eq!(buffers.position("b").await.unwrap(), Position::START);
}

async fn finish_checks_the_totals(storage: TestStorage) {
    let (buffers, mut writer) = begun(&storage).await;
    let first = writer.next(b"one");
    let second = writer.next(b"two");
    let third = writer.clone().next(b"three");
    let all = writer.position;
    buffers.put_chunk("b", WRITER, second, NOW).await.unwrap();
    assert_refused!(writer.finish(&buffers).await, BufferError::ChunkMissing { n: 0, .. });
    buffers.put_chunk("b", WRITER, first, NOW).await.unwrap();
    let wrong = |change: fn(&mut Position)| {
        let mut totals = all;
        change(&mut totals);
        buffers.finish("b", WRITER, totals, NOW)
    };
    assert_refused!(wrong(|it| it.chunks = 3).await, BufferError::ChunkMissing { n: 2, .. });
    assert_refused!(wrong(|it| it.chunks = 1).await, BufferError::TotalsDiffer { chunks: 2, bytes: 6, .. });
    assert_refused!(wrong(|it| it.bytes = 5).await, BufferError::TotalsDiffer { .. });
    assert_refused!(wrong(|it| it.chain = blake3::hash(b"x")).await, BufferError::TotalsDiffer { .. });
    // The writer puts one more chunk through another server.
    storage.open().put_chunk("b", WRITER, third, NOW).await.unwrap();
    assert_refused!(writer.finish(&buffers).await, BufferError::TotalsDiffer { chunks: 3, .. });
    assert_refused!(read_without_waiting(&buffers).await, BufferError::NotYet { n: 3, .. });
}

async fn read_without_waiting(buffers: &towline_buffers::Buffers) -> towline_buffers::Result<Vec<Bytes>> {
    use futures::TryStreamExt;
    buffers.read("b", 0..u64::MAX, std::time::Duration::ZERO, NOW).await?.try_collect().await
}

async fn the_second_writer_is_refused(storage: TestStorage) {
    let buffers = created(&storage, "b").await;
    let (one, two) = tokio::join!(buffers.begin("b", WRITER, NOW), buffers.begin("b", OTHER_WRITER, NOW));
    let (winner, loser, refused) = match (one, two) {
        (Ok(_), Err(refused)) => (WRITER, OTHER_WRITER, refused),
        (Err(refused), Ok(_)) => (OTHER_WRITER, WRITER, refused),
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused, BufferError::BeingWritten { .. }), "{refused}");
    let mut writer = TestWriter { writer: winner, ..TestWriter::new("b") };
    writer.put(&buffers, b"one").await.unwrap();
    let intruder = writer.clone().next(b"two");
    assert_refused!(buffers.put_chunk("b", loser, intruder, NOW).await, BufferError::BeingWritten { .. });
    assert_refused!(buffers.finish("b", loser, writer.position, NOW).await, BufferError::BeingWritten { .. });
    assert_refused!(buffers.touch("b", loser, NOW).await, BufferError::BeingWritten { .. });
    writer.finish(&buffers).await.unwrap();
}

async fn a_writer_can_continue_on_another_server(storage: TestStorage) {
    let (buffers, mut writer) = begun(&storage).await;
    writer.put(&buffers, b"one").await.unwrap();
    writer.put(&buffers, b"two").await.unwrap();
    drop(buffers);
    let other = storage.open();
    assert_eq!(other.begin("b", WRITER, NOW).await.unwrap(), writer.position);
    writer.put(&other, b"three").await.unwrap();
    writer.finish(&other).await.unwrap();
    assert_eq!(read_all(&storage.open(), "b").await.unwrap(), b"onetwothree");
}

async fn a_chunk_may_come_in_pieces(storage: TestStorage) {
    let (buffers, mut writer) = begun(&storage).await;
    let mut chunk = writer.next(b"onetwo");
    chunk.data = vec![Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"two")];
    buffers.put_chunk("b", WRITER, chunk, NOW).await.unwrap();
    writer.finish(&buffers).await.unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwo");
}

/// The directory links a file to its name atomically, so two servers cannot both create it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_writer_wins_across_many_servers() {
    let storage = TestStorage::directory().await;
    created(&storage, "b").await;
    let begins = (0..8_u8).map(|n| {
        let server = storage.open();
        async move { server.begin("b", towline_buffers::WriterId::from_bytes([n; 16]), NOW).await }
    });
    let won = join_all(begins).await.into_iter().filter(Result::is_ok).count();
    assert_eq!(won, 1);
}

/// This process, not the service, refuses to write an object twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_writer_is_refused_without_conditional_puts() {
    the_second_writer_is_refused(TestStorage::s3_write_once_by_process().await).await;
    let storage = TestStorage::s3_write_once_by_process().await;
    storage.open().check([1; 16]).await.unwrap();
    a_repeated_chunk_succeeds_and_different_content_is_refused(storage).await;
}

#[tokio::test]
async fn the_longest_id_works() {
    let storage = TestStorage::directory().await;
    let id = "x".repeat(towline_buffers::ID_LEN_MAX);
    let buffers = storage.open();
    buffers.create(&id, NewBuffer::default(), NOW).await.unwrap();
    buffers.put_blob(&id, Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(buffers.list(None, 10, &Default::default()).await.unwrap().buffers.len(), 1);
}
