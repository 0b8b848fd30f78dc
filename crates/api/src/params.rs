//! Parameters: JSON values by name, stored as the text that the submitter sent. For `#[serde(with =
//! "params")]`.
//!
//! MessagePack numbers have at most 64 bits; a larger JSON number becomes the nearest float. JSON has neither
//! infinite numbers nor bytes, so a MessagePack value with one of them is refused.

use serde::de::{self, MapAccess, SeqAccess};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use towline_domain::Json;

pub type Params = BTreeMap<String, Json>;

struct Value<'a>(&'a Json);

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.as_str();
        if serializer.is_human_readable() {
            return <&RawValue>::deserialize(&mut serde_json::Deserializer::from_str(text))
                .map_err(serde::ser::Error::custom)?
                .serialize(serializer);
        }
        match serde_json::from_str::<serde_json::Value>(text) {
            Ok(value) => value.serialize(serializer),
            // Only a number can be too large to parse: see the invariant of `Json`.
            Err(_) => Large(text).serialize(serializer),
        }
    }
}

/// A value that contains a number larger than any float. It is parsed again at every level, which is slow but
/// rare.
struct Large<'a>(&'a str);

impl Serialize for Large<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let broken = serde::ser::Error::custom::<serde_json::Error>;
        match self.0.as_bytes().first() {
            Some(b'{') => {
                let object: BTreeMap<String, &RawValue> = serde_json::from_str(self.0).map_err(broken)?;
                serializer.collect_map(object.iter().map(|(name, value)| (name, Large(value.get()))))
            }
            Some(b'[') => {
                let array: Vec<&RawValue> = serde_json::from_str(self.0).map_err(broken)?;
                serializer.collect_seq(array.iter().map(|value| Large(value.get())))
            }
            _ => match serde_json::from_str::<serde_json::Value>(self.0) {
                Ok(value) => value.serialize(serializer),
                Err(_) => serializer.serialize_f64(if self.0.starts_with('-') { f64::MIN } else { f64::MAX }),
            },
        }
    }
}

/// A JSON value from a format that has more kinds of values than JSON.
struct Foreign(serde_json::Value);

impl<'de> Deserialize<'de> for Foreign {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Foreign, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = serde_json::Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value that JSON has")
            }
            fn visit_bool<E>(self, value: bool) -> Result<serde_json::Value, E> {
                Ok(value.into())
            }
            fn visit_i64<E>(self, value: i64) -> Result<serde_json::Value, E> {
                Ok(value.into())
            }
            fn visit_u64<E>(self, value: u64) -> Result<serde_json::Value, E> {
                Ok(value.into())
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<serde_json::Value, E> {
                let number = serde_json::Number::from_f64(value);
                number.map(Into::into).ok_or_else(|| E::custom(format!("{value} is not a number in JSON")))
            }
            fn visit_str<E>(self, text: &str) -> Result<serde_json::Value, E> {
                Ok(text.into())
            }
            fn visit_string<E>(self, text: String) -> Result<serde_json::Value, E> {
                Ok(text.into())
            }
            fn visit_unit<E>(self) -> Result<serde_json::Value, E> {
                Ok(serde_json::Value::Null)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<serde_json::Value, A::Error> {
                let mut array = Vec::new();
                while let Some(Foreign(value)) = seq.next_element()? {
                    array.push(value);
                }
                Ok(array.into())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<serde_json::Value, A::Error> {
                let mut object = serde_json::Map::new();
                while let Some((name, Foreign(value))) = map.next_entry()? {
                    object.insert(name, value);
                }
                Ok(object.into())
            }
        }
        deserializer.deserialize_any(Visitor).map(Foreign)
    }
}

struct OwnedValue(Json);

impl<'de> Deserialize<'de> for OwnedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OwnedValue, D::Error> {
        let json = if deserializer.is_human_readable() {
            Json::parse(Box::<RawValue>::deserialize(deserializer)?.get())
        } else {
            Json::parse(&Foreign::deserialize(deserializer)?.0.to_string())
        };
        json.map(OwnedValue).map_err(de::Error::custom)
    }
}

pub fn serialize<S: Serializer>(params: &Params, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(params.len()))?;
    for (name, value) in params {
        map.serialize_entry(name, &Value(value))?;
    }
    map.end()
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Params, D::Error> {
    struct Visitor;
    impl<'de> de::Visitor<'de> for Visitor {
        type Value = Params;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of parameters")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params, A::Error> {
            let mut params = Params::new();
            while let Some((name, value)) = map.next_entry::<String, OwnedValue>()? {
                params.insert(name, value.0);
            }
            Ok(params)
        }
        fn visit_unit<E>(self) -> Result<Params, E> {
            Ok(Params::new())
        }
    }
    deserializer.deserialize_map(Visitor)
}
