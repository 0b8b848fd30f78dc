//! The two wire formats, JSON and MessagePack, chosen by content type.

use crate::budget::{BudgetError, Counted, DecodeBudget};
use crate::object::Object;
use rmp_serde::decode::Error;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
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
        match self {
            Format::Json => {
                let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
                let mut reader = serde_json::Deserializer::from_slice(body);
                let value = object(&mut reader, budget).map_err(|plain| {
                    locate::<T, _>(&mut serde_json::Deserializer::from_slice(body), budget, &plain)
                })?;
                reader.end().map_err(|error| DecodeError::Malformed(error.to_string()))?;
                Ok(value)
            }
            Format::MessagePack => {
                let body = if body.is_empty() { &[0x80] } else { body };
                let read = || {
                    let mut reader = rmp_serde::Deserializer::from_read_ref(body);
                    reader.set_max_depth(DEPTH_MAX);
                    reader
                };
                let mut reader = read();
                let value = object(&mut reader, budget)
                    .map_err(|plain| locate::<T, _>(&mut read(), budget, &plain))?;
                // The reader does not report its position. Reading once more shows whether bytes are left.
                match IgnoredAny::deserialize(&mut reader) {
                    Err(Error::InvalidMarkerRead(_)) => Ok(value),
                    _ => Err(DecodeError::Malformed("trailing bytes after the value".to_owned())),
                }
            }
        }
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
}

fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    reader: D,
    budget: &DecodeBudget<'_>,
) -> Result<T, D::Error> {
    Object::deserialize(Counted::new(reader, budget)).map(|Object(value)| value)
}

/// Why decoding failed. A malformed body is decoded again, more slowly, to find the path of the error.
fn locate<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    reader: D,
    budget: &DecodeBudget<'_>,
    plain: &D::Error,
) -> DecodeError {
    if let Some(refused) = budget.refused() {
        return refused.into();
    }
    budget.restart();
    let text = match serde_path_to_error::deserialize::<_, Object<T>>(Counted::new(reader, budget)) {
        Err(error) => match error.path().to_string() {
            top if top == "." => error.inner().to_string(),
            path => format!("{path}: {}", error.inner()),
        },
        Ok(_) => plain.to_string(),
    };
    // The message repeats an unknown field name, which may be long.
    DecodeError::Malformed(if text.len() > 1000 {
        text.chars().take(1000).chain(['…']).collect()
    } else {
        text
    })
}
