//! Marker types for what serde's data model lacks: this string is a date, this list is a set.
//!
//! Each serializes as a newtype with a special name. The serializer of this module knows the names. Other serializers ignore
//! them and write the plain string or list. Decoding needs no names: a date is also decoded from a plain string.

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub(super) const DATE: &str = "$towline::Date";
pub(super) const SET: &str = "$towline::Set";
pub(super) const MAP: &str = "$towline::Map";
pub(super) const BIG_INT: &str = "$towline::BigInt";
pub(super) const ERROR: &str = "$towline::Error";
pub(super) const UNDEFINED: &str = "$towline::Undefined";

/// A point in time that is a `Date` in JavaScript. With [`Json`](super::Json) it is a string.
///
/// A JavaScript `Date` counts milliseconds, so [`Tagged`](super::Tagged) refuses a finer time. Round it with
/// `timestamp.round(jiff::Unit::Millisecond)`.
///
/// ```
/// use towline::codec::{Codec, Date, Tagged};
///
/// let codec: &dyn Codec = &Tagged;
/// let epoch = Date(jiff::Timestamp::UNIX_EPOCH);
/// let text = codec.encode(&epoch)?;
/// assert_eq!(text, r#"{"$ayepi":"Date","value":"1970-01-01T00:00:00.000Z"}"#);
/// assert_eq!(codec.decode::<Date>(&text)?, epoch);
/// # Ok::<(), towline::codec::CodecError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(pub Timestamp);

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(DATE, &self.0.to_string())
    }
}

impl<'de> Deserialize<'de> for Date {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Date, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map(Date)
            .map_err(|error| D::Error::custom(format_args!("{text:?} is not a date: {error}")))
    }
}

/// A set that is a `Set` in JavaScript. With [`Json`](super::Json) it is a list.
///
/// ```
/// use towline::codec::{Codec, Set, Tagged};
///
/// let codec: &dyn Codec = &Tagged;
/// let text = codec.encode(&Set::from_iter(["b", "a"]))?;
/// assert_eq!(text, r#"{"$ayepi":"Set","value":["a","b"]}"#);
/// # Ok::<(), towline::codec::CodecError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set<T>(pub BTreeSet<T>);

impl<T> Default for Set<T> {
    fn default() -> Set<T> {
        Set(BTreeSet::new())
    }
}

impl<T: Ord> FromIterator<T> for Set<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Set<T> {
        Set(items.into_iter().collect())
    }
}

impl<T: Serialize> Serialize for Set<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(SET, &self.0)
    }
}

impl<'de, T: Deserialize<'de> + Ord> Deserialize<'de> for Set<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Set<T>, D::Error> {
        BTreeSet::deserialize(deserializer).map(Set)
    }
}

/// A map that is a `Map` in JavaScript, even if its keys are strings or it is empty. With [`Json`](super::Json) it is an
/// object.
///
/// Other maps are a `Map` in JavaScript if a key is not a string, and an object otherwise.
///
/// ```
/// use towline::codec::{Codec, Map, Tagged};
///
/// let codec: &dyn Codec = &Tagged;
/// let text = codec.encode(&Map::from_iter([("a", 1)]))?;
/// assert_eq!(text, r#"{"$ayepi":"Map","value":[["a",1]]}"#);
/// # Ok::<(), towline::codec::CodecError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Map<K, V>(pub BTreeMap<K, V>);

impl<K, V> Default for Map<K, V> {
    fn default() -> Map<K, V> {
        Map(BTreeMap::new())
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Map<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Map<K, V> {
        Map(entries.into_iter().collect())
    }
}

impl<K: Serialize, V: Serialize> Serialize for Map<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(MAP, &self.0)
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for Map<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Map<K, V>, D::Error> {
        BTreeMap::deserialize(deserializer).map(Map)
    }
}

/// An integer that is a `BigInt` in JavaScript, even if it is small. With [`Json`](super::Json) it is a number.
///
/// Other integers are a `BigInt` in JavaScript from 2^53 on, and a number below.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BigInt(pub i128);

impl Serialize for BigInt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(BIG_INT, &self.0)
    }
}

impl<'de> Deserialize<'de> for BigInt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BigInt, D::Error> {
        i128::deserialize(deserializer).map(BigInt)
    }
}

/// A JavaScript `Error`. With [`Json`](super::Json) it is an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorValue {
    /// The class, for example `TypeError`.
    pub name: String,
    pub message: String,
    #[serde(default)]
    pub stack: Option<String>,
}

impl Serialize for ErrorValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            name: &'a str,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            stack: Option<&'a str>,
        }
        let fields = Fields { name: &self.name, message: &self.message, stack: self.stack.as_deref() };
        serializer.serialize_newtype_struct(ERROR, &fields)
    }
}

impl fmt::Display for ErrorValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.message)
    }
}

impl std::error::Error for ErrorValue {}

/// JavaScript's `undefined`. With [`Json`](super::Json) it is null.
///
/// It decodes wherever null does: as `None` or as `()`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Undefined;

impl Serialize for Undefined {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit_struct(UNDEFINED)
    }
}

impl<'de> Deserialize<'de> for Undefined {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Undefined, D::Error> {
        <()>::deserialize(deserializer).map(|()| Undefined)
    }
}
