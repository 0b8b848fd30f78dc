//! How a blob is stored: a header, then its bytes, compressed if that helps.
//!
//! Numbers little-endian: magic `TOWFIELD` (8), version 1 (u32), codec (u32: 0 as it is, 1 zstd), length of the
//! content (u64), blake3 of the content (32), then the stored bytes.

use blake3::Hash;
use bytes::Bytes;

/// Bytes before the stored bytes.
pub(crate) const BLOB_HEADER_LEN: usize = 56;

const MAGIC: &[u8; 8] = b"TOWFIELD";
const VERSION: u32 = 1;
const AS_IT_IS: u32 = 0;
const ZSTD: u32 = 1;
const ZSTD_LEVEL: i32 = 3;
/// Less is not worth the trouble.
const COMPRESS_FROM: usize = 256;

/// What the header of a blob says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobHeader {
    codec: u32,
    pub length: u64,
    pub hash: Hash,
}

impl BlobHeader {
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let Some(head) = bytes.first_chunk::<BLOB_HEADER_LEN>() else {
            return Err("it ends within its header");
        };
        if &head[0..8] != MAGIC {
            return Err("it does not begin as a blob does");
        }
        if u32::from_le_bytes(field(head, 8)) != VERSION {
            return Err("it is of a later version of Towline");
        }
        let codec = u32::from_le_bytes(field(head, 12));
        if !matches!(codec, AS_IT_IS | ZSTD) {
            return Err("it is packed in a way that is not known");
        }
        let length = u64::from_le_bytes(field(head, 16));
        Ok(Self { codec, length, hash: Hash::from_bytes(field(head, 24)) })
    }
}

/// The object for a content.
pub(crate) fn pack(content: &[u8]) -> Vec<u8> {
    let packed = match content.len() {
        COMPRESS_FROM.. => zstd::bulk::compress(content, ZSTD_LEVEL).ok(),
        _ => None,
    };
    // An eighth saved is worth unpacking it at every read.
    let packed = packed.filter(|packed| packed.len() <= content.len() - content.len() / 8);
    let (codec, stored) = packed.as_deref().map_or((AS_IT_IS, content), |packed| (ZSTD, packed));
    let mut out = Vec::with_capacity(BLOB_HEADER_LEN + stored.len());
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&codec.to_le_bytes());
    out.extend_from_slice(&(content.len() as u64).to_le_bytes());
    out.extend_from_slice(blake3::hash(content).as_bytes());
    out.extend_from_slice(stored);
    out
}

/// The content of an object, never more than its header says, and checked against its hash.
pub(crate) fn unpack(header: &BlobHeader, object: &Bytes) -> Result<Bytes, &'static str> {
    let stored = object.slice(BLOB_HEADER_LEN..);
    let content = match header.codec {
        ZSTD => unpack_zstd(&stored, header.length)?,
        _ => stored,
    };
    if content.len() as u64 != header.length {
        return Err("it has another length than its header says");
    }
    if blake3::hash(&content) != header.hash {
        return Err("its content is not what was written");
    }
    Ok(content)
}

fn unpack_zstd(stored: &[u8], length: u64) -> Result<Bytes, &'static str> {
    let length = usize::try_from(length).map_err(|_| "it is longer than memory")?;
    // Fails when the content does not fit, before it is produced.
    zstd::bulk::decompress(stored, length)
        .map(Bytes::from)
        .map_err(|_| "it cannot be unpacked to the length it says")
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
        unpack(&BlobHeader::decode(&object)?, &object)
    }

    proptest! {
        #[test]
        fn a_blob_comes_back_as_it_was(content in content()) {
            prop_assert_eq!(open(pack(&content)).unwrap(), content);
        }

        #[test]
        fn a_changed_byte_never_gives_another_content(content in content(), at in any::<prop::sample::Index>(), by in 1..=255_u8) {
            let mut object = pack(&content);
            let at = at.index(object.len());
            object[at] ^= by;
            // Some bits of zstd's framing mean nothing; what comes out is right or refused.
            if let Ok(opened) = open(object) {
                prop_assert_eq!(opened, content);
            }
        }
    }

    #[test]
    fn what_can_be_smaller_is_and_what_cannot_is_kept() {
        assert!(pack(&[7; 4096]).len() < 200);
        let mut noise = [0; 4096];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        assert_eq!(pack(&noise).len(), BLOB_HEADER_LEN + 4096);
        assert_eq!(pack(&[7; 100]).len(), BLOB_HEADER_LEN + 100);
    }

    /// A megabyte of zeros in a few bytes, with a header that says it is one byte, or that it is four.
    #[test]
    fn a_bomb_is_not_unpacked_beyond_what_its_header_says() {
        for said in [1_u64, 4] {
            let mut object = pack(&vec![0; 1 << 20]);
            object[16..24].copy_from_slice(&said.to_le_bytes());
            assert_eq!(open(object), Err("it cannot be unpacked to the length it says"));
        }
    }

    #[test]
    fn the_format_is_what_it_was() {
        let object = pack(b"towline");
        let head: String = object[..24].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(head, "544f574649454c4401000000000000000700000000000000");
        assert_eq!(&object[24..56], blake3::hash(b"towline").as_bytes());
        assert_eq!(&object[56..], b"towline");
    }
}
