//! From a value to a type.

use super::fault::Fault;
use super::key::FromKey;
use super::serializer::{STEPS_MAX, too_many_steps};
use super::{Integer, Value};
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

pub(super) fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Fault> {
    T::deserialize(FromValue { value, steps_left: STEPS_MAX })
}

struct FromValue {
    value: Value,
    steps_left: usize,
}

pub(super) fn one_less(steps_left: usize) -> Result<usize, Fault> {
    steps_left.checked_sub(1).ok_or_else(too_many_steps)
}

pub(super) fn visit_integer<'de, V: Visitor<'de>>(integer: Integer, visitor: V) -> Result<V::Value, Fault> {
    if let Ok(small) = u64::try_from(integer) {
        visitor.visit_u64(small)
    } else if let Ok(small) = i64::try_from(integer) {
        visitor.visit_i64(small)
    } else if let Ok(wide) = i128::try_from(integer) {
        visitor.visit_i128(wide)
    } else {
        visitor.visit_u128(integer.magnitude())
    }
}

impl FromValue {
    fn visit_list<'de, V: Visitor<'de>>(
        items: Vec<Value>,
        steps_left: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let count = items.len();
        let mut list = FromList { items: items.into_iter(), at: 0, steps_left: one_less(steps_left)? };
        let result = visitor.visit_seq(&mut list)?;
        if list.items.len() > 0 {
            // A tuple that took what it wanted: the rest would be lost.
            return Err(Fault::invalid_length(count, &"fewer items"));
        }
        Ok(result)
    }

    fn visit_entries<'de, K: EntryKey, V: Visitor<'de>>(
        entries: Vec<(K, Value)>,
        steps_left: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let count = entries.len();
        let mut map =
            FromEntries { entries: entries.into_iter(), value: None, steps_left: one_less(steps_left)? };
        let result = visitor.visit_map(&mut map)?;
        if map.entries.len() > 0 {
            return Err(Fault::invalid_length(count, &"fewer entries"));
        }
        Ok(result)
    }

    /// What a variant's name is followed by, and the name.
    fn variant(self) -> Result<(String, Option<Value>), Fault> {
        let (key, content) = match self.value {
            Value::Text(name) => return Ok((name, None)),
            Value::Object(mut entries) if entries.len() == 1 => match entries.pop() {
                Some(entry) => entry,
                None => return Err(Fault::new("an empty object is no enum")),
            },
            Value::Map(mut entries) if entries.len() == 1 => match entries.pop() {
                Some((Value::Text(key), content)) => (key, content),
                _ => return Err(Fault::new("a map with a key that is no text is no enum")),
            },
            other => {
                return Err(Fault::new(format_args!(
                    "{} is no enum; a variant's name is expected, or an object with the name as its one key",
                    other.kind()
                )));
            }
        };
        Ok((key, Some(content)))
    }
}

macro_rules! integers {
    ($($method:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.deserialize_integer(visitor)
        }
    )*};
}

impl FromValue {
    fn deserialize_integer<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Float(float) if float.fract() == 0.0 && float.abs() >= 9_007_199_254_740_992.0 => {
                Err(Fault::new(format_args!(
                    "{float} is a float, and floats from 2^53 on are not exact; an integer is expected (from \
                     JavaScript, a BigInt)"
                )))
            }
            _ => self.deserialize_any(visitor),
        }
    }
}

impl<'de> Deserializer<'de> for FromValue {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let FromValue { value, steps_left } = self;
        match value {
            Value::Null | Value::Undefined => visitor.visit_unit(),
            Value::Bool(bool) => visitor.visit_bool(bool),
            Value::Integer(integer) | Value::BigInt(integer) => visit_integer(integer, visitor),
            Value::Float(float) => visitor.visit_f64(float),
            Value::Text(text) => visitor.visit_string(text),
            Value::Bytes(bytes) => visitor.visit_byte_buf(bytes),
            Value::List(items) | Value::Set(items) => FromValue::visit_list(items, steps_left, visitor),
            Value::Object(entries) => FromValue::visit_entries(entries, steps_left, visitor),
            Value::Map(entries) => FromValue::visit_entries(entries, steps_left, visitor),
            Value::Date(date) => visitor.visit_string(date.to_string()),
            Value::Error(error) => {
                let mut entries = vec![
                    ("name".to_owned(), Value::Text(error.name)),
                    ("message".to_owned(), Value::Text(error.message)),
                ];
                entries.extend(error.stack.map(|stack| ("stack".to_owned(), Value::Text(stack))));
                FromValue::visit_entries(entries, steps_left, visitor)
            }
        }
    }

    integers!(
        deserialize_i8,
        deserialize_i16,
        deserialize_i32,
        deserialize_i64,
        deserialize_i128,
        deserialize_u8,
        deserialize_u16,
        deserialize_u32,
        deserialize_u64,
        deserialize_u128
    );

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let float = match self.value {
            Value::Float(float) => float,
            Value::Integer(integer) => integer.to_f64(),
            _ => return self.deserialize_any(visitor),
        };
        // The cast that follows would make an infinity of it.
        if float.is_finite() && (float as f32).is_infinite() {
            return Err(Fault::invalid_value(Unexpected::Float(float), &"a number that an f32 can hold"));
        }
        visitor.visit_f64(float)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            // 2^64 and more: JavaScript writes 1e20 with all its zeros, and a visitor of floats knows no i128.
            Value::Integer(integer) => visitor.visit_f64(integer.to_f64()),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Null | Value::Undefined => visitor.visit_none(),
            value => visitor.visit_some(FromValue { value, steps_left: one_less(self.steps_left)? }),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(FromValue { value: self.value, steps_left: one_less(self.steps_left)? })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let steps_left = one_less(self.steps_left)?;
        let (name, content) = self.variant()?;
        visitor.visit_enum(FromVariant { name, content, steps_left })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
    }
}

