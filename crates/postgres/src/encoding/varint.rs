//! Numbers in as many bytes as they need: seven bits a byte, the lowest first.

pub(crate) fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Small ones stay small, whatever their sign.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, (value << 1 ^ value >> 63).cast_unsigned());
}

/// What is left to be read.
#[derive(Debug)]
pub(crate) struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Source<'a> {
        Source(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, &'static str> {
        let (&first, rest) = self.0.split_first().ok_or("it ends too early")?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("it ends too early")?;
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
        Err("a number that does not end")
    }

    pub(crate) fn signed(&mut self) -> Result<i64, &'static str> {
        let value = self.unsigned()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_read() {
        for value in [0, 1, 127, 128, 300, u64::MAX >> 1, u64::MAX] {
            let mut out = Vec::new();
            put_unsigned(&mut out, value);
            assert_eq!(Source::new(&out).unsigned(), Ok(value));
        }
        for value in [0, -1, 1, i64::MIN, i64::MAX, -300] {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(Source::new(&out).signed(), Ok(value));
        }
        assert!(Source::new(&[0x80]).unsigned().is_err());
    }
}
