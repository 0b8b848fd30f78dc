//! The head of every chunk object, and the chain that runs through the chunks of a buffer.
//!
//! All numbers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic `TOWCHUNK` |
//! | 8..12 | version, 1 |
//! | 12..16 | number of the chunk, from 0 |
//! | 16..24 | length of the data |
//! | 24..32 | when it was put, in ms since 1970 |
//! | 32..48 | the mark of the writer |
//! | 48..80 | blake3 of the data |
//! | 80..112 | the chain after this chunk |
//! | 112..128 | the first half of blake3 of bytes 0..112 |

use blake3::Hash;

use crate::WriterMark;

/// Bytes before the data of a chunk.
pub const HEADER_LEN: usize = 128;
/// The most data in a chunk.
pub const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// The most chunks in a buffer.
pub const CHUNKS_MAX: u32 = 1_000_000;
/// The chain before the first chunk.
pub const CHAIN_START: Hash = Hash::from_bytes([0; 32]);

const MAGIC: &[u8; 8] = b"TOWCHUNK";
const VERSION: u32 = 1;
const CHAIN_DOMAIN: &[u8] = b"towline buffer chain 1\n";

/// The chain after chunk `n`: `blake3("towline buffer chain 1\n" || before || n as u64 || length as u64 || hash)`.
pub fn link(before: &Hash, n: u32, length: u64, hash: &Hash) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(CHAIN_DOMAIN);
    hasher.update(before.as_bytes());
    hasher.update(&u64::from(n).to_le_bytes());
    hasher.update(&length.to_le_bytes());
    hasher.update(hash.as_bytes());
    hasher.finalize()
}

/// What a chunk object says of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub n: u32,
    pub length: u64,
    pub put_at_ms: u64,
    pub writer: WriterMark,
    pub hash: Hash,
    /// The chain after this chunk.
    pub chain: Hash,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
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

    /// The header at the beginning of `bytes`; the problem, if there is none that can be trusted.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let Some(head) = bytes.first_chunk::<HEADER_LEN>() else { return Err("it ends within its header") };
        if &head[0..8] != MAGIC {
            return Err("it does not begin as a chunk does");
        }
        if blake3::hash(&head[..112]).as_bytes()[..16] != head[112..] {
            return Err("its header is not what was written");
        }
        if u32::from_le_bytes(field(head, 8)) != VERSION {
            return Err("it is of a later version of Towline");
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
            return Err("its header has numbers out of bounds");
        }
        Ok(header)
    }
}

fn field<const LEN: usize>(head: &[u8; HEADER_LEN], at: usize) -> [u8; LEN] {
    std::array::from_fn(|i| head[at + i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers() -> impl Strategy<Value = Header> {
        (
            0..CHUNKS_MAX,
            1..=CHUNK_BYTES_MAX,
            any::<u64>(),
            any::<[u8; 16]>(),
            any::<[u8; 32]>(),
            any::<[u8; 32]>(),
        )
            .prop_map(|(n, length, put_at_ms, writer, hash, chain)| Header {
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
        fn a_header_comes_back_as_it_was(header in headers(), tail in any::<[u8; 7]>()) {
            let bytes = [&header.encode()[..], &tail].concat();
            prop_assert_eq!(Header::decode(&bytes), Ok(header));
        }

        #[test]
        fn no_flipped_bit_goes_unnoticed(header in headers(), bit in 0..HEADER_LEN * 8) {
            let mut bytes = header.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Header::decode(&bytes).is_err());
        }
    }

    #[test]
    fn the_chain_depends_on_all_that_goes_in() {
        let (a, b) = (blake3::hash(b"a"), blake3::hash(b"b"));
        let base = link(&a, 1, 1, &a);
        for other in [link(&b, 1, 1, &a), link(&a, 2, 1, &a), link(&a, 1, 2, &a), link(&a, 1, 1, &b)] {
            assert_ne!(base, other);
        }
    }

    /// Clients in other languages check themselves against these values; they never change.
    #[test]
    fn the_formats_are_what_they_were() {
        let hash = blake3::hash(b"towline");
        let chain = link(&CHAIN_START, 0, 7, &hash);
        assert_eq!(
            chain.to_hex().as_str(),
            "e51d70f6035407da9b557026dc6842986787568f15cd891a9db77018f2685749"
        );
        let header = Header {
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
