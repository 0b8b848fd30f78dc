//! How inputs and results become text.
//!
//! A type becomes a [`Value`], and a [`Codec`] writes that as text; reading goes the same way back. [`Json`] is plain
//! JSON; [`Tagged`] also has forms for dates, sets, big integers and the like, and is for queues shared with
//! JavaScript workers. Other codecs implement the trait.
//!
//! **Invariant:** a codec loses nothing in silence. What it cannot hold and give back it refuses when the work is
//! queued, in words that name the place and the remedy.
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
//! assert_eq!(refused.to_string(), "[0].weight: NaN cannot be written as JSON; use an Option, or a text");
//! # Ok::<(), towline::codec::CodecError>(())
//! ```

mod deserializer;
mod fault;
mod json;
mod key;
mod markers;
mod serializer;
mod tagged;
mod text;
mod value;

pub use json::Json;
pub use markers::{BigInt, Date, ErrorValue, Map, Set, Undefined};
pub use tagged::Tagged;
pub use value::{Integer, OutOfRange, Value};

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// How deep lists and objects may be nested in a text, as in the server's requests.
pub const DEPTH_MAX: usize = 100;

/// Turns values into text and back. One for the whole system, or one for a type of work.
///
/// What `write` accepts, `read` must give back, so far as the types that are read can tell: a date may come back as
/// its text, for whoever asks for a date reads it from either.
///
/// ```
/// use towline::codec::{Codec, CodecError, Json, Value};
///
/// /// JSON behind a version, so that texts of another make are known as such.
/// #[derive(Debug)]
/// struct Versioned;
///
/// impl Codec for Versioned {
///     fn write(&self, value: &Value) -> Result<String, CodecError> {
///         Ok(format!("v1:{}", Json.write(value)?))
///     }
///
///     fn read(&self, text: &str) -> Result<Value, CodecError> {
///         let json = text.strip_prefix("v1:").ok_or_else(|| CodecError("not a text of version 1".into()))?;
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

/// Why a value was not written, or a text not read: the place, what is wrong there, and mostly what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(pub String);

impl dyn Codec + '_ {
    /// The text of anything that serde can serialize.
    pub fn encode<T: Serialize + ?Sized>(&self, value: &T) -> Result<String, CodecError> {
        self.write(&serializer::to_value(value)?)
    }

    /// Anything that serde can deserialize, from its text.
    pub fn decode<T: DeserializeOwned>(&self, text: &str) -> Result<T, CodecError> {
        Ok(deserializer::from_value(self.read(text)?)?)
    }
}
