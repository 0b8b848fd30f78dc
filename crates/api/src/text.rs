//! A value that is text on the wire and may be malformed.

use crate::invalid::invalid;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use towline_domain::Refusal;

/// How many characters of a bad value an error message repeats.
const SHOWN_MAX: usize = 100;

/// Decoding never fails. [`Text::into_domain`] refuses a bad value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text<T> {
    Good(T),
    Bad { text: String, why: String },
}

impl<T> Text<T> {
    pub fn into_domain(self, what: &'static str) -> Result<T, Refusal> {
        match self {
            Text::Good(value) => Ok(value),
            Text::Bad { text, why } => Err(invalid(what, format!("{text:?}: {why}"))),
        }
    }
}

impl<T> From<T> for Text<T> {
    fn from(value: T) -> Text<T> {
        Text::Good(value)
    }
}

impl<T: FromStr<Err: fmt::Display>> Text<T> {
    #[must_use]
    pub fn parse(text: &str) -> Text<T> {
        match text.parse() {
            Ok(value) => Text::Good(value),
            Err(error) => {
                Text::Bad { text: text.chars().take(SHOWN_MAX).collect(), why: T::Err::to_string(&error) }
            }
        }
    }
}

impl<T: fmt::Display> fmt::Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Text::Good(value) => value.fmt(f),
            Text::Bad { text, .. } => f.write_str(text),
        }
    }
}

impl<T: fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<T>, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<T: FromStr<Err: fmt::Display>> de::Visitor<'_> for Visitor<T> {
            type Value = Text<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<T>, E> {
                Ok(Text::parse(text))
            }
        }
        deserializer.deserialize_str(Visitor(PhantomData))
    }
}
