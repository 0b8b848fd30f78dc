//! The hash chain of a buffer: a hash over each chunk, linked to the hash of all chunks before it.
//!
//! The client and the storage compute the same chain. Equal chains prove equal bytes, in the same order, with none
//! missing.

pub use blake3::Hash;

/// The chain before the first chunk.
pub const CHAIN_START: Hash = Hash::from_bytes([0; 32]);

const CHAIN_DOMAIN: &[u8] = b"towline buffer chain 1\n";

/// How far a buffer is written or read without a gap. For a complete buffer, these are its totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The number of chunks, and so the number of the next chunk.
    pub chunks: u32,
    pub bytes: u64,
    /// The chain after the last of these chunks.
    pub chain: Hash,
}

impl Position {
    pub const START: Self = Self { chunks: 0, bytes: 0, chain: CHAIN_START };

    /// The position after the next chunk, given its length and its hash.
    #[must_use]
    pub fn after(&self, length: u64, hash: &Hash) -> Self {
        let chain = link(&self.chain, self.chunks, length, hash);
        Self { chunks: self.chunks.saturating_add(1), bytes: self.bytes.saturating_add(length), chain }
    }
}

/// The chain after chunk `n`: `blake3("towline buffer chain 1\n" || before || n as u64 || length as u64 || hash)`,
/// numbers little-endian.
#[must_use]
pub fn link(before: &Hash, n: u32, length: u64, hash: &Hash) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(CHAIN_DOMAIN);
    hasher.update(before.as_bytes());
    hasher.update(&u64::from(n).to_le_bytes());
    hasher.update(&length.to_le_bytes());
    hasher.update(hash.as_bytes());
    hasher.finalize()
}

/// The hash of data that comes in pieces.
#[must_use]
pub fn hash<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Hash {
    let mut hasher = blake3::Hasher::new();
    for piece in pieces {
        hasher.update(piece);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients in other languages test against this value, so it must never change.
    #[test]
    fn the_chain_format_is_stable() {
        let after = Position::START.after(7, &hash([&b"tow"[..], b"line"]));
        assert_eq!(
            after.chain.to_hex().as_str(),
            "e51d70f6035407da9b557026dc6842986787568f15cd891a9db77018f2685749"
        );
        assert_eq!((after.chunks, after.bytes), (1, 7));
    }

    #[test]
    fn the_chain_depends_on_every_input() {
        let (a, b) = (hash([&b"a"[..]]), hash([&b"b"[..]]));
        let base = link(&a, 1, 1, &a);
        for other in [link(&b, 1, 1, &a), link(&a, 2, 1, &a), link(&a, 1, 2, &a), link(&a, 1, 1, &b)] {
            assert_ne!(base, other);
        }
    }
}
