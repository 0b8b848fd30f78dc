//! The codec for plain JSON.

use super::json_reader;
use super::json_writer::JsonWriter;
use super::path_error::PathError;
use super::{Codec, CodecError, ErrorValue, Integer, Value};
use std::borrow::Cow;

/// Plain JSON, as serde_json writes it. The default codec.
///
/// It refuses what JSON could not return unchanged: NaN and the infinities; integers that fit neither `i64` nor `u64`; bytes
/// in the sense of serde (a `Vec<u8>` is a list of numbers and allowed); maps whose keys are not all strings, all integers or
/// all bools; a key that occurs twice; `Some(None)`. It writes the [marker types](super::Date) in their plain forms.
///
/// One loss cannot be detected, since serde does not report it: if a map key is an untagged enum, an integer or bool key comes
/// back as a string, if the enum has a string variant.
///
/// ```
/// use std::collections::HashMap;
/// use towline::codec::{Codec, Json};
///
/// let codec: &dyn Codec = &Json;
/// assert_eq!(codec.encode(&HashMap::from([(7, "seven")]))?, r#"{"7":"seven"}"#);
///
/// let refused = codec.encode(&HashMap::from([((1, 2), "pair")])).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "a list cannot be a key in JSON; use keys that are strings, integers or bools, a list of pairs, \
///      or the tagged codec",
/// );
/// # Ok::<(), towline::codec::CodecError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl Codec for Json {
    fn write(&self, value: &Value) -> Result<String, CodecError> {
        let mut writer = JsonWriter::default();
        write(&mut writer, value)?;
        Ok(writer.finish()?)
    }

    fn read(&self, text: &str) -> Result<Value, CodecError> {
        Ok(json_reader::read(text)?)
    }
}

fn write(writer: &mut JsonWriter, value: &Value) -> Result<(), PathError> {
    match value {
        Value::Null | Value::Undefined => writer.raw("null"),
        Value::Bool(bool) => writer.raw(if *bool { "true" } else { "false" }),
        Value::Integer(integer) | Value::BigInt(integer) => {
            if !fits_64_bits(*integer) {
                return Err(PathError::new(format_args!(
                    "{integer} does not fit 64 bits, and JSON readers would round it; use a string, or the tagged codec"
                )));
            }
            writer.integer(*integer);
        }
        Value::Float(float) => writer.float(*float)?,
        Value::Text(text) => writer.text(text)?,
        Value::Bytes(_) => return Err(no_bytes()),
        Value::List(items) | Value::Set(items) => writer.list(items, write)?,
        Value::Object(entries) => {
            writer.object(entries.iter().map(|(key, value)| (key.as_str(), value)), write)?;
        }
        Value::Map(entries) => {
            let keys = keys(entries)?;
            writer
                .object(keys.iter().map(AsRef::as_ref).zip(entries.iter().map(|(_, value)| value)), write)?;
        }
        Value::Date(date) => writer.text(&date.to_string())?,
        Value::Error(error) => write_error(writer, error)?,
    }
    Ok(())
}

pub(super) fn write_error(writer: &mut JsonWriter, error: &ErrorValue) -> Result<(), PathError> {
    let stack = error.stack.as_deref().map(|stack| ("stack", stack));
    let fields =
        [("name", error.name.as_str()), ("message", error.message.as_str())].into_iter().chain(stack);
    writer.object(fields, JsonWriter::text)
}

pub(super) fn no_bytes() -> PathError {
    PathError::new(
        "bytes cannot be written as JSON; use a list of numbers (Vec<u8> without serde_bytes), or a string",
    )
}

fn fits_64_bits(integer: Integer) -> bool {
    i64::try_from(integer).is_ok() || u64::try_from(integer).is_ok()
}

/// The keys as strings. All must have the same type: 1 and "1" would become the same key.
fn keys(entries: &[(Value, Value)]) -> Result<Vec<Cow<'_, str>>, PathError> {
    let mut kinds = entries.iter().map(|(key, _)| std::mem::discriminant(key));
    if let Some(first) = kinds.next()
        && !kinds.all(|kind| kind == first)
    {
        return Err(PathError::new(
            "the keys of this map have several types, and in JSON they would all be strings; use keys of one type, a \
             list of pairs, or the tagged codec",
        ));
    }
    entries.iter().map(|(key, _)| key_text(key)).collect()
}

fn key_text(key: &Value) -> Result<Cow<'_, str>, PathError> {
    match key {
        Value::Text(text) => Ok(Cow::Borrowed(text)),
        Value::Integer(integer) | Value::BigInt(integer) => Ok(Cow::Owned(integer.to_string())),
        Value::Bool(bool) => Ok(Cow::Borrowed(if *bool { "true" } else { "false" })),
        Value::Date(date) => Ok(Cow::Owned(date.to_string())),
        other => Err(PathError::new(format_args!(
            "{} cannot be a key in JSON; use keys that are strings, integers or bools, a list of pairs, or the tagged \
             codec",
            other.kind()
        ))),
    }
}
