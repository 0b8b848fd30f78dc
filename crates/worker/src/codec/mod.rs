//! Codecs: they encode inputs and results as text.
//!
//! The library turns a type into a [`Value`], and a [`Codec`] writes the value as text. Decoding goes the same way back.
//! [`Json`] is plain JSON. [`Tagged`] adds forms for dates, sets, big integers and other JavaScript types, for queues that
//! JavaScript workers share. A program can implement its own codec.
//!
//! **Invariant:** a codec loses nothing silently. It refuses a value that it could not decode again, when the work is
//! submitted, with an error that names the place and the remedy.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use towline::codec::{Codec, Json};
//!
//! #[derive(Debug, PartialEq, Serialize, Deserialize)]
//! struct Parcel { to: String, weight: f64 }
//!
//! let codec: &dyn Codec = &Json;
//! let parcel = Parcel { to: "Bergen".into(), weight: 2.5 };
//! let text = codec.encode(&parcel)?;
//! assert_eq!(text, r#"{"to":"Bergen","weight":2.5}"#);
//! assert_eq!(codec.decode::<Parcel>(&text)?, parcel);
//!
//! let refused = codec.encode(&[Parcel { to: "Bergen".into(), weight: f64::NAN }]).unwrap_err();
//! assert_eq!(refused.to_string(), "[0].weight: NaN cannot be written as JSON; use an Option, or a string");
//! # Ok::<(), towline::codec::CodecError>(())
//! ```

mod deserializer;
mod json;
mod json_reader;
mod json_writer;
mod key_deserializer;
mod markers;
mod path_error;
mod serializer;
mod tagged;
mod value;

pub use json::Json;
pub use markers::{BigInt, Date, ErrorValue, Map, Set, Undefined};
pub use tagged::Tagged;
pub use value::{Integer, OutOfRange, Value};

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// The deepest nesting of lists and objects in a text. Requests to the server have the same limit.
pub const DEPTH_MAX: usize = 100;

/// Writes values as text and reads them back. A system has one codec; a kind of work may have its own.
///
/// `read` must return what `write` accepted, as far as the type that is decoded can tell. For example, a date may come back
/// as a string, since a date is decoded from both.
///
/// ```
/// use towline::codec::{Codec, CodecError, Json, Value};
///
/// /// JSON after a version number, so that text of another version is refused.
/// #[derive(Debug)]
/// struct Versioned;
///
/// impl Codec for Versioned {
///     fn write(&self, value: &Value) -> Result<String, CodecError> {
///         Ok(format!("v1:{}", Json.write(value)?))
///     }
///
///     fn read(&self, text: &str) -> Result<Value, CodecError> {
///         let json = text.strip_prefix("v1:").ok_or_else(|| CodecError("not text of version 1".into()))?;
///         Json.read(json)
///     }
/// }
///
/// let codec: &dyn Codec = &Versioned;
/// assert_eq!(codec.encode(&[1, 2])?, "v1:[1,2]");
/// assert_eq!(codec.decode::<Vec<u8>>("v1:[1,2]")?, [1, 2]);
/// assert!(codec.decode::<Vec<u8>>("[1,2]").is_err());
/// # Ok::<(), CodecError>(())
/// ```
pub trait Codec: Send + Sync + fmt::Debug {
    fn write(&self, value: &Value) -> Result<String, CodecError>;
    fn read(&self, text: &str) -> Result<Value, CodecError>;
}

/// Why a value could not be encoded, or text not decoded: the place, the problem, and usually a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(pub String);

impl dyn Codec + '_ {
    /// Encodes anything that serde can serialize.
    pub fn encode<T: Serialize + ?Sized>(&self, value: &T) -> Result<String, CodecError> {
        self.write(&serializer::to_value(value)?)
    }

    /// Decodes anything that serde can deserialize.
    pub fn decode<T: DeserializeOwned>(&self, text: &str) -> Result<T, CodecError> {
        Ok(deserializer::from_value(self.read(text)?)?)
    }
}
