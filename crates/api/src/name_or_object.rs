//! A setting that is a name or an object. What is wrong inside the object is told, which an untagged enum cannot do.

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

pub(crate) enum NameOrObject<T> {
    Name(String),
    Object(T),
}

pub(crate) fn name_or_object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    expected: &'static str,
    deserializer: D,
) -> Result<NameOrObject<T>, D::Error> {
    struct Visitor<T>(&'static str, PhantomData<T>);
    impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
        type Value = NameOrObject<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E>(self, text: &str) -> Result<NameOrObject<T>, E> {
            Ok(NameOrObject::Name(text.to_owned()))
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NameOrObject<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(NameOrObject::Object)
        }
    }
    deserializer.deserialize_any(Visitor(expected, PhantomData))
}
