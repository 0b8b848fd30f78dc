//! Blobs: offloaded payload fields.

use bytes::Bytes;
use towline_buffers::{BLOB_BYTES_MAX, BufferError};

use crate::storage::{TestStorage, assert_refused, on_every_storage};

on_every_storage!(
    a_blob_is_stored_read_and_deleted,
    a_blob_is_written_once,
    a_blob_above_the_size_limit_is_refused,
    a_decompression_bomb_is_refused,
    a_damaged_blob_is_never_served,
    blobs_are_listed_in_pages,
);

fn noise(len: usize) -> Bytes {
    let mut out = vec![0; len];
    blake3::Hasher::new().finalize_xof().fill(&mut out);
    out.into()
}

async fn a_blob_is_stored_read_and_deleted(storage: TestStorage) {
    let buffers = storage.open();
    let contents =
        [Bytes::new(), Bytes::from_static(b"small"), Bytes::from(vec![b'a'; 300_000]), noise(300_000)];
    for (n, content) in contents.iter().enumerate() {
        let key = format!("item.1.{n}");
        buffers.put_blob(&key, content.clone()).await.unwrap();
        assert_eq!(buffers.get_blob(&key, 300_000).await.unwrap(), content);
    }
    assert!(
        storage.file("fields/item.1.2").metadata().unwrap().len() < 1000,
        "compressible content was stored uncompressed"
    );
    for _ in 0..2 {
        buffers.delete_blob("item.1.1").await.unwrap();
    }
    assert_refused!(buffers.get_blob("item.1.1", 10).await, BufferError::BlobNotFound { .. });
}

async fn a_blob_is_written_once(storage: TestStorage) {
    let buffers = storage.open();
    buffers.put_blob("k", Bytes::from_static(b"one")).await.unwrap();
    buffers.put_blob("k", Bytes::from_static(b"one")).await.unwrap();
    assert_refused!(
        buffers.put_blob("k", Bytes::from_static(b"two")).await,
        BufferError::BlobConflict { .. }
    );
    assert_eq!(buffers.get_blob("k", 3).await.unwrap(), "one");
}

async fn a_blob_above_the_size_limit_is_refused(storage: TestStorage) {
    let buffers = storage.open();
    for (key, content) in [("noise", noise(5000)), ("zeros", Bytes::from(vec![0; 5000]))] {
        buffers.put_blob(key, content.clone()).await.unwrap();
        assert_refused!(buffers.get_blob(key, 4999).await, BufferError::BlobTooLarge { bytes: 5000, .. });
        assert_eq!(buffers.get_blob(key, 5000).await.unwrap(), content);
    }
    let large = Bytes::from(vec![0; BLOB_BYTES_MAX as usize + 1]);
    assert_refused!(buffers.put_blob("large", large).await, BufferError::BlobTooLarge { .. });
}

/// A few bytes decompress to a megabyte, but the header says less.
async fn a_decompression_bomb_is_refused(storage: TestStorage) {
    let buffers = storage.open();
    buffers.put_blob("bomb", Bytes::from(vec![0; 1 << 20])).await.unwrap();
    let file = storage.file("fields/bomb");
    let mut object = std::fs::read(&file).unwrap();
    assert!(object.len() < 1000);
    object[16..24].copy_from_slice(&100_u64.to_le_bytes());
    std::fs::write(&file, object).unwrap();
    assert_refused!(buffers.get_blob("bomb", 1000).await, BufferError::Damaged { .. });
}

async fn a_damaged_blob_is_never_served(storage: TestStorage) {
    let buffers = storage.open();
    for (key, content) in [("noise", noise(400)), ("text", Bytes::from("towline ".repeat(100)))] {
        buffers.put_blob(key, content).await.unwrap();
        let file = storage.file(&format!("fields/{key}"));
        let good = std::fs::read(&file).unwrap();
        for bad in
            [&good[..good.len() - 1], &good[..40], &good[..0], &[&good[..good.len() - 1], b"?"].concat()]
        {
            std::fs::write(&file, bad).unwrap();
            assert_refused!(buffers.get_blob(key, 1000).await, BufferError::Damaged { .. });
        }
    }
}

async fn blobs_are_listed_in_pages(storage: TestStorage) {
    let buffers = storage.open();
    for key in ["b", "a-1", "a", "c"] {
        buffers.put_blob(key, Bytes::from_static(b"content")).await.unwrap();
    }
    let page = buffers.list_blobs(None, 3).await.unwrap();
    assert_eq!(page.blobs.iter().map(|blob| blob.key.as_str()).collect::<Vec<_>>(), ["a", "a-1", "b"]);
    assert!(page.blobs.iter().all(|blob| blob.stored_bytes == 63 && blob.written_at_ms > 1_600_000_000_000));
    let page = buffers.list_blobs(page.next.as_deref(), 3).await.unwrap();
    assert_eq!(page.blobs.iter().map(|blob| blob.key.as_str()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(page.next, None);
}
