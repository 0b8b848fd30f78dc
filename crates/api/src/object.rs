//! Deserializers that accept an object only as a map. A derived `Deserialize` also accepts a list of the
//! field values in order, so `[]` would be a valid, empty item.

use crate::budget;
use crate::element::Element;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeOwned, MapAccess, SeqAccess};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;
use towline_domain::limits::BATCH_MAX;

/// For a whole body.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Visitor(PhantomData))
    }
}

/// For a field.
pub(crate) fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// For a field that may be absent or `null`.
pub(crate) fn object_if_any<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(|Object(value)| value))
}

/// For a list of objects.
pub(crate) fn objects<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let objects: Vec<Object<T>> = Vec::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|Object(value)| value).collect())
}

/// For the list of a batch.
pub(crate) fn elements<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Element<T>>, D::Error> {
    struct Visitor<T>(PhantomData<T>);
    impl<'de, T: DeserializeOwned> de::Visitor<'de> for Visitor<T> {
        type Value = Vec<Element<T>>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Element<T>>, A::Error> {
            let mut elements = Vec::new();
            while let Some(element) = list.next_element()? {
                elements.push(element);
            }
            Ok(elements)
        }
    }
    deserializer.deserialize_tuple_struct(budget::LIST, BATCH_MAX, Visitor(PhantomData))
}

/// A setting that is a name or an object. Unlike an untagged enum, it reports what is wrong inside the
/// object.
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