struct FromList {
    items: std::vec::IntoIter<Value>,
    at: usize,
    steps_left: usize,
}

impl<'de> SeqAccess<'de> for FromList {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(value) = self.items.next() else { return Ok(None) };
        let item = FromValue { value, steps_left: self.steps_left };
        let item = seed.deserialize(item).map_err(|fault| fault.at_index(self.at))?;
        self.at += 1;
        Ok(Some(item))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// A key of an object is a text, which may stand for a number; a key of a map is what it is.
trait EntryKey {
    /// What the key is read as, and what a path calls it.
    fn read<'de, T: DeserializeSeed<'de>>(
        self,
        seed: T,
        steps_left: usize,
    ) -> Result<(T::Value, String), Fault>;
}

impl EntryKey for String {
    fn read<'de, T: DeserializeSeed<'de>>(
        self,
        seed: T,
        steps_left: usize,
    ) -> Result<(T::Value, String), Fault> {
        Ok((seed.deserialize(FromKey { key: &self, steps_left })?, self))
    }
}

impl EntryKey for Value {
    fn read<'de, T: DeserializeSeed<'de>>(
        self,
        seed: T,
        steps_left: usize,
    ) -> Result<(T::Value, String), Fault> {
        let name = self.as_path_key();
        Ok((seed.deserialize(FromValue { value: self, steps_left })?, name))
    }
}

struct FromEntries<K> {
    entries: std::vec::IntoIter<(K, Value)>,
    value: Option<(String, Value)>,
    steps_left: usize,
}

impl<'de, K: EntryKey> MapAccess<'de> for FromEntries<K> {
    type Error = Fault;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        let (key, name) = key.read(seed, self.steps_left)?;
        self.value = Some((name, value));
        Ok(Some(key))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Fault> {
        let Some((name, value)) = self.value.take() else {
            return Err(Fault::new("a map was deserialized with a value before its key"));
        };
        seed.deserialize(FromValue { value, steps_left: self.steps_left })
            .map_err(|fault| fault.at_key(&name))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

pub(super) struct FromVariant {
    pub(super) name: String,
    pub(super) content: Option<Value>,
    pub(super) steps_left: usize,
}

impl FromVariant {
    fn content(self) -> Result<(String, FromValue), Fault> {
        match self.content {
            Some(value) => Ok((self.name, FromValue { value, steps_left: self.steps_left })),
            None => Err(Fault::new(format_args!(
                "the variant {0} lacks its content; expected {{\"{0}\": ...}}",
                self.name
            ))),
        }
    }
}

impl<'de> EnumAccess<'de> for FromVariant {
    type Error = Fault;
    type Variant = FromVariant;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, FromVariant), Fault> {
        let name: StrDeserializer<'_, Fault> = self.name.as_str().into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for FromVariant {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        match self.content {
            None | Some(Value::Null | Value::Undefined) => Ok(()),
            Some(other) => {
                Err(Fault::new(format_args!("{} has no content; {} is there", self.name, other.kind())))
            }
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        let (name, content) = self.content()?;
        seed.deserialize(content).map_err(|fault| fault.at_key(&name))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        let (name, content) = self.content()?;
        content.deserialize_any(visitor).map_err(|fault| fault.at_key(&name))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let (name, content) = self.content()?;
        content.deserialize_any(visitor).map_err(|fault| fault.at_key(&name))
    }
}
