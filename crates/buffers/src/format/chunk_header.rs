//! The header at the start of every chunk object.
//!
//! All numbers are little-endian:
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | magic `TOWCHUNK` |
//! | 8..12 | version, 1 |
//! | 12..16 | number of the chunk, from 0 |
//! | 16..24 | length of the data |
//! | 24..32 | when the writer put the chunk, in ms since 1970 |
//! | 32..48 | the mark of the writer |
//! | 48..80 | blake3 of the data |
//! | 80..112 | the hash chain after this chunk |
//! | 112..128 | the first half of blake3 of bytes 0..112 |

use blake3::Hash;

use crate::WriterMark;

/// The length of a chunk's header, in bytes.
pub const CHUNK_HEADER_LEN: usize = 128;
/// The maximum length of a chunk's data, in bytes.
pub const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// The maximum number of chunks in a buffer.
pub const CHUNKS_MAX: u32 = 1_000_000;

const MAGIC: &[u8; 8] = b"TOWCHUNK";
const VERSION: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    pub n: u32,
    pub length: u64,
    pub put_at_ms: u64,
    pub writer: WriterMark,
    pub hash: Hash,
    /// The hash chain after this chunk.
    pub chain: Hash,
}

impl ChunkHeader {
    pub fn encode(&self) -> [u8; CHUNK_HEADER_LEN] {
        let mut out = [0; CHUNK_HEADER_LEN];
        out[0..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.n.to_le_bytes());
        out[16..24].copy_from_slice(&self.length.to_le_bytes());
        out[24..32].copy_from_slice(&self.put_at_ms.to_le_bytes());
        out[32..48].copy_from_slice(self.writer.as_bytes());
        out[48..80].copy_from_slice(self.hash.as_bytes());
        out[80..112].copy_from_slice(self.chain.as_bytes());
        let check = blake3::hash(&out[..112]);
        out[112..].copy_from_slice(&check.as_bytes()[..16]);
        out
    }

    /// Decodes and checks the header at the start of `bytes`. The error is a phrase about the object.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let Some(head) = bytes.first_chunk::<CHUNK_HEADER_LEN>() else {
            return Err("it is shorter than its header");
        };
        if &head[0..8] != MAGIC {
            return Err("it does not start with the magic of a chunk");
        }
        if blake3::hash(&head[..112]).as_bytes()[..16] != head[112..] {
            return Err("the checksum of its header is wrong");
        }
        if u32::from_le_bytes(field(head, 8)) != VERSION {
            return Err("a later version of Towline wrote it");
        }
        let header = Self {
            n: u32::from_le_bytes(field(head, 12)),
            length: u64::from_le_bytes(field(head, 16)),
            put_at_ms: u64::from_le_bytes(field(head, 24)),
            writer: WriterMark::from_bytes(field(head, 32)),
            hash: Hash::from_bytes(field(head, 48)),
            chain: Hash::from_bytes(field(head, 80)),
        };
        if header.n >= CHUNKS_MAX || header.length == 0 || header.length > CHUNK_BYTES_MAX {
            return Err("its header has numbers out of range");
        }
        Ok(header)
    }
}

fn field<const LEN: usize>(head: &[u8; CHUNK_HEADER_LEN], at: usize) -> [u8; LEN] {
    std::array::from_fn(|i| head[at + i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CHAIN_START, link};
    use proptest::prelude::*;

    fn headers() -> impl Strategy<Value = ChunkHeader> {
        (
            0..CHUNKS_MAX,
            1..=CHUNK_BYTES_MAX,
            any::<u64>(),
            any::<[u8; 16]>(),
            any::<[u8; 32]>(),
            any::<[u8; 32]>(),
        )
            .prop_map(|(n, length, put_at_ms, writer, hash, chain)| ChunkHeader {
                n,
                length,
                put_at_ms,
                writer: WriterMark::from_bytes(writer),
                hash: Hash::from_bytes(hash),
                chain: Hash::from_bytes(chain),
            })
    }

    proptest! {
        #[test]
        fn a_header_survives_encoding_and_decoding(header in headers(), tail in any::<[u8; 7]>()) {
            let bytes = [&header.encode()[..], &tail].concat();
            prop_assert_eq!(ChunkHeader::decode(&bytes), Ok(header));
        }

        #[test]
        fn every_flipped_bit_is_detected(header in headers(), bit in 0..CHUNK_HEADER_LEN * 8) {
            let mut bytes = header.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(ChunkHeader::decode(&bytes).is_err());
        }

        #[test]
        fn random_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(ChunkHeader::decode(&bytes).is_err());
        }
    }

    /// Clients in other languages check themselves against this value: it never changes.
    #[test]
    fn the_header_format_is_stable() {
        let hash = blake3::hash(b"towline");
        let chain = link(&CHAIN_START, 0, 7, &hash);
        let header = ChunkHeader {
            n: 0,
            length: 7,
            put_at_ms: 1_700_000_000_000,
            writer: WriterMark::from_bytes([7; 16]),
            hash,
            chain,
        };
        assert_eq!(
            blake3::hash(&header.encode()).to_hex().as_str(),
            "21d971c92b3b6049db366a2bda85f57cd1beabcbe4e5b6376a83b1fc57c60584"
        );
    }
}
