//! Packed bytes. A number takes as many bytes as it needs (LEB128): seven bits a byte, the lowest first.

use uuid::Uuid;

pub(crate) fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Zigzag encoding: a number near zero takes few bytes, whatever its sign.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, (value << 1 ^ value >> 63).cast_unsigned());
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_unsigned(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// The bytes that are left to read.
#[derive(Debug)]
pub(crate) struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, &'static str> {
        let (&first, rest) = self.0.split_first().ok_or("the bytes end too early")?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("the bytes end too early")?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn unsigned(&mut self) -> Result<u64, &'static str> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number of more than 64 bits")
    }

    pub(crate) fn signed(&mut self) -> Result<i64, &'static str> {
        let value = self.unsigned()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    pub(crate) fn number(&mut self) -> Result<u32, &'static str> {
        u32::try_from(self.unsigned()?).map_err(|_| "a number of more than 32 bits")
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, &'static str> {
        let length = usize::try_from(self.unsigned()?).map_err(|_| "a length out of range")?;
        std::str::from_utf8(self.take(length)?).map_err(|_| "a text that is not UTF-8")
    }

    pub(crate) fn uuid(&mut self) -> Result<Uuid, &'static str> {
        Uuid::from_slice(self.take(16)?).map_err(|_| "a cut UUID")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_numbers_decode_to_the_same_numbers() {
        for value in [0, 1, 127, 128, 300, u64::MAX >> 1, u64::MAX] {
            let mut out = Vec::new();
            put_unsigned(&mut out, value);
            assert_eq!(ByteReader::new(&out).unsigned(), Ok(value));
        }
        for value in [0, -1, 1, i64::MIN, i64::MAX, -300] {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(ByteReader::new(&out).signed(), Ok(value));
        }
        assert!(ByteReader::new(&[0x80]).unsigned().is_err());
    }
}
