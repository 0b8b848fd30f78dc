//! From a type to a value.

use super::fault::Fault;
use super::{ErrorValue, Value, deserializer, markers};
use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// How many steps a type may go down: into a list, a field, a `Some`, a newtype. Bounds the stack, so it counts also
/// what leaves no trace in the text.
pub(super) const STEPS_MAX: usize = 256;

/// A length that a type claims is not to be trusted with memory.
const CAPACITY_MAX: usize = 1024;

pub(super) fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, Fault> {
    value.serialize(ToValue { steps_left: STEPS_MAX })
}

pub(super) fn too_many_steps() -> Fault {
    Fault::new(format_args!("nested more than {STEPS_MAX} deep; make it flatter"))
}

#[derive(Clone, Copy)]
struct ToValue {
    steps_left: usize,
}

impl ToValue {
    fn inner<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Fault> {
        let steps_left = self.steps_left.checked_sub(1).ok_or_else(too_many_steps)?;
        value.serialize(ToValue { steps_left })
    }

    fn list(self, len: usize, variant: Option<&'static str>) -> ToList {
        ToList { to_value: self, items: Vec::with_capacity(len.min(CAPACITY_MAX)), variant }
    }

    fn object(self, len: usize, variant: Option<&'static str>) -> ToObject {
        ToObject { to_value: self, entries: Vec::with_capacity(len.min(CAPACITY_MAX)), variant }
    }
}

/// A variant with content is an object with its name as the one key.
fn in_variant(variant: Option<&'static str>, content: Value) -> Value {
    match variant {
        None => content,
        Some(name) => Value::Object(vec![(name.to_owned(), content)]),
    }
}

fn at_variant(variant: Option<&'static str>, fault: Fault) -> Fault {
    match variant {
        None => fault,
        Some(name) => fault.at_key(name),
    }
}

macro_rules! integers {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, value: $type) -> Result<Value, Fault> {
            Ok(Value::Integer(value.into()))
        }
    )*};
}

impl Serializer for ToValue {
    type Ok = Value;
    type Error = Fault;
    type SerializeSeq = ToList;
    type SerializeTuple = ToList;
    type SerializeTupleStruct = ToList;
    type SerializeTupleVariant = ToList;
    type SerializeMap = ToMap;
    type SerializeStruct = ToObject;
    type SerializeStructVariant = ToObject;

    integers!(
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128
    );

    fn serialize_bool(self, value: bool) -> Result<Value, Fault> {
        Ok(Value::Bool(value))
    }

    fn serialize_f32(self, value: f32) -> Result<Value, Fault> {
        // 0.1 stays 0.1: widened bit by bit it would be written 0.10000000149011612.
        let by_digits = value.to_string().parse::<f64>().ok().filter(|wide| *wide as f32 == value);
        Ok(Value::Float(by_digits.unwrap_or(f64::from(value))))
    }

    fn serialize_f64(self, value: f64) -> Result<Value, Fault> {
        Ok(Value::Float(value))
    }

    fn serialize_char(self, value: char) -> Result<Value, Fault> {
        Ok(Value::Text(value.into()))
    }

