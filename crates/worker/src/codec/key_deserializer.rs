//! Deserializes the key of an object. JSON has only strings as keys; types may want integers, bools or variants.

use super::Integer;
use super::deserializer::{VariantDeserializer, descend, deserialize_integers, visit_integer};
use super::path_error::PathError;
use serde::de::{Deserializer, Visitor};
use serde::forward_to_deserialize_any;

pub(super) struct KeyDeserializer<'a> {
    pub(super) key: &'a str,
    pub(super) depth_left: usize,
}

impl KeyDeserializer<'_> {
    fn deserialize_integer<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        match self.key.parse::<Integer>() {
            // "01" is refused: "01" and "1" are two keys of an object, and would become one key of a map.
            Ok(integer) if integer.to_string() == self.key => visit_integer(integer, visitor),
            _ => self.deserialize_any(visitor),
        }
    }
}

impl<'de> Deserializer<'de> for KeyDeserializer<'_> {
    type Error = PathError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        visitor.visit_str(self.key)
    }

    deserialize_integers!();

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        match self.key {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathError> {
        visitor.visit_some(KeyDeserializer { key: self.key, depth_left: descend(self.depth_left)? })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PathError> {
        visitor.visit_newtype_struct(KeyDeserializer { key: self.key, depth_left: descend(self.depth_left)? })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PathError> {
        visitor.visit_enum(VariantDeserializer {
            name: self.key.to_owned(),
            content: None,
            depth_left: descend(self.depth_left)?,
        })
    }

    forward_to_deserialize_any! {
        f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}
