//! The reader of JSON text that both codecs use.

use super::json_writer::{duplicate_key, too_deep};
use super::path_error::PathError;
use super::{DEPTH_MAX, Value};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;

/// A float of at least this size may be an integer that serde_json could not hold in 64 bits.
const WIDE: f64 = 9_223_372_036_854_775_808.0;

/// Reads JSON text as null, bools, numbers, strings, lists and objects.
///
/// Integers of up to 128 bits stay exact. JavaScript writes the float 1e20 with all its zeros, and Python writes integers of any
/// size; the type that is decoded decides which of the two it is.
pub(super) fn read(text: &str) -> Result<Value, PathError> {
    let wide = Cell::new(false);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = Seed { depth: 0, wide: &wide }.deserialize(&mut deserializer);
    let mut value =
        read.and_then(|value| deserializer.end().map(|()| value)).map_err(|error| not_json(&error))?;
    if wide.get() {
        let raw = serde_json::from_str(text).map_err(|error| not_json(&error))?;
        widen(&mut value, raw).map_err(|error| not_json(&error))?;
    }
    Ok(value)
}

fn not_json(error: &serde_json::Error) -> PathError {
    PathError::new(format_args!("the text cannot be read as JSON: {error}"))
}

/// Replaces floats by the integers that serde_json could not hold.
fn widen(value: &mut Value, raw: &RawValue) -> Result<(), serde_json::Error> {
    match value {
        Value::Float(float) if float.abs() >= WIDE => {
            if let Ok(integer) = raw.get().parse() {
                *value = Value::Integer(integer);
            }
            Ok(())
        }
        Value::List(items) => {
            let raws: Vec<&RawValue> = serde_json::from_str(raw.get())?;
            items.iter_mut().zip(raws).try_for_each(|(item, raw)| widen(item, raw))
        }
        Value::Object(entries) => {
            let raws: HashMap<String, &RawValue> = serde_json::from_str(raw.get())?;
            entries
                .iter_mut()
                .try_for_each(|(key, value)| raws.get(key.as_str()).map_or(Ok(()), |raw| widen(value, raw)))
        }
        _ => Ok(()),
    }
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    depth: usize,
    wide: &'a Cell<bool>,
}

impl Seed<'_> {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth = self.depth + 1;
        if depth > DEPTH_MAX { Err(E::custom(too_deep())) } else { Ok(Seed { depth, ..self }) }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Value, E> {
        Ok(Value::Bool(bool))
    }

    fn visit_i64<E>(self, integer: i64) -> Result<Value, E> {
        Ok(Value::Integer(integer.into()))
    }

    fn visit_u64<E>(self, integer: u64) -> Result<Value, E> {
        Ok(Value::Integer(integer.into()))
    }

    fn visit_f64<E>(self, float: f64) -> Result<Value, E> {
        if float.abs() >= WIDE {
            self.wide.set(true);
        }
        Ok(Value::Float(float))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let seed = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(seed)? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let seed = self.deeper()?;
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            entries.push((key, map.next_value_seed(seed)?));
        }
        match duplicate_key(entries.iter().map(|(key, _)| key.as_str())) {
            Some(key) => Err(A::Error::custom(format_args!("the key {key:?} occurs twice"))),
            None => Ok(Value::Object(entries)),
        }
    }
}
