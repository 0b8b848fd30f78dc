//! Opaque bytes: base64 in JSON, bytes in MessagePack.

use crate::invalid::invalid;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use towline_domain::Refusal;

/// Writes padding, and accepts text without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decoding never fails. [`Payload::into_domain`] refuses a bad value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload(Result<Bytes, String>);

impl Payload {
    pub fn into_domain(self, what: &'static str) -> Result<Bytes, Refusal> {
        self.0.map_err(|message| invalid(what, message))
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Payload {
        Payload(Ok(bytes))
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Payload {
        Payload(Ok(bytes.into()))
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(bytes) if serializer.is_human_readable() => serializer.serialize_str(&BASE64.encode(bytes)),
            Ok(bytes) => serializer.serialize_bytes(bytes),
            Err(why) => serializer.serialize_str(why),
        }
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Payload, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Payload;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64 text in JSON, or bytes in MessagePack")
            }
            fn visit_str<E>(self, text: &str) -> Result<Payload, E> {
                Ok(Payload(match BASE64.decode(text) {
                    Ok(bytes) => Ok(bytes.into()),
                    Err(error) => Err(format!("not base64 ({error}); encode the bytes, or use `params`")),
                }))
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Payload, E> {
                Ok(Payload(Ok(Bytes::copy_from_slice(bytes))))
            }
            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Payload, E> {
                Ok(Payload(Ok(bytes.into())))
            }
        }
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(Visitor)
        } else {
            // Text in MessagePack is base64 too, so a client can pass on a value from JSON without decoding
            // it.
            deserializer.deserialize_any(Visitor)
        }
    }
}
