//! The two wire formats, JSON and MessagePack, chosen by content type.

use crate::budget::{BudgetError, Counted, DecodeBudget, Elements, Pass};
use crate::element::{located, shortened};
use crate::object::Object;
use rmp_serde::decode::{Error, ReadReader, ReadRefReader, ReadSlice};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use std::cell::Cell;
use std::fmt;
use std::io::Read;
use towline_domain::limits::JSON_DEPTH_MAX;

/// Bodies that are nested more deeply are refused, because decoding them could overflow the stack. The
/// deepest allowed parameter value fits inside the deepest body.
const DEPTH_MAX: usize = JSON_DEPTH_MAX + 28;
const MESSAGE_CHARS_MAX: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Json,
    MessagePack,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("{0}")]
    Malformed(String),
    #[error("a list has more than {max} elements; split the call")]
    ListTooLong { max: usize },
    #[error("the decoded body takes more than {max} bytes of memory; split the call")]
    TooLarge { max: usize },
    /// The budget had no memory left to reserve.
    #[error("there is no memory left for the decoded body; try again shortly")]
    NoMemory,
}

impl From<BudgetError> for DecodeError {
    fn from(error: BudgetError) -> DecodeError {
        match error {
            BudgetError::ListTooLong { max } => DecodeError::ListTooLong { max },
            BudgetError::TooLarge { max } => DecodeError::TooLarge { max },
            BudgetError::NoMemory => DecodeError::NoMemory,
        }
    }
}

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

    /// Decodes an object without limits on its memory. An empty body is an empty object.
    pub fn decode<T: DeserializeOwned>(self, body: &[u8]) -> Result<T, DecodeError> {
        self.decode_within(body, &DecodeBudget::default())
    }

    /// Decodes an object within a budget. An empty body is an empty object.
    pub fn decode_within<T: DeserializeOwned>(
        self,
        body: &[u8],
        budget: &DecodeBudget<'_>,
    ) -> Result<T, DecodeError> {
        let body: &[u8] = match self {
            Format::Json if body.trim_ascii().is_empty() => b"{}",
            Format::MessagePack if body.is_empty() => &[0x80],
            _ => body,
        };
        let first = Pass::new(budget, Elements::Together);
        let mut plain = match self.pass(body, &first) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        if let Some(refused) = budget.refused() {
            return Err(refused.into());
        }
        budget.restart();
        if first.has_elements() {
            let position = Cell::new(0);
            // What a reader of MessagePack skips, it copies.
            let copied = if self == Format::MessagePack { body.len() } else { 0 };
            let charged = budget.charge::<serde::de::value::Error>(copied);
            let second = Pass::new(budget, Elements::Apart(Positioned { body, position: &position }));
            plain = match charged.map_err(|error| malformed(&error)).and_then(|()| self.pass(body, &second)) {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if let Some(refused) = budget.refused() {
                return Err(refused.into());
            }
            budget.restart();
        }
        let located = self.locate::<T>(body, budget).unwrap_or(plain);
        Err(budget.refused().map_or(located, DecodeError::from))
    }

    pub fn encode<T: Serialize>(self, value: &T) -> Result<Vec<u8>, DecodeError> {
        match self {
            Format::Json => {
                serde_json::to_vec(value).map_err(|error| DecodeError::Malformed(error.to_string()))
            }
            Format::MessagePack => {
                rmp_serde::to_vec_named(value).map_err(|error| DecodeError::Malformed(error.to_string()))
            }
        }
    }

    fn pass<T: DeserializeOwned>(self, body: &[u8], pass: &Pass<'_>) -> Result<T, DecodeError> {
        match (self, pass.elements) {
            (Format::Json, _) => {
                let mut reader = serde_json::Deserializer::from_slice(body);
                let value = object(&mut reader, pass)?;
                reader.end().map_err(|error| malformed(&error))?;
                Ok(value)
            }
            (Format::MessagePack, Elements::Apart(body)) => packed_object(message_pack(body), pass),
            (Format::MessagePack, _) => packed_object(message_pack_slice(body), pass),
        }
    }

    /// Decodes a malformed body again, more slowly, to find the path of the error. Elements of a batch are not where it is.
    fn locate<T: DeserializeOwned>(self, body: &[u8], budget: &DecodeBudget<'_>) -> Option<DecodeError> {
        let pass = Pass::new(budget, Elements::Skipped);
        let text = match self {
            Format::Json => path::<T, _>(&mut serde_json::Deserializer::from_slice(body), &pass),
            Format::MessagePack => path::<T, _>(&mut message_pack_slice(body), &pass),
        };
        text.map(|text| malformed(&text))
    }
}

/// Reads bytes and reports how far it is.
#[derive(Clone, Copy)]
pub(crate) struct Positioned<'a> {
    pub(crate) body: &'a [u8],
    pub(crate) position: &'a Cell<usize>,
}

impl Read for Positioned<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let start = self.position.get();
        let read = self.body.get(start..).unwrap_or_default().read(out)?;
        self.position.set(start + read);
        Ok(read)
    }
}

pub(crate) fn message_pack<R: Read>(reader: R) -> rmp_serde::Deserializer<ReadReader<R>> {
    let mut reader = rmp_serde::Deserializer::new(reader);
    reader.set_max_depth(DEPTH_MAX);
    reader
}

fn message_pack_slice(body: &[u8]) -> rmp_serde::Deserializer<ReadRefReader<'_, [u8]>> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(body);
    reader.set_max_depth(DEPTH_MAX);
    reader
}

fn packed_object<'de, T: Deserialize<'de>, R: ReadSlice<'de>>(
    mut reader: rmp_serde::Deserializer<R>,
    pass: &Pass<'_>,
) -> Result<T, DecodeError> {
    let value = object(&mut reader, pass)?;
    // The reader does not report its position. Reading once more shows whether bytes are left.
    match IgnoredAny::deserialize(&mut reader) {
        Err(Error::InvalidMarkerRead(_)) => Ok(value),
        _ => Err(malformed(&"trailing bytes after the value")),
    }
}

fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    reader: D,
    pass: &Pass<'_>,
) -> Result<T, DecodeError> {
    let value = Object::deserialize(Counted::new(reader, pass));
    value.map(|Object(value)| value).map_err(|error| malformed(&error))
}

/// The message of the error, with its path.
fn path<'de, T: Deserialize<'de>, D: Deserializer<'de>>(reader: D, pass: &Pass<'_>) -> Option<String> {
    serde_path_to_error::deserialize::<_, Object<T>>(Counted::new(reader, pass))
        .err()
        .map(|error| located(&error))
}

fn malformed(error: &impl fmt::Display) -> DecodeError {
    DecodeError::Malformed(shortened(&error.to_string(), MESSAGE_CHARS_MAX))
}
