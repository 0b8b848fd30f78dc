//! Who writes a buffer: 128 random bits that the writer keeps to itself. Whoever has them is the writer.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::BufferError;

/// Entropy comes from the caller. Written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WriterId([u8; 16]);

impl WriterId {
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever knows the whole of it may write.
        write!(f, "WriterId({:02x}{:02x}...)", self.0[0], self.0[1])
    }
}

impl FromStr for WriterId {
    type Err = BufferError;

    fn from_str(text: &str) -> Result<Self, BufferError> {
        let bad = || BufferError::BadWriter { text: text.chars().take(40).collect() };
        let digits = text.as_bytes();
        if digits.len() != 32 {
            return Err(bad());
        }
        let value = |digit: u8| char::from(digit).to_digit(16);
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let (Some(high), Some(low)) = (value(pair[0]), value(pair[1])) else { return Err(bad()) };
            *byte = (high * 16 + low) as u8;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for WriterId {
    type Error = BufferError;

    fn try_from(text: String) -> Result<Self, BufferError> {
        text.parse()
    }
}

impl From<WriterId> for String {
    fn from(writer: WriterId) -> Self {
        writer.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_back() {
        let text = "00ff1032547698badcfe0123456789ab";
        assert_eq!(text.parse::<WriterId>().unwrap().to_string(), text);
        assert!(!format!("{:?}", text.parse::<WriterId>().unwrap()).contains("103254"));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "00ff",
            "00ff1032547698badcfe0123456789ag",
            "+0ff1032547698badcfe0123456789ab",
            "ääääääääääääääää",
        ] {
            assert!(matches!(text.parse::<WriterId>(), Err(BufferError::BadWriter { .. })), "{text}");
        }
    }
}