    fn serialize_str(self, value: &str) -> Result<Value, Fault> {
        Ok(Value::Text(value.to_owned()))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Value, Fault> {
        Ok(Value::Bytes(value.to_owned()))
    }

    fn serialize_none(self) -> Result<Value, Fault> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Fault> {
        match self.inner(value)? {
            // Some(None) and Some(()) would be read as None.
            Value::Null | Value::Undefined => Err(Fault::new(
                "a Some that holds nothing cannot be told from None; use an enum of your own instead of the Option",
            )),
            value => Ok(value),
        }
    }

    fn serialize_unit(self) -> Result<Value, Fault> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<Value, Fault> {
        Ok(if name == markers::UNDEFINED { Value::Undefined } else { Value::Null })
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value, Fault> {
        Ok(Value::Text(variant.to_owned()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Value, Fault> {
        marked(name, self.inner(value)?)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, Fault> {
        let content = self.inner(value).map_err(|fault| fault.at_key(variant))?;
        Ok(in_variant(Some(variant), content))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<ToList, Fault> {
        Ok(self.list(len.unwrap_or(0), None))
    }

    fn serialize_tuple(self, len: usize) -> Result<ToList, Fault> {
        Ok(self.list(len, None))
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<ToList, Fault> {
        Ok(self.list(len, None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<ToList, Fault> {
        Ok(self.list(len, Some(variant)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<ToMap, Fault> {
        Ok(ToMap { to_value: self, key: None, entries: Entries::Object(Vec::new()) })
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<ToObject, Fault> {
        // serde_json speaks to itself in structs of such names; as objects they would not be what they stand for.
        if name.starts_with("$serde_json::private::") {
            return Err(Fault::new("a RawValue cannot be encoded; use serde_json::Value, or a text"));
        }
        Ok(self.object(len, None))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<ToObject, Fault> {
        Ok(self.object(len, Some(variant)))
    }
}

/// What a newtype holds, as what its name says it is.
fn marked(name: &str, value: Value) -> Result<Value, Fault> {
    Ok(match (name, value) {
        (markers::DATE, Value::Text(text)) => Value::Date(text.parse().map_err(Fault::new)?),
        (markers::SET, Value::List(items)) => Value::Set(items),
        (markers::MAP, Value::Object(entries)) => {
            Value::Map(entries.into_iter().map(|(key, value)| (Value::Text(key), value)).collect())
        }
        (markers::BIG_INT, Value::Integer(integer)) => Value::BigInt(integer),
        (markers::ERROR, error @ Value::Object(_)) => {
            Value::Error(deserializer::from_value::<ErrorValue>(error)?)
        }
        (_, value) => value,
    })
}

struct ToList {
    to_value: ToValue,
    items: Vec<Value>,
    variant: Option<&'static str>,
}

impl ToList {
    fn push<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Fault> {
        let value = self
            .to_value
            .inner(item)
            .map_err(|fault| at_variant(self.variant, fault.at_index(self.items.len())))?;
        self.items.push(value);
        Ok(())
    }

    fn finish(self) -> Value {
        in_variant(self.variant, Value::List(self.items))
    }
}

impl SerializeSeq for ToList {
    type Ok = Value;
    type Error = Fault;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Fault> {
        self.push(item)
    }

    fn end(self) -> Result<Value, Fault> {
        Ok(self.finish())
    }
}

impl SerializeTuple for ToList {
    type Ok = Value;
    type Error = Fault;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Fault> {
        self.push(item)
    }

    fn end(self) -> Result<Value, Fault> {
        Ok(self.finish())
    }
}

impl SerializeTupleStruct for ToList {
    type Ok = Value;
    type Error = Fault;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Fault> {
        self.push(item)
    }

    fn end(self) -> Result<Value, Fault> {
        Ok(self.finish())
    }
}

impl SerializeTupleVariant for ToList {
    type Ok = Value;
    type Error = Fault;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Fault> {
        self.push(item)
    }

    fn end(self) -> Result<Value, Fault> {
        Ok(self.finish())
    }
}

struct ToObject {
    to_value: ToValue,
    entries: Vec<(String, Value)>,
    variant: Option<&'static str>,
}

impl ToObject {
    fn push<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Fault> {
        let value =
            self.to_value.inner(value).map_err(|fault| at_variant(self.variant, fault.at_key(key)))?;
        self.entries.push((key.to_owned(), value));
        Ok(())
    }

    fn finish(self) -> Value {
        in_variant(self.variant, Value::Object(self.entries))
    }
}

impl SerializeStruct for ToObject {
    type Ok = Value;
    type Error = Fault;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Fault> {
        self.push(key, value)
    }

    fn end(self) -> Result<Value, Fault> {
        Ok(self.finish())
    }
}

impl SerializeStructVariant for ToObject {
    type Ok = Value;
    type Error = Fault;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Fault> {
        self.push(key, value)
    }

    fn end(self) -> Result<Value, Fault> {
        Ok(self.finish())
    }
}

struct ToMap {
    to_value: ToValue,
    key: Option<Value>,
    entries: Entries,
}

/// An object until a key comes that is no text.
enum Entries {
    Object(Vec<(String, Value)>),
    Map(Vec<(Value, Value)>),
}

impl SerializeMap for ToMap {
    type Ok = Value;
    type Error = Fault;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Fault> {
        self.key = Some(self.to_value.inner(key)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        let Some(key) = self.key.take() else {
            return Err(Fault::new("a map was serialized with a value before its key"));
        };
        let value = self.to_value.inner(value).map_err(|fault| fault.at_key(&key.as_path_key()))?;
        match (&mut self.entries, key) {
            (Entries::Object(entries), Value::Text(key)) => entries.push((key, value)),
            (Entries::Map(entries), key) => entries.push((key, value)),
            (Entries::Object(entries), key) => {
                let texts = std::mem::take(entries).into_iter().map(|(key, value)| (Value::Text(key), value));
                self.entries = Entries::Map(texts.chain([(key, value)]).collect());
            }
        }
        Ok(())
    }

    fn end(self) -> Result<Value, Fault> {
        Ok(match self.entries {
            Entries::Object(entries) => Value::Object(entries),
            Entries::Map(entries) => Value::Map(entries),
        })
    }
}
