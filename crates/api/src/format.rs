//! The two wire formats, JSON and MessagePack, chosen by content type.

use crate::object::Object;
use rmp_serde::decode::Error;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use towline_domain::limits::JSON_DEPTH_MAX;

/// Bodies that are nested more deeply are refused, because decoding them could overflow the stack. The
/// deepest allowed parameter value fits inside the deepest body.
const DEPTH_MAX: usize = JSON_DEPTH_MAX + 28;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Json,
    MessagePack,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(String);

impl Format {
    /// Finds the format of a content type. Ignores parameters such as the character set.
    #[must_use]
    pub fn of(content_type: &str) -> Option<Format> {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let is = |name: &str| essence.eq_ignore_ascii_case(name);
        if is("application/json") {
            Some(Format::Json)
        } else if is("application/msgpack") || is("application/vnd.msgpack") || is("application/x-msgpack") {
            Some(Format::MessagePack)
        } else {
            None
        }
    }

    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::MessagePack => "application/msgpack",
        }
    }

    /// Decodes an object. An empty body is an empty object.
    pub fn decode<T: DeserializeOwned>(self, body: &[u8]) -> Result<T, DecodeError> {
        match self {
            Format::Json => {
                let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
                serde_json::from_slice(body).map(|Object(value)| value).map_err(|plain| {
                    // Decode again, more slowly, to find the path of the error.
                    let reader = &mut serde_json::Deserializer::from_slice(body);
                    match serde_path_to_error::deserialize::<_, Object<T>>(reader) {
                        Err(error) => located(error.path(), error.inner()),
                        Ok(_) => DecodeError(plain.to_string()),
                    }
                })
            }
            Format::MessagePack => {
                let body = if body.is_empty() { &[0x80] } else { body };
                let read = || {
                    let mut reader = rmp_serde::Deserializer::from_read_ref(body);
                    reader.set_max_depth(DEPTH_MAX);
                    reader
                };
                let mut reader = read();
                let Object(value) =
                    Object::deserialize(&mut reader).map_err(
                        |plain| match serde_path_to_error::deserialize::<_, Object<T>>(&mut read()) {
                            Err(error) => located(error.path(), error.inner()),
                            Ok(_) => DecodeError(plain.to_string()),
                        },
                    )?;
                // The reader does not report its position. Reading once more shows whether bytes are left.
                match IgnoredAny::deserialize(&mut reader) {
                    Err(Error::InvalidMarkerRead(_)) => Ok(value),
                    _ => Err(DecodeError("trailing bytes after the value".to_owned())),
                }
            }
        }
    }

    pub fn encode<T: Serialize>(self, value: &T) -> Result<Vec<u8>, DecodeError> {
        match self {
            Format::Json => serde_json::to_vec(value).map_err(|error| DecodeError(error.to_string())),
            Format::MessagePack => {
                rmp_serde::to_vec_named(value).map_err(|error| DecodeError(error.to_string()))
            }
        }
    }
}

fn located(path: &serde_path_to_error::Path, error: &impl std::fmt::Display) -> DecodeError {
    let text = match path.to_string() {
        top if top == "." => error.to_string(),
        path => format!("{path}: {error}"),
    };
    // The message repeats an unknown field name, which may be long.
    DecodeError(if text.len() > 1000 { text.chars().take(1000).chain(['…']).collect() } else { text })
}
