//! The codec for JSON with tags: forms for JavaScript types that JSON lacks.

use super::json::no_bytes;
use super::json_reader;
use super::json_writer::JsonWriter;
use super::path_error::PathError;
use super::{Codec, CodecError, ErrorValue, Integer, Value, deserializer};
use jiff::Timestamp;
use std::collections::HashSet;

/// The key that makes an object a tag.
const TAG: &str = "$ayepi";

/// `Number.MAX_SAFE_INTEGER` of JavaScript: 2^53 - 1.
const SAFE_MAX: u128 = 9_007_199_254_740_991;

/// JSON with tags, in the format of the `ayepi` JavaScript workers.
///
/// | In Rust | In JavaScript | As text |
/// |---|---|---|
/// | [`Undefined`](super::Undefined) | `undefined` | `{"$ayepi":"undefined"}` |
/// | [`BigInt`](super::BigInt), integers beyond 2^53 - 1 | `BigInt` | `{"$ayepi":"BigInt","value":"123"}` |
/// | [`Date`](super::Date) | `Date` | `{"$ayepi":"Date","value":"1970-01-01T00:00:00.000Z"}` |
/// | [`Map`](super::Map), maps with a key that is not a string | `Map` | `{"$ayepi":"Map","value":[[1,"a"]]}` |
/// | [`Set`](super::Set) | `Set` | `{"$ayepi":"Set","value":["a"]}` |
/// | [`ErrorValue`](super::ErrorValue) | `Error` | `{"$ayepi":"Error","value":{"name":"TypeError","message":"..."}}` |
///
/// Everything else is plain JSON. The codec refuses what would be lost: NaN and the infinities, bytes, dates finer than a
/// millisecond, an object with a key `$ayepi` (it would be read as a tag), a key or a member that occurs twice.
///
/// Ordinary types also decode what JavaScript wrote: a `BigInt` as any integer that it fits, a `Set` as a `Vec`, a `Date` as
/// a string or a timestamp, `undefined` as `None`. A plain number beyond 2^53 - 1 is a float, since JavaScript has rounded
/// it; an integer field refuses it.
///
/// ```
/// use std::collections::BTreeMap;
/// use towline::codec::{Codec, Tagged};
///
/// let codec: &dyn Codec = &Tagged;
/// assert_eq!(codec.encode(&BTreeMap::from([(7, "seven")]))?, r#"{"$ayepi":"Map","value":[[7,"seven"]]}"#);
/// assert_eq!(codec.encode(&u64::MAX)?, r#"{"$ayepi":"BigInt","value":"18446744073709551615"}"#);
/// assert_eq!(codec.decode::<u8>(r#"{"$ayepi":"BigInt","value":"7"}"#)?, 7);
/// assert_eq!(codec.decode::<Vec<String>>(r#"{"$ayepi":"Set","value":["a"]}"#)?, ["a"]);
/// # Ok::<(), towline::codec::CodecError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Tagged;

impl Codec for Tagged {
    fn write(&self, value: &Value) -> Result<String, CodecError> {
        let mut writer = JsonWriter::default();
        write(&mut writer, value)?;
        Ok(writer.finish()?)
    }

    fn read(&self, text: &str) -> Result<Value, CodecError> {
        Ok(untag(json_reader::read(text)?)?)
    }
}

fn is_safe(integer: Integer) -> bool {
    integer.magnitude() <= SAFE_MAX
}

