//! The value: the form between a type and its text.

use super::ErrorValue;
use jiff::Timestamp;
use std::fmt;
use std::str::FromStr;

/// A value of serde's data model, with the additional types of JavaScript.
///
/// A struct, or a map whose keys are all strings, is an `Object`; other maps are a `Map`. A variant without content is its
/// name; a variant with content is an object with the name as its only key. `None` and `()` are `Null`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    Null,
    Undefined,
    Bool(bool),
    Integer(Integer),
    /// An integer that is a BigInt in JavaScript, even if it is small.
    BigInt(Integer),
    /// Any float, including NaN and the infinities.
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Set(Vec<Value>),
    Object(Vec<(String, Value)>),
    Map(Vec<(Value, Value)>),
    Date(Timestamp),
    Error(ErrorValue),
}

impl Value {
    /// The name of this map key in a path.
    pub(super) fn as_path_key(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Integer(integer) | Value::BigInt(integer) => integer.to_string(),
            Value::Bool(bool) => bool.to_string(),
            other => format!("({})", other.kind()),
        }
    }

    /// The name of this type of value in a message.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Undefined => "undefined",
            Value::Bool(_) => "a bool",
            Value::Integer(_) => "an integer",
            Value::BigInt(_) => "a BigInt",
            Value::Float(_) => "a float",
            Value::Text(_) => "a string",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "a list",
            Value::Set(_) => "a set",
            Value::Object(_) => "an object",
            Value::Map(_) => "a map",
            Value::Date(_) => "a date",
            Value::Error(_) => "an error",
        }
    }
}

/// An integer of any Rust type, from the least `i128` to the greatest `u128`.
///
/// ```
/// use towline::codec::Integer;
///
/// let most = Integer::from(u128::MAX);
/// assert_eq!(most.to_string().parse(), Ok(most));
/// assert_eq!(u128::try_from(most), Ok(u128::MAX));
/// assert!(i128::try_from(most).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Integer {
    // Zero is never negative, so each number has one form and equality can be derived.
    negative: bool,
    magnitude: u128,
}

/// The number does not fit the requested type, or is not an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an integer, or out of range")]
pub struct OutOfRange;

impl From<i128> for Integer {
    fn from(value: i128) -> Integer {
        Integer { negative: value < 0, magnitude: value.unsigned_abs() }
    }
}

impl From<u128> for Integer {
    fn from(value: u128) -> Integer {
        Integer { negative: false, magnitude: value }
    }
}

macro_rules! from_small {
    ($($type:ty => $wide:ty),*) => {$(
        impl From<$type> for Integer {
            fn from(value: $type) -> Integer {
                <$wide>::from(value).into()
            }
        }
    )*};
}

from_small!(i8 => i128, i16 => i128, i32 => i128, i64 => i128, u8 => u128, u16 => u128, u32 => u128, u64 => u128);

impl TryFrom<Integer> for i128 {
    type Error = OutOfRange;

    fn try_from(value: Integer) -> Result<i128, OutOfRange> {
        if value.negative {
            0i128.checked_sub_unsigned(value.magnitude).ok_or(OutOfRange)
        } else {
            value.magnitude.try_into().map_err(|_| OutOfRange)
        }
    }
}

impl TryFrom<Integer> for u128 {
    type Error = OutOfRange;

    fn try_from(value: Integer) -> Result<u128, OutOfRange> {
        if value.negative { Err(OutOfRange) } else { Ok(value.magnitude) }
    }
}

impl TryFrom<Integer> for i64 {
    type Error = OutOfRange;

    fn try_from(value: Integer) -> Result<i64, OutOfRange> {
        i128::try_from(value)?.try_into().map_err(|_| OutOfRange)
    }
}

impl TryFrom<Integer> for u64 {
    type Error = OutOfRange;

    fn try_from(value: Integer) -> Result<u64, OutOfRange> {
        u128::try_from(value)?.try_into().map_err(|_| OutOfRange)
    }
}

impl Integer {
    /// The nearest float.
    pub fn to_f64(self) -> f64 {
        let magnitude = self.magnitude as f64;
        if self.negative { -magnitude } else { magnitude }
    }

    pub(super) fn magnitude(self) -> u128 {
        self.magnitude
    }
}

impl fmt::Display for Integer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        write!(f, "{sign}{}", self.magnitude)
    }
}

impl FromStr for Integer {
    type Err = OutOfRange;

    /// Accepts digits with an optional minus sign, and nothing else.
    fn from_str(text: &str) -> Result<Integer, OutOfRange> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(OutOfRange);
        }
        if text.starts_with('-') {
            text.parse::<i128>().map(Integer::from).map_err(|_| OutOfRange)
        } else {
            text.parse::<u128>().map(Integer::from).map_err(|_| OutOfRange)
        }
    }
}
