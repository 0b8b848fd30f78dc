//! Deserializes a type from a [`Value`].

use super::key_deserializer::KeyDeserializer;
use super::path_error::PathError;
use super::serializer::{RECURSION_MAX, recursion_error};
use super::{Integer, Value};
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

pub(super) fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, PathError> {
    T::deserialize(ValueDeserializer { value, depth_left: RECURSION_MAX })
}

struct ValueDeserializer {
    value: Value,
    depth_left: usize,
}

pub(super) fn descend(depth_left: usize) -> Result<usize, PathError> {
    depth_left.checked_sub(1).ok_or_else(recursion_error)
}

pub(super) fn visit_integer<'de, V: Visitor<'de>>(
    integer: Integer,
    visitor: V,
) -> Result<V::Value, PathError> {
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

impl ValueDeserializer {
    fn visit_list<'de, V: Visitor<'de>>(
        items: Vec<Value>,
        depth_left: usize,
        visitor: V,
    ) -> Result<V::Value, PathError> {
        let count = items.len();
        let mut list = ListAccess { items: items.into_iter(), at: 0, depth_left: descend(depth_left)? };
        let result = visitor.visit_seq(&mut list)?;
        if list.items.len() > 0 {
            // A tuple took fewer items than there are. The rest would be lost.
            return Err(PathError::invalid_length(count, &"fewer items"));
        }
        Ok(result)
    }

    fn visit_entries<'de, K: EntryKey, V: Visitor<'de>>(
        entries: Vec<(K, Value)>,
        depth_left: usize,
        visitor: V,
    ) -> Result<V::Value, PathError> {
        let count = entries.len();
        let mut map =
            EntriesAccess { entries: entries.into_iter(), value: None, depth_left: descend(depth_left)? };
        let result = visitor.visit_map(&mut map)?;
        if map.entries.len() > 0 {
            return Err(PathError::invalid_length(count, &"fewer entries"));
        }
        Ok(result)
    }

    /// The name of a variant, and its content.
    fn variant(self) -> Result<(String, Option<Value>), PathError> {
        let (key, content) = match self.value {
            Value::Text(name) => return Ok((name, None)),
            Value::Object(mut entries) if entries.len() == 1 => match entries.pop() {
                Some(entry) => entry,
                None => return Err(PathError::new("an empty object is not an enum")),
            },
            Value::Map(mut entries) if entries.len() == 1 => match entries.pop() {
                Some((Value::Text(key), content)) => (key, content),
                _ => return Err(PathError::new("a map with a key that is not a string is not an enum")),
            },
            other => {
                return Err(PathError::new(format_args!(
                    "{} is not an enum; use the name of a variant, or an object with the name as its only key",
                    other.kind()
                )));
            }
        };
        Ok((key, Some(content)))
    }
}

/// Deserializes every integer type by the method `deserialize_integer`.
macro_rules! deserialize_integers {
    () => {
        deserialize_integers!(
            deserialize_i8, deserialize_i16, deserialize_i32, deserialize_i64, deserialize_i128,
            deserialize_u8, deserialize_u16, deserialize_u32, deserialize_u64, deserialize_u128
        );
    };
    ($($method:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
            self.deserialize_integer(visitor)
        }
    )*};
}

pub(super) use deserialize_integers;

impl ValueDeserializer {
    fn deserialize_integer<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        match self.value {
            Value::Float(float) if float.fract() == 0.0 && float.abs() >= 9_007_199_254_740_992.0 => {
                Err(PathError::new(format_args!(
                    "{float} is a float, and floats from 2^53 on are not exact; use an integer (in JavaScript, a \
                     BigInt)"
                )))
            }
            _ => self.deserialize_any(visitor),
        }
    }
}

