//! Plain JSON, that any language reads.

use super::fault::Fault;
use super::text::{self, Writer};
use super::{Codec, CodecError, ErrorValue, Integer, Value};
use std::borrow::Cow;

/// Plain JSON, as serde_json writes it. The default.
///
/// Refused, for JSON could not give it back: NaN and the infinities; integers that fit neither `i64` nor `u64`; bytes
/// (what serde calls bytes: a `Vec<u8>` is a list of numbers, and fine); maps whose keys are not all text, all
/// integers or all bools; a key that is there twice; `Some(None)`. The [marker types](super::Date) are their plain
/// forms, and read from them.
///
/// Not seen, for serde does not tell: a key that is an untagged enum's integer or bool comes back as its text if the
/// enum has a variant for that.
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
///     "a list cannot be a key in JSON; use keys that are text, integers or bools, a list of pairs, \
///      or the tagged codec",
/// );
/// # Ok::<(), towline::codec::CodecError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl Codec for Json {
    fn write(&self, value: &Value) -> Result<String, CodecError> {
        let mut writer = Writer::default();
        write(&mut writer, value)?;
        Ok(writer.finish()?)
    }

    fn read(&self, text: &str) -> Result<Value, CodecError> {
        Ok(text::read(text)?)
    }
}

fn write(writer: &mut Writer, value: &Value) -> Result<(), Fault> {
    match value {
        Value::Null | Value::Undefined => writer.raw("null"),
        Value::Bool(bool) => writer.raw(if *bool { "true" } else { "false" }),
        Value::Integer(integer) | Value::BigInt(integer) => {
            if !fits_64_bits(*integer) {
                return Err(Fault::new(format_args!(
                    "{integer} does not fit 64 bits, and JSON readers would round it; use a text, or the tagged codec"
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

pub(super) fn write_error(writer: &mut Writer, error: &ErrorValue) -> Result<(), Fault> {
    let stack = error.stack.as_deref().map(|stack| ("stack", stack));
    let fields =
        [("name", error.name.as_str()), ("message", error.message.as_str())].into_iter().chain(stack);
    writer.object(fields, Writer::text)
}

pub(super) fn no_bytes() -> Fault {
    Fault::new(
        "bytes cannot be written as JSON; use a list of numbers (Vec<u8> without serde_bytes), or a text",
    )
}

fn fits_64_bits(integer: Integer) -> bool {
    i64::try_from(integer).is_ok() || u64::try_from(integer).is_ok()
}

/// The keys as text. All are of one kind: 1 and "1" would be read as one.
fn keys(entries: &[(Value, Value)]) -> Result<Vec<Cow<'_, str>>, Fault> {
    let mut kinds = entries.iter().map(|(key, _)| std::mem::discriminant(key));
    if let Some(first) = kinds.next()
        && !kinds.all(|kind| kind == first)
    {
        return Err(Fault::new(
            "the keys of this map are of several kinds, and in JSON they would all be text; use keys of one kind, a \
             list of pairs, or the tagged codec",
        ));
    }
    entries.iter().map(|(key, _)| key_text(key)).collect()
}

fn key_text(key: &Value) -> Result<Cow<'_, str>, Fault> {
    match key {
        Value::Text(text) => Ok(Cow::Borrowed(text)),
        Value::Integer(integer) | Value::BigInt(integer) => Ok(Cow::Owned(integer.to_string())),
        Value::Bool(bool) => Ok(Cow::Borrowed(if *bool { "true" } else { "false" })),
        Value::Date(date) => Ok(Cow::Owned(date.to_string())),
        other => Err(Fault::new(format_args!(
            "{} cannot be a key in JSON; use keys that are text, integers or bools, a list of pairs, or the tagged \
             codec",
            other.kind()
        ))),
    }
}
