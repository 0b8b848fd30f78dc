//! Codecs that a program implements.

use crate::round_trip;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::sync::Arc;
use towline::codec::{Codec, CodecError, Json, Value};

/// Run-length encoding around another codec.
#[derive(Debug)]
struct RunLength(Arc<dyn Codec>);

impl Codec for RunLength {
    fn write(&self, value: &Value) -> Result<String, CodecError> {
        let text = self.0.write(value)?;
        let mut out = String::new();
        let mut chars = text.chars().peekable();
        while let Some(char) = chars.next() {
            let mut count = 1;
            while chars.next_if_eq(&char).is_some() {
                count += 1;
            }
            write!(out, "{count}{char}").map_err(|error| CodecError(error.to_string()))?;
        }
        Ok(out)
    }

    fn read(&self, text: &str) -> Result<Value, CodecError> {
        let mut out = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit());
            // A digit in the text looks like part of the count. This toy codec works only for text without digits.
            let broken = || CodecError(format!("no count before a character in {text:?}"));
            let (count, after) = rest.split_at(digits.ok_or_else(broken)?);
            let char = after.chars().next().ok_or_else(broken)?;
            let count: usize = count.parse().map_err(|_| broken())?;
            out.extend(std::iter::repeat_n(char, count.min(1000)));
            rest = &after[char.len_utf8()..];
        }
        self.0.read(&out)
    }
}

/// JSON, and bytes as hex digits after a `#`.
#[derive(Debug)]
struct Hex;

impl Codec for Hex {
    fn write(&self, value: &Value) -> Result<String, CodecError> {
        match value {
            Value::Bytes(bytes) => {
                Ok(bytes.iter().fold("#".to_owned(), |hex, byte| hex + &format!("{byte:02x}")))
            }
            other => Json.write(other),
        }
    }

    fn read(&self, text: &str) -> Result<Value, CodecError> {
        let Some(hex) = text.strip_prefix('#') else { return Json.read(text) };
        let byte = |at| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes = (0..hex.len()).step_by(2).map(byte).collect::<Option<_>>();
        bytes.map(Value::Bytes).ok_or_else(|| CodecError(format!("{text:?} is not hex")))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    text: String,
    ends: Option<bool>,
}

#[test]
fn a_codec_around_another() {
    let codec = RunLength(Arc::new(Json));
    let text = round_trip(&codec, &Line { text: "a".repeat(40), ends: None });
    assert!(text.contains("40a"), "{text}");
    let error = (&codec as &dyn Codec).decode::<Line>("{").unwrap_err();
    assert_eq!(error.to_string(), "no count before a character in \"{\"");
}

/// Bytes in the sense of serde.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
                Ok(Bytes(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Visitor)
    }
}

#[test]
fn a_codec_that_holds_bytes() {
    assert_eq!(round_trip(&Hex, &Bytes(vec![0, 255])), "#00ff");
    assert_eq!(round_trip(&Hex, &1), "1");
}