impl<'de> Deserializer<'de> for ValueDeserializer {
    type Error = PathError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        let ValueDeserializer { value, depth_left } = self;
        match value {
            Value::Null | Value::Undefined => visitor.visit_unit(),
            Value::Bool(bool) => visitor.visit_bool(bool),
            Value::Integer(integer) | Value::BigInt(integer) => visit_integer(integer, visitor),
            Value::Float(float) => visitor.visit_f64(float),
            Value::Text(text) => visitor.visit_string(text),
            Value::Bytes(bytes) => visitor.visit_byte_buf(bytes),
            Value::List(items) | Value::Set(items) => {
                ValueDeserializer::visit_list(items, depth_left, visitor)
            }
            Value::Object(entries) => ValueDeserializer::visit_entries(entries, depth_left, visitor),
            Value::Map(entries) => ValueDeserializer::visit_entries(entries, depth_left, visitor),
            Value::Date(date) => visitor.visit_string(date.to_string()),
            Value::Error(error) => {
                let mut entries = vec![
                    ("name".to_owned(), Value::Text(error.name)),
                    ("message".to_owned(), Value::Text(error.message)),
                ];
                entries.extend(error.stack.map(|stack| ("stack".to_owned(), Value::Text(stack))));
                ValueDeserializer::visit_entries(entries, depth_left, visitor)
            }
        }
    }

    deserialize_integers!();

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        let float = match self.value {
            Value::Float(float) => float,
            Value::Integer(integer) => integer.to_f64(),
            _ => return self.deserialize_any(visitor),
        };
        // The visitor casts to f32, which would turn it into an infinity.
        if float.is_finite() && (float as f32).is_infinite() {
            return Err(PathError::invalid_value(Unexpected::Float(float), &"a number that an f32 can hold"));
        }
        visitor.visit_f64(float)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        match self.value {
            // JavaScript writes 1e20 with all its zeros, and a visitor of floats does not accept an i128.
            Value::Integer(integer) => visitor.visit_f64(integer.to_f64()),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        match self.value {
            Value::Null | Value::Undefined => visitor.visit_none(),
            value => visitor.visit_some(ValueDeserializer { value, depth_left: descend(self.depth_left)? }),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PathError> {
        visitor.visit_newtype_struct(ValueDeserializer {
            value: self.value,
            depth_left: descend(self.depth_left)?,
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PathError> {
        let depth_left = descend(self.depth_left)?;
        let (name, content) = self.variant()?;
        visitor.visit_enum(VariantDeserializer { name, content, depth_left })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
    }
}

struct ListAccess {
    items: std::vec::IntoIter<Value>,
    at: usize,
    depth_left: usize,
}

impl<'de> SeqAccess<'de> for ListAccess {
    type Error = PathError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, PathError> {
        let Some(value) = self.items.next() else { return Ok(None) };
        let item = ValueDeserializer { value, depth_left: self.depth_left };
        let item = seed.deserialize(item).map_err(|error| error.at_index(self.at))?;
        self.at += 1;
        Ok(Some(item))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The key of an object is a string that may stand for a number. The key of a map is any value.
trait EntryKey {
    /// Returns the decoded key, and its name in a path.
    fn read<'de, T: DeserializeSeed<'de>>(
        self,
        seed: T,
        depth_left: usize,
    ) -> Result<(T::Value, String), PathError>;
}

impl EntryKey for String {
    fn read<'de, T: DeserializeSeed<'de>>(
        self,
        seed: T,
        depth_left: usize,
    ) -> Result<(T::Value, String), PathError> {
        Ok((seed.deserialize(KeyDeserializer { key: &self, depth_left })?, self))
    }
}

impl EntryKey for Value {
    fn read<'de, T: DeserializeSeed<'de>>(
        self,
        seed: T,
        depth_left: usize,
    ) -> Result<(T::Value, String), PathError> {
        let name = self.as_path_key();
        Ok((seed.deserialize(ValueDeserializer { value: self, depth_left })?, name))
    }
}

struct EntriesAccess<K> {
    entries: std::vec::IntoIter<(K, Value)>,
    value: Option<(String, Value)>,
    depth_left: usize,
}

impl<'de, K: EntryKey> MapAccess<'de> for EntriesAccess<K> {
    type Error = PathError;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, PathError> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        let (key, name) = key.read(seed, self.depth_left)?;
        self.value = Some((name, value));
        Ok(Some(key))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, PathError> {
        let Some((name, value)) = self.value.take() else {
            return Err(PathError::new("a map was deserialized with a value before its key"));
        };
        seed.deserialize(ValueDeserializer { value, depth_left: self.depth_left })
            .map_err(|error| error.at_key(&name))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

pub(super) struct VariantDeserializer {
    pub(super) name: String,
    pub(super) content: Option<Value>,
    pub(super) depth_left: usize,
}

impl VariantDeserializer {
    fn content(self) -> Result<(String, ValueDeserializer), PathError> {
        match self.content {
            Some(value) => Ok((self.name, ValueDeserializer { value, depth_left: self.depth_left })),
            None => Err(PathError::new(format_args!(
                "the variant {0} has no content; expected {{\"{0}\": ...}}",
                self.name
            ))),
        }
    }
}

impl<'de> EnumAccess<'de> for VariantDeserializer {
    type Error = PathError;
    type Variant = VariantDeserializer;

    fn variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<(T::Value, VariantDeserializer), PathError> {
        let name: StrDeserializer<'_, PathError> = self.name.as_str().into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for VariantDeserializer {
    type Error = PathError;

    fn unit_variant(self) -> Result<(), PathError> {
        match self.content {
            None | Some(Value::Null | Value::Undefined) => Ok(()),
            Some(other) => Err(PathError::new(format_args!(
                "the variant {} takes no content; found {}",
                self.name,
                other.kind()
            ))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, PathError> {
        let (name, content) = self.content()?;
        seed.deserialize(content).map_err(|error| error.at_key(&name))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, PathError> {
        let (name, content) = self.content()?;
        content.deserialize_any(visitor).map_err(|error| error.at_key(&name))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PathError> {
        let (name, content) = self.content()?;
        content.deserialize_any(visitor).map_err(|error| error.at_key(&name))
    }
}
