//! JSON text: a writer that both codecs drive, and the reading of any text into a plain value.

use super::fault::Fault;
use super::{DEPTH_MAX, Integer, Value};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// From here on a float may be an integer that serde_json could not hold in 64 bits.
const WIDE: f64 = 9_223_372_036_854_775_808.0;

const FEW: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Writer {
    out: Vec<u8>,
    depth: usize,
}

impl Writer {
    pub(super) fn finish(self) -> Result<String, Fault> {
        String::from_utf8(self.out).map_err(Fault::new)
    }

    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// What was written after the text had this length.
    pub(super) fn since(&self, len: usize) -> &[u8] {
        &self.out[len..]
    }

    pub(super) fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn integer(&mut self, integer: Integer) {
        self.raw(&integer.to_string());
    }

    /// A float as serde_json writes it: always with a point or an exponent, so that it is read as a float again.
    pub(super) fn float(&mut self, float: f64) -> Result<(), Fault> {
        if !float.is_finite() {
            return Err(Fault::new(format_args!(
                "{float} cannot be written as JSON; use an Option, or a text"
            )));
        }
        serde_json::to_writer(&mut self.out, &float).map_err(Fault::new)
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), Fault> {
        serde_json::to_writer(&mut self.out, text).map_err(Fault::new)
    }

    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Writer, T) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.open(b'[')?;
        for (at, item) in items.into_iter().enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            write(self, item).map_err(|fault| fault.at_index(at))?;
        }
        self.close(b']');
        Ok(())
    }

    /// An object of these entries. A key that comes twice is refused: a reader would take one of the two.
    pub(super) fn object<'a, T>(
        &mut self,
        entries: impl Iterator<Item = (&'a str, T)> + Clone,
        mut write: impl FnMut(&mut Writer, T) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if let Some(key) = key_twice(entries.clone().map(|(key, _)| key)) {
            return Err(Fault::new(format_args!("the key {key:?} is there twice; rename one of the two")));
        }
        self.open(b'{')?;
        for (at, (key, value)) in entries.enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            self.text(key)?;
            self.out.push(b':');
            write(self, value).map_err(|fault| fault.at_key(key))?;
        }
        self.close(b'}');
        Ok(())
    }

    /// `{"$ayepi":"<name>","value":...}`, whose levels no path names.
    pub(super) fn tag(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut Writer) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.open(b'{')?;
        self.raw(r#""$ayepi":""#);
        self.raw(name);
        self.raw(r#"","value":"#);
        write(self)?;
        self.close(b'}');
        Ok(())
    }

    pub(super) fn open(&mut self, bracket: u8) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(too_deep());
        }
        self.out.push(bracket);
        Ok(())
    }

    pub(super) fn close(&mut self, bracket: u8) {
        self.depth -= 1;
        self.out.push(bracket);
    }
}

/// A key that is among the keys more than once.
fn key_twice<'a>(mut keys: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    // Few keys, as most objects have, are compared faster than hashed.
    if keys.clone().nth(FEW).is_some() {
        let mut seen = HashSet::new();
        return keys.find(|key| !seen.insert(*key));
    }
    while let Some(key) = keys.next() {
        if keys.clone().any(|other| other == key) {
            return Some(key);
        }
    }
    None
}

fn too_deep() -> Fault {
    Fault::new(format_args!("nested more than {DEPTH_MAX} deep; make it flatter"))
}

/// The value of a JSON text: null, bools, numbers, texts, lists and objects.
///
/// Integers up to 128 bits are exact, whatever their width: a field of floats may have been written by JavaScript,
/// which writes 1e20 with all its zeros, and one of integers by Python, which knows no bounds.
pub(super) fn read(text: &str) -> Result<Value, Fault> {
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

fn not_json(error: &serde_json::Error) -> Fault {
    Fault::new(format_args!("the text cannot be read as JSON: {error}"))
}

/// Puts integers where serde_json, short of bits, left the nearest float.
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
        match key_twice(entries.iter().map(|(key, _)| key.as_str())) {
            Some(key) => Err(A::Error::custom(format_args!("the key {key:?} is there twice"))),
            None => Ok(Value::Object(entries)),
        }
    }
}
