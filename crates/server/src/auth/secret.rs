//! The token itself: `tow_<id>_<secret>`.

use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

const PREFIX: &str = "tow_";
/// Random bytes. They cannot be guessed, so one round of SHA-256 protects them as well as a slow password hash would.
const SECRET_BYTES: usize = 32;

/// Counts from 1.
pub(crate) type TokenId = u64;

/// The token that a client sends.
pub(crate) struct TokenSecret {
    pub(crate) id: TokenId,
    secret: [u8; SECRET_BYTES],
}

/// The token of the node inside this server. It is made at the start, and never stored.
#[derive(Clone, Copy)]
pub(crate) struct InternalSecret([u8; SECRET_BYTES]);

const INTERNAL_PREFIX: &str = "towi_";

impl InternalSecret {
    pub(crate) fn new(secret: [u8; SECRET_BYTES]) -> InternalSecret {
        InternalSecret(secret)
    }

    pub(crate) fn text(&self) -> String {
        format!("{INTERNAL_PREFIX}{}", hex(&self.0))
    }

    /// Compares in constant time.
    pub(crate) fn is(&self, text: &str) -> bool {
        let given: Option<[u8; SECRET_BYTES]> = text.strip_prefix(INTERNAL_PREFIX).and_then(unhex);
        given.is_some_and(|given| given.ct_eq(&self.0).into())
    }
}

impl fmt::Debug for InternalSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{INTERNAL_PREFIX}(hidden)")
    }
}

/// The stored form of a secret.
#[derive(Clone, Copy)]
pub(crate) struct SecretHash([u8; 32]);

impl TokenSecret {
    pub(crate) fn new(id: TokenId, secret: [u8; SECRET_BYTES]) -> TokenSecret {
        TokenSecret { id, secret }
    }

    /// `None` if the text is not a token.
    pub(crate) fn parse(text: &str) -> Option<TokenSecret> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        Some(TokenSecret { id: parse_id(id)?, secret: unhex(secret)? })
    }

    pub(crate) fn text(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, hex(&self.secret))
    }

    pub(crate) fn hash(&self) -> SecretHash {
        SecretHash(Sha256::digest(self.secret).into())
    }

    /// Compares in constant time.
    pub(crate) fn matches(&self, hash: &SecretHash) -> bool {
        self.hash().0.ct_eq(&hash.0).into()
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_(hidden)", self.id)
    }
}

impl SecretHash {
    /// Of a token that has no secret of this kind.
    pub(super) fn unmatched() -> SecretHash {
        SecretHash([0; 32])
    }

    pub(crate) fn to_hex(self) -> String {
        hex(&self.0)
    }

    pub(crate) fn parse(text: &str) -> Option<SecretHash> {
        unhex(text).map(SecretHash)
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Accepts only the canonical form of a number, so that each token has exactly one text.
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
    fn a_token_is_printed_and_parsed_and_debug_output_hides_its_secret() {
        let secret = TokenSecret::new(12, std::array::from_fn(|at| at as u8));
        let text = secret.text();
        assert!(text.starts_with("tow_12_000102"), "{text}");
        let read = TokenSecret::parse(&text).unwrap();
        assert_eq!(read.id, 12);
        assert!(read.matches(&secret.hash()));
        assert!(read.matches(&SecretHash::parse(&secret.hash().to_hex()).unwrap()));
        assert!(!TokenSecret::new(12, [0; 32]).matches(&secret.hash()));
        assert_eq!(format!("{secret:?} {:?}", secret.hash()), "tow_12_(hidden) (hidden)");
    }

    #[test]
    fn other_texts_are_not_tokens() {
        let good = TokenSecret::new(7, [0xab; 32]).text();
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
            assert!(TokenSecret::parse(text).is_none(), "{text}");
        }
    }
}
