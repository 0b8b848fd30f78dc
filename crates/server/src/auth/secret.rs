//! The token itself: `tow_<id>_<secret>`.

use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

const PREFIX: &str = "tow_";
/// Bytes of randomness. Nobody tries them all, and no list of likely ones exists: one round of SHA-256 hides such a
/// secret as well as a slow hash would, and a slow one would be paid with every first call.
const SECRET_BYTES: usize = 32;

/// What identifies a token, counted from 1.
pub(crate) type TokenId = u64;

/// A token as its holder has it.
pub(crate) struct Secret {
    pub(crate) id: TokenId,
    secret: [u8; SECRET_BYTES],
}

/// What is kept of it.
#[derive(Clone, Copy)]
pub(crate) struct Hash([u8; 32]);

impl Secret {
    pub(crate) fn new(id: TokenId, secret: [u8; SECRET_BYTES]) -> Secret {
        Secret { id, secret }
    }

    /// `None`: nothing of the kind.
    pub(crate) fn parse(text: &str) -> Option<Secret> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        Some(Secret { id: parse_id(id)?, secret: unhex(secret)? })
    }

    pub(crate) fn text(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, hex(&self.secret))
    }

    pub(crate) fn hash(&self) -> Hash {
        Hash(Sha256::digest(self.secret).into())
    }

    /// Takes as long whatever the answer is.
    pub(crate) fn is(&self, hash: &Hash) -> bool {
        self.hash().0.ct_eq(&hash.0).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_(hidden)", self.id)
    }
}

impl Hash {
    pub(crate) fn to_hex(self) -> String {
        hex(&self.0)
    }

    pub(crate) fn parse(text: &str) -> Option<Hash> {
        unhex(text).map(Hash)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// One way to write a number, so that no two texts are the same token.
pub(crate) fn parse_id(text: &str) -> Option<TokenId> {
    text.parse().ok().filter(|id: &TokenId| *id > 0 && id.to_string() == text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
    let bytes = text.as_bytes();
    if bytes.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_and_its_secret_is_not_shown() {
        let secret = Secret::new(12, std::array::from_fn(|at| at as u8));
        let text = secret.text();
        assert!(text.starts_with("tow_12_000102"), "{text}");
        let read = Secret::parse(&text).unwrap();
        assert_eq!(read.id, 12);
        assert!(read.is(&secret.hash()));
        assert!(read.is(&Hash::parse(&secret.hash().to_hex()).unwrap()));
        assert!(!Secret::new(12, [0; 32]).is(&secret.hash()));
        assert_eq!(format!("{secret:?} {:?}", secret.hash()), "tow_12_(hidden) (hidden)");
    }

    #[test]
    fn other_texts_are_no_tokens() {
        let good = Secret::new(7, [0xab; 32]).text();
        let upper = good.replace("ab", "AB");
        let plus = good.replace("_7_", "_+7_");
        let zero = good.replace("_7_", "_07_");
        let long = format!("{good}0");
        for text in [
            "",
            "tow",
            "tow_",
            "tow_7",
            "tow_7_",
            "tow__",
            "tow_0_00",
            &good[1..],
            &good[..69],
            &upper,
            &plus,
            &zero,
            &long,
            "tow_7_ü",
        ] {
            assert!(Secret::parse(text).is_none(), "{text}");
        }
    }
}
