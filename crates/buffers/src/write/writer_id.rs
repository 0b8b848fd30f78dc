//! The identity of a buffer's writer: 128 random bits that the writer keeps secret.
//!
//! The storage keeps only a mark, a hash of these bits. Readers see the mark and cannot write with it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::BufferError;

const MARK_DOMAIN: &[u8] = b"towline buffer writer 1\n";

/// The secret that allows a client to write a buffer. Its text form is 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WriterId([u8; 16]);

/// Identifies a writer without allowing to write: the first half of `blake3("towline buffer writer 1\n" || id)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WriterMark([u8; 16]);

impl WriterId {
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub fn mark(&self) -> WriterMark {
        let mut hasher = blake3::Hasher::new();
        hasher.update(MARK_DOMAIN);
        hasher.update(&self.0);
        let mut mark = [0; 16];
        hasher.finalize_xof().fill(&mut mark);
        WriterMark(mark)
    }
}

impl WriterMark {
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&digits(&self.0))
    }
}

impl fmt::Debug for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A log must not contain the secret.
        f.write_str("WriterId(...)")
    }
}

impl FromStr for WriterId {
    type Err = BufferError;

    fn from_str(text: &str) -> Result<Self, BufferError> {
        // The error does not repeat the text, which may contain most digits of a valid secret.
        bytes_of(text).map(Self).ok_or(BufferError::BadWriter { len: text.len() })
    }
}

impl TryFrom<String> for WriterMark {
    type Error = BufferError;

    fn try_from(text: String) -> Result<Self, BufferError> {
        bytes_of(&text).map(Self).ok_or(BufferError::BadWriter { len: text.len() })
    }
}

impl From<WriterMark> for String {
    fn from(mark: WriterMark) -> Self {
        digits(&mark.0)
    }
}

fn digits(bytes: &[u8; 16]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

fn bytes_of(text: &str) -> Option<[u8; 16]> {
    let digits = text.as_bytes();
    if digits.len() != 32 {
        return None;
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = (value(pair[0])? * 16 + value(pair[1])?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_id_survives_formatting_and_parsing() {
        let text = "00ff1032547698badcfe0123456789ab";
        assert_eq!(text.parse::<WriterId>().unwrap().to_string(), text);
    }

    #[test]
    fn an_invalid_writer_id_is_refused_without_repeating_it() {
        let long = "ä".repeat(16);
        for text in
            ["", "00ff", "00ff1032547698badcfe0123456789ag", "+0ff1032547698badcfe0123456789ab", &long]
        {
            let refused = text.parse::<WriterId>().unwrap_err();
            assert!(matches!(refused, BufferError::BadWriter { .. }), "{text}");
            assert!(!refused.to_string().contains("00ff"), "{refused}");
        }
    }

    #[test]
    fn the_mark_and_debug_output_do_not_reveal_the_writer_id() {
        let writer = WriterId::from_bytes([0xab; 16]);
        assert!(!String::from(writer.mark()).contains("abab"));
        assert!(!format!("{writer:?}").contains("ab"));
        // Clients with presigned requests compute the mark themselves: it never changes.
        assert_eq!(String::from(writer.mark()), "92708349d2dc2ad009599fe11eb97615");
        assert_ne!(writer.mark(), WriterId::from_bytes([0xac; 16]).mark());
    }
}
