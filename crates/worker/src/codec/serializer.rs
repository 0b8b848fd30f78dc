//! Serializes a type into a [`Value`].

use super::path_error::PathError;
use super::{ErrorValue, Value, deserializer, markers};
use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// The deepest nesting of a type: lists, fields, `Some`, newtypes. It limits the use of the stack, so it also counts levels
/// that do not appear in the text.
pub(super) const RECURSION_MAX: usize = 256;

/// A type may claim any length. At most this much is allocated before the items come.
const CAPACITY_MAX: usize = 1024;

pub(super) fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, PathError> {
    value.serialize(ValueSerializer { depth_left: RECURSION_MAX })
}

pub(super) fn recursion_error() -> PathError {
    PathError::new(format_args!("nested more than {RECURSION_MAX} deep; make it flatter"))
}

#[derive(Clone, Copy)]
struct ValueSerializer {
    depth_left: usize,
}

impl ValueSerializer {
    fn inner<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, PathError> {
        let depth_left = self.depth_left.checked_sub(1).ok_or_else(recursion_error)?;
        value.serialize(ValueSerializer { depth_left })
    }

    fn list(self, len: usize, variant: Option<&'static str>) -> ListSerializer {
        ListSerializer { value_serializer: self, items: Vec::with_capacity(len.min(CAPACITY_MAX)), variant }
    }

    fn object(self, len: usize, variant: Option<&'static str>) -> ObjectSerializer {
        ObjectSerializer {
            value_serializer: self,
            entries: Vec::with_capacity(len.min(CAPACITY_MAX)),
            variant,
        }
    }
}

/// A variant with content is an object whose only key is the name.
fn in_variant(variant: Option<&'static str>, content: Value) -> Value {
    match variant {
        None => content,
        Some(name) => Value::Object(vec![(name.to_owned(), content)]),
    }
}

fn in_variant_path(variant: Option<&'static str>, error: PathError) -> PathError {
    match variant {
        None => error,
        Some(name) => error.at_key(name),
    }
}

macro_rules! integers {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, value: $type) -> Result<Value, PathError> {
            Ok(Value::Integer(value.into()))
        }
    )*};
}

impl Serializer for ValueSerializer {
    type Ok = Value;
    type Error = PathError;
    type SerializeSeq = ListSerializer;
    type SerializeTuple = ListSerializer;
    type SerializeTupleStruct = ListSerializer;
    type SerializeTupleVariant = ListSerializer;
    type SerializeMap = MapSerializer;
    type SerializeStruct = ObjectSerializer;
    type SerializeStructVariant = ObjectSerializer;

    integers!(
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128
    );

    fn serialize_bool(self, value: bool) -> Result<Value, PathError> {
        Ok(Value::Bool(value))
    }

    fn serialize_f32(self, value: f32) -> Result<Value, PathError> {
        // Via its decimal digits: a direct conversion would turn 0.1 into 0.10000000149011612.
        let by_digits = value.to_string().parse::<f64>().ok().filter(|wide| *wide as f32 == value);
        Ok(Value::Float(by_digits.unwrap_or(f64::from(value))))
    }

    fn serialize_f64(self, value: f64) -> Result<Value, PathError> {
        Ok(Value::Float(value))
    }

    fn serialize_char(self, value: char) -> Result<Value, PathError> {
        Ok(Value::Text(value.into()))
    }

