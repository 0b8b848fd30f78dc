//! Adopting chunks that a client put with a presigned request: each one is checked first.

use towline_buffers::BufferError;

use crate::presign::{MINUTE, object, send};
use crate::storage::{NOW, OTHER_WRITER, TestStorage, WRITER, assert_refused, created};
use crate::writer::{TestWriter, read_all};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_puts_and_gets_chunks_with_presigned_requests() {
    let storage = TestStorage::s3().await;
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut writer = TestWriter::new("b");
    for data in [&b"one"[..], b"two"] {
        let chunk = writer.next(data);
        let signed = buffers.sign_chunk_put("b", WRITER, chunk.n, 3, MINUTE).await.unwrap();
        assert_refused!(
            buffers.adopt_chunk("b", WRITER, chunk.n, true, NOW).await,
            BufferError::ChunkMissing { .. }
        );
        assert_eq!(send(&signed, object(&chunk)).await.0, 200);
        buffers.adopt_chunk("b", WRITER, chunk.n, chunk.n == 0, NOW).await.unwrap();
        buffers.adopt_chunk("b", WRITER, chunk.n, true, NOW).await.unwrap();
        // A presigned request that has not expired cannot replace the chunk.
        assert_eq!(send(&signed, object(&chunk)).await.0, 412);
    }
    assert_eq!(buffers.position("b").await.unwrap(), writer.position);
    writer.finish(&buffers).await.unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwo");

    let signed = buffers.sign_chunk_get("b", 1, MINUTE).await.unwrap();
    let (status, body) = send(&signed, Vec::new()).await;
    assert_eq!((status, &body[128..]), (200, &b"two"[..]));
    assert_refused!(
        buffers.sign_chunk_put("b", OTHER_WRITER, 2, 3, MINUTE).await,
        BufferError::AlreadyWritten { .. }
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_chunk_is_refused_and_deleted() {
    let storage = TestStorage::s3().await;
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let right = TestWriter::new("b").next(b"one");
    let good = object(&right);
    let flipped = [&good[..good.len() - 1], b"E"].concat();
    let broken = object(&towline_buffers::NewChunk { chain: blake3::hash(b"x"), ..right.clone() });
    let moved = object(&towline_buffers::NewChunk { n: 1, ..right.clone() });
    let file = storage.file("buffers/b/c/00000000");
    for (bad, length) in [(good[..good.len() - 1].to_vec(), 2), (flipped, 3), (broken, 3), (moved, 3)] {
        let signed = buffers.sign_chunk_put("b", WRITER, 0, length, MINUTE).await.unwrap();
        assert_eq!(send(&signed, bad).await.0, 200);
        assert_refused!(
            buffers.adopt_chunk("b", WRITER, 0, true, NOW).await,
            BufferError::BadChunk { n: 0, .. }
        );
        assert!(!file.exists());
    }
    // A wrong clock of the client could hide that the client vanished, or make a live client look vanished.
    let signed = buffers.sign_chunk_put("b", WRITER, 0, 3, MINUTE).await.unwrap();
    assert_eq!(send(&signed, good.clone()).await.0, 200);
    assert_refused!(
        buffers.adopt_chunk("b", WRITER, 0, true, NOW + 60_001).await,
        BufferError::BadChunk { n: 0, .. }
    );
    assert_eq!(send(&signed, good).await.0, 200);
    buffers.adopt_chunk("b", WRITER, 0, true, NOW + 60_000).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_presigned_request_is_for_one_length() {
    let storage = TestStorage::s3().await;
    let buffers = created(&storage, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let whole = object(&TestWriter::new("b").next(b"one"));
    let mut signed = buffers.sign_chunk_put("b", WRITER, 0, 3, MINUTE).await.unwrap();
    let length = signed.headers.iter().position(|(name, _)| name == "content-length").unwrap();
    assert_eq!(signed.headers[length].1, whole.len().to_string());
    // A client that sends more, and says so.
    signed.headers[length].1 = (whole.len() + 1).to_string();
    let (status, _) = send(&signed, [&whole[..], b"!"].concat()).await;
    assert_eq!(status, 403, "the signature covers the length");
    assert!(!storage.file("buffers/b/c/00000000").exists());
    signed.headers[length].1 = whole.len().to_string();
    assert_eq!(send(&signed, whole).await.0, 200);
}
