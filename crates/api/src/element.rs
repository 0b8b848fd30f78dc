//! An element of a batch. One that cannot be read does not fail its neighbours.
//!
//! A body is first decoded in one go. If that fails inside an element, it is decoded again, and each element gets a reader of
//! its own ([`decode_apart`]). So only bodies with a malformed element are read twice.

use crate::budget::{Counted, ELEMENT, Elements};
use crate::format::{DecodeError, Positioned, message_pack};
use crate::object::Object;
use serde::de::{self, DeserializeOwned, IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;
use std::marker::PhantomData;

/// Messages are short, because they are not charged to the budget.
const MESSAGE_CHARS_MAX: usize = 300;

/// A value, or why it cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Element<T>(pub Result<T, DecodeError>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Element<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Element<T>, D::Error> {
        deserializer.deserialize_newtype_struct(ELEMENT, ElementVisitor(PhantomData))
    }
}

struct ElementVisitor<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for ElementVisitor<T> {
    type Value = Element<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    /// The reader is that of the whole body, so an error ends the decoding.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, reader: D) -> Result<Element<T>, D::Error> {
        Object::deserialize(reader).map(|Object(value)| Element(Ok(value)))
    }

    /// The reader has only this element.
    fn visit_some<D: Deserializer<'de>>(self, reader: D) -> Result<Element<T>, D::Error> {
        let read = serde_path_to_error::deserialize::<_, Object<T>>(reader);
        Ok(Element(read.map(|Object(value)| value).map_err(|error| malformed(&located(&error)))))
    }

    /// The element is skipped.
    fn visit_unit<E>(self) -> Result<Element<T>, E> {
        Ok(Element(Err(malformed("skipped"))))
    }
}

/// The message of an error, with its place.
pub(crate) fn located<E: fmt::Display>(error: &serde_path_to_error::Error<E>) -> String {
    let message = plain(placed(error.inner().to_string()));
    match error.path().to_string() {
        top if top == "." => message,
        path => format!("{path}: {message}"),
    }
}

/// How the messages of the JSON reader begin when the text is not JSON.
const SYNTAX: [&str; 11] = [
    "expected ",
    "EOF ",
    "trailing ",
    "key must be ",
    "invalid escape",
    "invalid number",
    "invalid unicode",
    "number out of range",
    "control character",
    "lone leading surrogate",
    "unexpected end of hex",
];

/// Keeps line and column only where the text is not JSON: otherwise the path and the value say where it is.
fn placed(mut message: String) -> String {
    if !SYNTAX.iter().any(|begin| message.starts_with(begin))
        && let Some(at) = message.rfind(" at line ")
    {
        message.truncate(at);
    }
    message
}

/// The words of JSON in place of those of Rust.
fn plain(message: String) -> String {
    let words = [
        ("invalid type: sequence", "invalid type: list"),
        ("invalid type: map", "invalid type: object"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected an object"),
        ("expected i64", "expected a whole number"),
        ("expected u64", "expected a whole number from 0"),
        ("expected f64", "expected a number"),
    ];
    words.into_iter().fold(message, |message, (word, plain)| message.replace(word, plain))
}

fn malformed(message: &str) -> DecodeError {
    // The reader of an element counts lines and columns from the start of the element.
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    DecodeError::Malformed(shortened(message, MESSAGE_CHARS_MAX))
}

/// Messages repeat names from the body, which may be long.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Decodes an element with a reader of its own, or skips it.
pub(crate) fn decode_apart<'de, D: Deserializer<'de>, V: Visitor<'de>>(
    reader: D,
    element: Counted<'_, V>,
) -> Result<V::Value, D::Error> {
    let pass = element.pass();
    let Elements::Apart(Positioned { body, position }) = pass.elements else {
        IgnoredAny::deserialize(reader)?;
        return element.visit_unit();
    };
    let decoded = if reader.is_human_readable() {
        let text = <&RawValue>::deserialize(reader)?;
        let mut own = serde_json::Deserializer::from_str(text.get());
        element.visit_some(&mut own).map_err(de::Error::custom)
    } else {
        let start = position.get();
        IgnoredAny::deserialize(reader)?;
        let mut own = message_pack(body.get(start..position.get()).unwrap_or_default());
        element.visit_some(&mut own).map_err(de::Error::custom)
    };
    match pass.budget.refused() {
        Some(_) => Err(de::Error::custom("the limit of the body is reached")),
        None => decoded,
    }
}