    fn serialize_str(self, value: &str) -> Result<Value, PathError> {
        Ok(Value::Text(value.to_owned()))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Value, PathError> {
        Ok(Value::Bytes(value.to_owned()))
    }

    fn serialize_none(self) -> Result<Value, PathError> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, PathError> {
        match self.inner(value)? {
            Value::Null | Value::Undefined => Err(PathError::new(
                "a Some without content would be read as None; use an enum instead of the Option",
            )),
            value => Ok(value),
        }
    }

    fn serialize_unit(self) -> Result<Value, PathError> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<Value, PathError> {
        Ok(if name == markers::UNDEFINED { Value::Undefined } else { Value::Null })
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Value, PathError> {
        Ok(Value::Text(variant.to_owned()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Value, PathError> {
        marked(name, self.inner(value)?)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, PathError> {
        let content = self.inner(value).map_err(|error| error.at_key(variant))?;
        Ok(in_variant(Some(variant), content))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<ListSerializer, PathError> {
        Ok(self.list(len.unwrap_or(0), None))
    }

    fn serialize_tuple(self, len: usize) -> Result<ListSerializer, PathError> {
        Ok(self.list(len, None))
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<ListSerializer, PathError> {
        Ok(self.list(len, None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<ListSerializer, PathError> {
        Ok(self.list(len, Some(variant)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<MapSerializer, PathError> {
        Ok(MapSerializer { value_serializer: self, key: None, entries: MapEntries::Object(Vec::new()) })
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<ObjectSerializer, PathError> {
        // serde_json uses structs of such names internally. As plain objects they would lose their meaning.
        if name.starts_with("$serde_json::private::") {
            return Err(PathError::new("a RawValue cannot be encoded; use serde_json::Value, or a string"));
        }
        Ok(self.object(len, None))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<ObjectSerializer, PathError> {
        Ok(self.object(len, Some(variant)))
    }
}

/// Turns the content of a marker newtype into the value that its name stands for.
fn marked(name: &str, value: Value) -> Result<Value, PathError> {
    Ok(match (name, value) {
        (markers::DATE, Value::Text(text)) => Value::Date(text.parse().map_err(PathError::new)?),
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

struct ListSerializer {
    value_serializer: ValueSerializer,
    items: Vec<Value>,
    variant: Option<&'static str>,
}

impl ListSerializer {
    fn push<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), PathError> {
        let value = self
            .value_serializer
            .inner(item)
            .map_err(|error| in_variant_path(self.variant, error.at_index(self.items.len())))?;
        self.items.push(value);
        Ok(())
    }

    fn finish(self) -> Value {
        in_variant(self.variant, Value::List(self.items))
    }
}

struct ObjectSerializer {
    value_serializer: ValueSerializer,
    entries: Vec<(String, Value)>,
    variant: Option<&'static str>,
}

impl ObjectSerializer {
    fn push<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), PathError> {
        let value = self
            .value_serializer
            .inner(value)
            .map_err(|error| in_variant_path(self.variant, error.at_key(key)))?;
        self.entries.push((key.to_owned(), value));
        Ok(())
    }

    fn finish(self) -> Value {
        in_variant(self.variant, Value::Object(self.entries))
    }
}

/// Implements a trait of serde for a type that collects values with `push` and ends with `finish`.
macro_rules! collects_values {
    ($($trait:ident::$method:ident for $type:ident $(by $key:ident)?;)*) => {$(
        impl $trait for $type {
            type Ok = Value;
            type Error = PathError;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($key: &'static str,)?
                value: &T,
            ) -> Result<(), PathError> {
                self.push($($key,)? value)
            }

            fn end(self) -> Result<Value, PathError> {
                Ok(self.finish())
            }
        }
    )*};
}

collects_values! {
    SerializeSeq::serialize_element for ListSerializer;
    SerializeTuple::serialize_element for ListSerializer;
    SerializeTupleStruct::serialize_field for ListSerializer;
    SerializeTupleVariant::serialize_field for ListSerializer;
    SerializeStruct::serialize_field for ObjectSerializer by key;
    SerializeStructVariant::serialize_field for ObjectSerializer by key;
}

struct MapSerializer {
    value_serializer: ValueSerializer,
    key: Option<Value>,
    entries: MapEntries,
}

/// An object, until a key is not a string.
enum MapEntries {
    Object(Vec<(String, Value)>),
    Map(Vec<(Value, Value)>),
}

impl SerializeMap for MapSerializer {
    type Ok = Value;
    type Error = PathError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), PathError> {
        self.key = Some(self.value_serializer.inner(key)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), PathError> {
        let Some(key) = self.key.take() else {
            return Err(PathError::new("a map was serialized with a value before its key"));
        };
        let value = self.value_serializer.inner(value).map_err(|error| error.at_key(&key.as_path_key()))?;
        match (&mut self.entries, key) {
            (MapEntries::Object(entries), Value::Text(key)) => entries.push((key, value)),
            (MapEntries::Map(entries), key) => entries.push((key, value)),
            (MapEntries::Object(entries), key) => {
                let objects =
                    std::mem::take(entries).into_iter().map(|(key, value)| (Value::Text(key), value));
                self.entries = MapEntries::Map(objects.chain([(key, value)]).collect());
            }
        }
        Ok(())
    }

    fn end(self) -> Result<Value, PathError> {
        Ok(match self.entries {
            MapEntries::Object(entries) => Value::Object(entries),
            MapEntries::Map(entries) => Value::Map(entries),
        })
    }
}