fn write(writer: &mut JsonWriter, value: &Value) -> Result<(), PathError> {
    match value {
        Value::Null => writer.raw("null"),
        Value::Undefined => {
            writer.open(b'{')?;
            writer.raw(r#""$ayepi":"undefined""#);
            writer.close(b'}');
        }
        Value::Bool(bool) => writer.raw(if *bool { "true" } else { "false" }),
        Value::Integer(integer) if is_safe(*integer) => writer.integer(*integer),
        Value::Integer(integer) | Value::BigInt(integer) => {
            writer.tag("BigInt", |writer| writer.text(&integer.to_string()))?;
        }
        Value::Float(float) => writer.float(*float)?,
        Value::Text(text) => writer.text(text)?,
        Value::Bytes(_) => return Err(no_bytes()),
        Value::List(items) => writer.list(items, write)?,
        Value::Set(items) => {
            let mut seen = HashSet::new();
            writer.tag("Set", |writer| {
                writer.list(items, |writer, item| write_unique(writer, item, &mut seen))
            })?;
        }
        Value::Object(entries) => {
            if entries.iter().any(|(key, _)| key == TAG) {
                return Err(PathError::new(format_args!(
                    "an object with the key \"{TAG}\" would be read as a tag; rename the key, or use a codec::Map"
                )));
            }
            writer.object(entries.iter().map(|(key, value)| (key.as_str(), value)), write)?;
        }
        Value::Map(entries) => write_map(writer, entries)?,
        Value::Date(date) => {
            let text = iso_string(*date)?;
            writer.tag("Date", |writer| writer.text(&text))?;
        }
        Value::Error(error) => writer.tag("Error", |writer| super::json::write_error(writer, error))?,
    }
    Ok(())
}

fn write_map(writer: &mut JsonWriter, entries: &[(Value, Value)]) -> Result<(), PathError> {
    let mut seen = HashSet::new();
    writer.tag("Map", |writer| {
        writer.open(b'[')?;
        for (at, (key, value)) in entries.iter().enumerate() {
            if at > 0 {
                writer.raw(",");
            }
            writer.open(b'[')?;
            write_unique(writer, key, &mut seen)?;
            writer.raw(",");
            write(writer, value).map_err(|error| error.at_key(&key.as_path_key()))?;
            writer.close(b']');
        }
        writer.close(b']');
        Ok(())
    })
}

/// Writes a key or a member of a set. Refuses a duplicate: JavaScript and Rust would both keep only one of them.
fn write_unique(
    writer: &mut JsonWriter,
    value: &Value,
    seen: &mut HashSet<Vec<u8>>,
) -> Result<(), PathError> {
    let start = writer.len();
    write(writer, value)?;
    let text = match value {
        // In JavaScript 1.0 equals 1. In a Map or a Set -0.0 equals 0.
        Value::Float(float) => (float + 0.0).to_string().into_bytes(),
        _ => writer.since(start).to_owned(),
    };
    match seen.replace(text) {
        None => Ok(()),
        Some(text) => Err(PathError::new(format_args!(
            "{} occurs twice; keys of a map and members of a set must be unique",
            String::from_utf8_lossy(&text)
        ))),
    }
}

/// The date as JavaScript's `toISOString` writes it.
fn iso_string(date: Timestamp) -> Result<String, PathError> {
    if date.subsec_nanosecond() % 1_000_000 != 0 {
        return Err(PathError::new(format_args!(
            "{date} is finer than a millisecond, which a Date in JavaScript cannot hold; round it with \
             round(jiff::Unit::Millisecond), or use a string"
        )));
    }
    Ok(format!("{date:.3}"))
}

/// Replaces tags by the values that they stand for.
fn untag(value: Value) -> Result<Value, PathError> {
    match value {
        Value::Integer(integer) if !is_safe(integer) => Ok(Value::Float(integer.to_f64())),
        Value::List(items) => Ok(Value::List(untag_all(items)?)),
        Value::Object(entries) if entries.iter().any(|(key, _)| key == TAG) => untag_one(entries),
        Value::Object(entries) => {
            let untagged = entries.into_iter().map(|(key, value)| match untag(value) {
                Ok(value) => Ok((key, value)),
                Err(error) => Err(error.at_key(&key)),
            });
            Ok(Value::Object(untagged.collect::<Result<_, _>>()?))
        }
        other => Ok(other),
    }
}

fn untag_all(items: Vec<Value>) -> Result<Vec<Value>, PathError> {
    let untagged = items.into_iter().enumerate();
    untagged.map(|(at, item)| untag(item).map_err(|error| error.at_index(at))).collect()
}

fn untag_one(entries: Vec<(String, Value)>) -> Result<Value, PathError> {
    let (mut name, mut content) = (None, None);
    for (key, value) in entries {
        match (key.as_str(), value) {
            (TAG, Value::Text(text)) => name = Some(text),
            (TAG, other) => {
                return Err(PathError::new(format_args!("{} is not the name of a tag", other.kind())));
            }
            ("value", value) => content = Some(value),
            (key, _) => return Err(PathError::new(format_args!("a tag cannot have the key {key:?}"))),
        }
    }
    match (name.as_deref().unwrap_or_default(), content) {
        ("undefined", None) => Ok(Value::Undefined),
        ("BigInt", Some(Value::Text(digits))) => digits.parse().map(Value::BigInt).map_err(|_| {
            PathError::new(format_args!(
                "the BigInt {digits:?} is not an integer of at most 128 bits, in decimal digits"
            ))
        }),
        ("Date", Some(Value::Text(text))) => text
            .parse()
            .map(Value::Date)
            .map_err(|error| PathError::new(format_args!("the Date {text:?} cannot be read: {error}"))),
        ("Set", Some(Value::List(items))) => {
            let items = untag_all(items)?;
            refuse_duplicates(&items)?;
            Ok(Value::Set(items))
        }
        ("Map", Some(Value::List(pairs))) => untag_map(pairs),
        ("Error", Some(fields @ Value::Object(_))) => {
            let error = untag(fields).and_then(deserializer::from_value::<ErrorValue>);
            error
                .map(Value::Error)
                .map_err(|error| PathError::new(format_args!("the Error cannot be read: {error}")))
        }
        (name @ ("undefined" | "BigInt" | "Date" | "Set" | "Map" | "Error"), content) => {
            Err(PathError::new(match content {
                Some(content) => format!("the tag {name:?} cannot hold {}", content.kind()),
                None => format!("the tag {name:?} needs a value"),
            }))
        }
        (name, _) => Err(PathError::new(format_args!(
            "the tag {name:?} is unknown; use undefined, BigInt, Date, Map, Set or Error"
        ))),
    }
}

fn untag_map(pairs: Vec<Value>) -> Result<Value, PathError> {
    let mut entries = Vec::with_capacity(pairs.len());
    for (at, pair) in pairs.into_iter().enumerate() {
        let Value::List(pair) = pair else {
            return Err(PathError::new(format_args!("{} is not a pair of a key and a value", pair.kind()))
                .at_index(at));
        };
        let [key, value] = <[Value; 2]>::try_from(pair).map_err(|pair| {
            PathError::new(format_args!("{} items are not a pair of a key and a value", pair.len()))
                .at_index(at)
        })?;
        let key = untag(key)?;
        let value = untag(value).map_err(|error| error.at_key(&key.as_path_key()))?;
        entries.push((key, value));
    }
    refuse_duplicates(entries.iter().map(|(key, _)| key))?;
    Ok(Value::Map(entries))
}

/// Refuses duplicates. Compares the values as text.
fn refuse_duplicates<'a>(values: impl IntoIterator<Item = &'a Value>) -> Result<(), PathError> {
    let mut seen = HashSet::new();
    for value in values {
        let mut writer = JsonWriter::default();
        write_unique(&mut writer, value, &mut seen)?;
    }
    Ok(())
}
