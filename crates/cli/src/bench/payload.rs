//! The payload of the items: printable text that does not compress, the same as in the peers' benchmark.

use serde::Deserialize;
use serde::de::value::{BytesDeserializer, Error};
use towline_api::NewItem;
use towline_api::payload::Payload;

/// Digits of a stamp: enough for the nanoseconds of any run.
pub const STAMP_BYTES: usize = 20;

const SYMBOLS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Xorshift over 62 symbols, with the peers' seed.
pub fn text(size: usize) -> Vec<u8> {
    let mut x: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        SYMBOLS[((x >> 33) % 62) as usize]
    };
    (0..size).map(|_| next()).collect()
}

pub fn payload(bytes: &[u8]) -> anyhow::Result<Payload> {
    Ok(Payload::deserialize(BytesDeserializer::<Error>::new(bytes))?)
}

pub fn item(payload: &Payload) -> NewItem {
    NewItem { payload: Some(payload.clone()), ..NewItem::default() }
}

/// Writes a number where [`stamp`] finds it.
pub fn set_stamp(text: &mut [u8], stamp: u64) {
    let digits = format!("{stamp:0STAMP_BYTES$}");
    text[..STAMP_BYTES].copy_from_slice(digits.as_bytes());
}

pub fn stamp(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text.get(..STAMP_BYTES)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_one_printable_stream() {
        assert_eq!(text(8).len(), 8);
        assert_eq!(text(100), text(4500)[..100], "one stream, cut to size");
        assert!(text(4500).iter().all(u8::is_ascii_alphanumeric));
    }

    #[test]
    fn a_payload_has_the_bytes_it_was_given() {
        let bytes = payload(&text(4500)).unwrap().into_domain("payload").unwrap();
        assert_eq!(&bytes[..], &text(4500)[..]);
    }

    #[test]
    fn a_stamp_comes_back() {
        let mut text = text(100);
        set_stamp(&mut text, u64::MAX);
        assert_eq!(stamp(&text), Some(u64::MAX));
        set_stamp(&mut text, 7);
        assert_eq!(stamp(&text), Some(7));
        assert_eq!(stamp(b"short"), None);
    }
}
