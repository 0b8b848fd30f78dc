//! From a key of an object to a type: JSON has but text there, and types want numbers, bools and variants.

use super::Integer;
use super::deserializer::{FromVariant, one_less, visit_integer};
use super::fault::Fault;
use serde::de::{Deserializer, Visitor};
use serde::forward_to_deserialize_any;

pub(super) struct FromKey<'a> {
    pub(super) key: &'a str,
    pub(super) steps_left: usize,
}

macro_rules! integer_keys {
    ($($method:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            match self.key.parse::<Integer>() {
                // "01" and "1" are two keys of one object, and would be one of a map.
                Ok(integer) if integer.to_string() == self.key => visit_integer(integer, visitor),
                _ => self.deserialize_any(visitor),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for FromKey<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_str(self.key)
    }

    integer_keys!(
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

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.key {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(FromKey { key: self.key, steps_left: one_less(self.steps_left)? })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(FromKey { key: self.key, steps_left: one_less(self.steps_left)? })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_enum(FromVariant {
            name: self.key.to_owned(),
            content: None,
            steps_left: one_less(self.steps_left)?,
        })
    }

    forward_to_deserialize_any! {
        f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}
