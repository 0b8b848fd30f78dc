//! Chunks: in order, out of order, repeated, wrong; one writer, two writers, a writer that comes back.

use bytes::Bytes;
use futures::future::join_all;
use towline_buffers::{BufferError, CHUNK_BYTES_MAX, CHUNKS_MAX, NewBuffer, Position, Stored};

use crate::rig::{NOW, OTHER, Place, WRITER, assert_refused, created, on_every_place};
use crate::script::{Script, read_all};

on_every_place!(
    chunks_may_come_in_any_order_and_at_once,
    a_repeated_chunk_is_acknowledged_and_another_content_refused,
    a_chunk_with_a_wrong_hash_is_refused_and_can_be_sent_again,
    a_chunk_that_breaks_the_chain_is_refused,
    a_chain_broken_between_servers_is_told_at_the_end,
    a_chunk_far_ahead_is_refused,
    sizes_of_chunks_have_bounds,
    finish_counts_again,
    of_two_writers_one_is_refused,
    a_writer_goes_on_at_another_server,
    a_chunk_in_pieces_is_one_chunk,
);

async fn begun(place: &Place) -> (towline_buffers::Buffers, Script) {
    let buffers = created(place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    (buffers, Script::new("b"))
}

async fn chunks_may_come_in_any_order_and_at_once(place: Place) {
    let (buffers, mut script) = begun(&place).await;
    let data: Vec<Vec<u8>> = (0..12_u8).map(|n| vec![n; 1000 + usize::from(n)]).collect();
    let mut chunks: Vec<_> = data.iter().map(|data| script.next(data)).collect();
    chunks.reverse();
    let puts = chunks.into_iter().map(|chunk| buffers.put_chunk("b", WRITER, chunk, NOW));
    for stored in join_all(puts).await {
        assert_eq!(stored.unwrap(), Stored::New);
    }
    assert_eq!(buffers.position("b").await.unwrap(), script.position);
    script.finish(&buffers).await.unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), data.concat());
}

async fn a_repeated_chunk_is_acknowledged_and_another_content_refused(place: Place) {
    let (buffers, mut script) = begun(&place).await;
    let first = script.next(b"one");
    assert_eq!(buffers.put_chunk("b", WRITER, first.clone(), NOW).await.unwrap(), Stored::New);
    let servers = [buffers.clone(), place.open()];
    for server in &servers {
        assert_eq!(server.put_chunk("b", WRITER, first.clone(), NOW + 1).await.unwrap(), Stored::Repeat);
        let other = Script::new("b").next(b"eno");
        assert_refused!(
            server.put_chunk("b", WRITER, other, NOW).await,
            BufferError::ChunkConflict { n: 0, .. }
        );
    }
    assert_eq!(buffers.position("b").await.unwrap(), script.position);
    script.put(&buffers, b"two").await.unwrap();
    script.finish(&buffers).await.unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwo");
}

async fn a_chunk_with_a_wrong_hash_is_refused_and_can_be_sent_again(place: Place) {
    let (buffers, mut script) = begun(&place).await;
    let right = script.next(b"one");
    let mut wrong = right.clone();
    wrong.data = vec![Bytes::from_static(b"onE")];
    assert_refused!(buffers.put_chunk("b", WRITER, wrong, NOW).await, BufferError::WrongHash { n: 0, .. });
    assert_eq!(buffers.position("b").await.unwrap(), Position::START);
    assert_eq!(buffers.put_chunk("b", WRITER, right, NOW).await.unwrap(), Stored::New);
}

async fn a_chunk_that_breaks_the_chain_is_refused(place: Place) {
    let (buffers, mut script) = begun(&place).await;
    script.put(&buffers, b"one").await.unwrap();
    let mut wrong = script.clone().next(b"two");
    wrong.chain = blake3::hash(b"elsewhere");
    assert_refused!(
        buffers.put_chunk("b", WRITER, wrong.clone(), NOW).await,
        BufferError::ChainBroken { n: 1, .. }
    );
    // A server that knows nothing of the buffer finds out.
    assert_refused!(
        place.open().put_chunk("b", WRITER, wrong, NOW).await,
        BufferError::ChainBroken { n: 1, .. }
    );
    script.put(&buffers, b"two").await.unwrap();
}

async fn a_chain_broken_between_servers_is_told_at_the_end(place: Place) {
    let (buffers, mut script) = begun(&place).await;
    let (first, mut second) = (script.next(b"one"), script.next(b"two"));
    second.chain = blake3::hash(b"elsewhere");
    // Ahead of what it should continue, so nobody can tell yet.
    place.open().put_chunk("b", WRITER, second, NOW).await.unwrap();
    buffers.put_chunk("b", WRITER, first, NOW).await.unwrap();
    assert_refused!(script.finish(&buffers).await, BufferError::ChainBroken { n: 1, .. });
    assert_refused!(place.open().begin("b", WRITER, NOW).await, BufferError::ChainBroken { n: 1, .. });
    buffers.fail("b", WRITER, "broken", NOW).await.unwrap();
}

async fn a_chunk_far_ahead_is_refused(place: Place) {
    let (buffers, mut script) = begun(&place).await;
    let chunks: Vec<_> = (0..66_u8).map(|n| script.next(&[n])).collect();
    let put = |n: usize| buffers.put_chunk("b", WRITER, chunks[n].clone(), NOW);
    assert_refused!(put(65).await, BufferError::ChunkTooFar { n: 65, next: 0, ahead_max: 64, .. });
    put(64).await.unwrap();
    // The gap is filled through another server, and this one finds out.
    place.open().put_chunk("b", WRITER, chunks[0].clone(), NOW).await.unwrap();
    put(65).await.unwrap();
}

