//! What clients put by themselves is checked before it counts.

use towline_buffers::BufferError;

use crate::presigned::{MINUTE, object, send};
use crate::rig::{NOW, OTHER, Place, WRITER, assert_refused, created};
use crate::script::{Script, read_all};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_moves_the_bytes_itself() {
    let place = Place::s3().await;
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let mut script = Script::new("b");
    for data in [&b"one"[..], b"two"] {
        let chunk = script.next(data);
        let signed = buffers.sign_chunk_put("b", WRITER, chunk.n, MINUTE).await.unwrap();
        assert_refused!(
            buffers.adopt_chunk("b", WRITER, chunk.n, true, NOW).await,
            BufferError::ChunkMissing { .. }
        );
        assert_eq!(send(&signed, object(&chunk)).await.0, 200);
        buffers.adopt_chunk("b", WRITER, chunk.n, chunk.n == 0, NOW).await.unwrap();
        buffers.adopt_chunk("b", WRITER, chunk.n, true, NOW).await.unwrap();
        // A request that is still good replaces nothing.
        assert_eq!(send(&signed, b"something else".to_vec()).await.0, 412);
    }
    assert_eq!(buffers.position("b").await.unwrap(), script.position);
    script.finish(&buffers).await.unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), b"onetwo");

    let signed = buffers.sign_chunk_get("b", 1, MINUTE).await.unwrap();
    let (status, body) = send(&signed, Vec::new()).await;
    assert_eq!((status, &body[128..]), (200, &b"two"[..]));
    assert_refused!(buffers.sign_chunk_put("b", OTHER, 2, MINUTE).await, BufferError::AlreadyWritten { .. });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_refused_and_removed() {
    let place = Place::s3().await;
    let buffers = created(&place, "b").await;
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let right = Script::new("b").next(b"one");
    let good = object(&right);
    let flipped = [&good[..good.len() - 1], b"E"].concat();
    let broken = object(&towline_buffers::NewChunk { chain: blake3::hash(b"x"), ..right.clone() });
    let moved = object(&towline_buffers::NewChunk { n: 1, ..right.clone() });
    let file = place.file("buffers/b/c/00000000");
    for bad in [b"short".to_vec(), good[..good.len() - 1].to_vec(), flipped, broken, moved] {
        let signed = buffers.sign_chunk_put("b", WRITER, 0, MINUTE).await.unwrap();
        assert_eq!(send(&signed, bad).await.0, 200);
        assert_refused!(
            buffers.adopt_chunk("b", WRITER, 0, true, NOW).await,
            BufferError::BadChunk { n: 0, .. }
        );
        assert!(!file.exists());
    }
    // A client whose clock is far off would hide that it vanished, or seem to have.
    let signed = buffers.sign_chunk_put("b", WRITER, 0, MINUTE).await.unwrap();
    assert_eq!(send(&signed, good.clone()).await.0, 200);
    assert_refused!(
        buffers.adopt_chunk("b", WRITER, 0, true, NOW + 60_001).await,
        BufferError::BadChunk { n: 0, .. }
    );
    assert_eq!(send(&signed, good).await.0, 200);
    buffers.adopt_chunk("b", WRITER, 0, true, NOW + 60_000).await.unwrap();
}
