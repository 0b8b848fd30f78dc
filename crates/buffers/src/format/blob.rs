//! The format of a blob: a header, then the content, compressed if that saves enough.
//!
//! Numbers are little-endian: magic `TOWFIELD` (8 bytes), version 1 (u32), codec (u32: 0 uncompressed, 1 zstd), length
//! of the content (u64), blake3 of the content (32 bytes), then the stored bytes.

use blake3::Hash;
use bytes::Bytes;

/// The length of a blob's header, in bytes.
pub(crate) const BLOB_HEADER_LEN: usize = 56;

const MAGIC: &[u8; 8] = b"TOWFIELD";
const VERSION: u32 = 1;
const UNCOMPRESSED: u32 = 0;
const ZSTD: u32 = 1;
const ZSTD_LEVEL: i32 = 3;
/// Shorter content is stored uncompressed.
const COMPRESS_BYTES_MIN: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobHeader {
    codec: u32,
    pub length: u64,
    pub hash: Hash,
}

impl BlobHeader {
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let Some(head) = bytes.first_chunk::<BLOB_HEADER_LEN>() else {
            return Err("it is shorter than its header");
        };
        if &head[0..8] != MAGIC {
            return Err("it does not start with the magic of a blob");
        }
        if u32::from_le_bytes(field(head, 8)) != VERSION {
            return Err("a later version of Towline wrote it");
        }
        let codec = u32::from_le_bytes(field(head, 12));
        if !matches!(codec, UNCOMPRESSED | ZSTD) {
            return Err("its codec is unknown");
        }
        let length = u64::from_le_bytes(field(head, 16));
        Ok(Self { codec, length, hash: Hash::from_bytes(field(head, 24)) })
    }
}

/// Encodes content as a blob object.
pub(crate) fn encode(content: &[u8]) -> Vec<u8> {
    let compressed = match content.len() {
        COMPRESS_BYTES_MIN.. => zstd::bulk::compress(content, ZSTD_LEVEL).ok(),
        _ => None,
    };
    // Compression must save an eighth to be worth decompressing at every read.
    let compressed = compressed.filter(|bytes| bytes.len() <= content.len() - content.len() / 8);
    let (codec, stored) = compressed.as_deref().map_or((UNCOMPRESSED, content), |bytes| (ZSTD, bytes));
    let mut out = Vec::with_capacity(BLOB_HEADER_LEN + stored.len());
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&codec.to_le_bytes());
    out.extend_from_slice(&(content.len() as u64).to_le_bytes());
    out.extend_from_slice(blake3::hash(content).as_bytes());
    out.extend_from_slice(stored);
    out
}

/// Decodes the content of a blob object and checks its hash. Never produces more bytes than the header says.
pub(crate) fn decode(header: &BlobHeader, object: &Bytes) -> Result<Bytes, &'static str> {
    let stored = object.slice(BLOB_HEADER_LEN..);
    let content = match header.codec {
        ZSTD => decompress(&stored, header.length)?,
        _ => stored,
    };
    if content.len() as u64 != header.length {
        return Err("its length differs from its header");
    }
    if blake3::hash(&content) != header.hash {
        return Err("the hash of its content is wrong");
    }
    Ok(content)
}

fn decompress(stored: &[u8], length: u64) -> Result<Bytes, &'static str> {
    let length = usize::try_from(length).map_err(|_| "it is too long for this machine's memory")?;
    // Fails before it produces more than `length` bytes.
    zstd::bulk::decompress(stored, length)
        .map(Bytes::from)
        .map_err(|_| "it does not decompress to the length in its header")
}

fn field<const LEN: usize>(head: &[u8; BLOB_HEADER_LEN], at: usize) -> [u8; LEN] {
    std::array::from_fn(|i| head[at + i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..2000),
            (any::<u8>(), 0..5000_usize).prop_map(|(byte, len)| vec![byte; len]),
        ]
    }

    fn open(object: Vec<u8>) -> Result<Bytes, &'static str> {
        let object = Bytes::from(object);
        decode(&BlobHeader::decode(&object)?, &object)
    }

    proptest! {
        #[test]
        fn a_blob_survives_encoding_and_decoding(content in content()) {
            prop_assert_eq!(open(encode(&content)).unwrap(), content);
        }

        #[test]
        fn a_changed_byte_never_gives_different_content(content in content(), at in any::<prop::sample::Index>(), by in 1..=255_u8) {
            let mut object = encode(&content);
            let at = at.index(object.len());
            object[at] ^= by;
            // A flip in an unused bit of zstd's framing may go unnoticed, but then the content is unchanged.
            if let Ok(opened) = open(object) {
                prop_assert_eq!(opened, content);
            }
        }
    }

    #[test]
    fn content_is_compressed_only_if_that_helps() {
        assert!(encode(&[7; 4096]).len() < 200);
        let mut noise = [0; 4096];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        assert_eq!(encode(&noise).len(), BLOB_HEADER_LEN + 4096);
        assert_eq!(encode(&[7; 100]).len(), BLOB_HEADER_LEN + 100);
    }

    /// The object holds a megabyte of zeros in a few bytes, but its header says 1 byte or 4 bytes.
    #[test]
    fn a_decompression_bomb_is_refused() {
        for said in [1_u64, 4] {
            let mut object = encode(&vec![0; 1 << 20]);
            object[16..24].copy_from_slice(&said.to_le_bytes());
            assert_eq!(open(object), Err("it does not decompress to the length in its header"));
        }
    }

    #[test]
    fn the_blob_format_is_stable() {
        let object = encode(b"towline");
        let head: String = object[..24].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(head, "544f574649454c4401000000000000000700000000000000");
        assert_eq!(&object[24..56], blake3::hash(b"towline").as_bytes());
        assert_eq!(&object[56..], b"towline");
    }
}