async fn sizes_of_chunks_have_bounds(place: Place) {
    let (buffers, script) = begun(&place).await;
    let empty = script.clone().next(b"");
    assert_refused!(
        buffers.put_chunk("b", WRITER, empty, NOW).await,
        BufferError::ChunkSize { bytes: 0, .. }
    );
    let large = script.clone().next(&vec![0; CHUNK_BYTES_MAX as usize + 1]);
    assert_refused!(buffers.put_chunk("b", WRITER, large, NOW).await, BufferError::ChunkSize { .. });
    let mut many = script.clone().next(b"x");
    many.n = CHUNKS_MAX;
    assert_refused!(buffers.put_chunk("b", WRITER, many, NOW).await, BufferError::TooManyChunks { .. });
    assert_eq!(buffers.position("b").await.unwrap(), Position::START);
}

async fn finish_counts_again(place: Place) {
    let (buffers, mut script) = begun(&place).await;
    let first = script.next(b"one");
    let second = script.next(b"two");
    let third = script.clone().next(b"three");
    let all = script.position;
    buffers.put_chunk("b", WRITER, second, NOW).await.unwrap();
    assert_refused!(script.finish(&buffers).await, BufferError::ChunkMissing { n: 0, .. });
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
    // A chunk more, put through another server.
    place.open().put_chunk("b", WRITER, third, NOW).await.unwrap();
    assert_refused!(script.finish(&buffers).await, BufferError::TotalsDiffer { chunks: 3, .. });
    assert_refused!(read_nothing(&buffers).await, BufferError::NotYet { n: 3, .. });
}

async fn read_nothing(buffers: &towline_buffers::Buffers) -> towline_buffers::Result<Vec<Bytes>> {
    use futures::TryStreamExt;
    buffers.read("b", 0..u64::MAX, std::time::Duration::ZERO, NOW).await?.try_collect().await
}

async fn of_two_writers_one_is_refused(place: Place) {
    let buffers = created(&place, "b").await;
    let (one, two) = tokio::join!(buffers.begin("b", WRITER, NOW), buffers.begin("b", OTHER, NOW));
    let (winner, loser, refused) = match (one, two) {
        (Ok(_), Err(refused)) => (WRITER, OTHER, refused),
        (Err(refused), Ok(_)) => (OTHER, WRITER, refused),
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused, BufferError::BeingWritten { .. }), "{refused}");
    let mut script = Script { writer: winner, ..Script::new("b") };
    script.put(&buffers, b"one").await.unwrap();
    let intruder = script.clone().next(b"two");
    assert_refused!(buffers.put_chunk("b", loser, intruder, NOW).await, BufferError::BeingWritten { .. });
    assert_refused!(buffers.finish("b", loser, script.position, NOW).await, BufferError::BeingWritten { .. });
    assert_refused!(buffers.touch("b", loser, NOW).await, BufferError::BeingWritten { .. });
    script.finish(&buffers).await.unwrap();
}

async fn a_writer_goes_on_at_another_server(place: Place) {
    let (buffers, mut script) = begun(&place).await;
    script.put(&buffers, b"one").await.unwrap();
    script.put(&buffers, b"two").await.unwrap();
    drop(buffers);
    let other = place.open();
    assert_eq!(other.begin("b", WRITER, NOW).await.unwrap(), script.position);
    script.put(&other, b"three").await.unwrap();
    script.finish(&other).await.unwrap();
    assert_eq!(read_all(&place.open(), "b").await.unwrap(), b"onetwothree");
}

async fn a_chunk_in_pieces_is_one_chunk(place: Place) {
    let (buffers, mut script) = begun(&place).await;
    let mut chunk = script.next(b"onetwo");
    chunk.data = vec![Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"two")];
    buffers.put_chunk("b", WRITER, chunk, NOW).await.unwrap();
    script.finish(&buffers).await.unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwo");
}

/// The directory links a file to its name in one step, so even servers that share nothing else cannot both win.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_writers_at_many_servers_one_wins() {
    let place = Place::directory().await;
    created(&place, "b").await;
    let begins = (0..8_u8).map(|n| {
        let server = place.open();
        async move { server.begin("b", towline_buffers::WriterId::from_bytes([n; 16]), NOW).await }
    });
    let won = join_all(begins).await.into_iter().filter(Result::is_ok).count();
    assert_eq!(won, 1);
}

/// For services without conditional puts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_writers_one_is_refused_by_the_process() {
    of_two_writers_one_is_refused(Place::s3_write_once_by_process().await).await;
    let place = Place::s3_write_once_by_process().await;
    place.open().check([1; 16]).await.unwrap();
    a_repeated_chunk_is_acknowledged_and_another_content_refused(place).await;
}

#[tokio::test]
async fn an_id_may_be_as_long_as_it_may() {
    let place = Place::directory().await;
    let id = "x".repeat(towline_buffers::ID_LEN_MAX);
    let buffers = place.open();
    buffers.create(&id, NewBuffer::default(), NOW).await.unwrap();
    buffers.put_blob(&id, Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(buffers.list(None, 10, &Default::default()).await.unwrap().buffers.len(), 1);
}
