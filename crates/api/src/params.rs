//! Parameters: names and JSON values, kept as the text they were sent as. For `#[serde(with = "params")]`.
//!
//! MessagePack has numbers of at most 64 bits; a JSON number beyond becomes the nearest float there.

use serde::de::{self, MapAccess};
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
        serde_json::from_str::<serde_json::Value>(text)
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

struct OwnedValue(Json);

impl<'de> Deserialize<'de> for OwnedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OwnedValue, D::Error> {
        let json = if deserializer.is_human_readable() {
            Json::parse(Box::<RawValue>::deserialize(deserializer)?.get())
        } else {
            Json::parse(&serde_json::Value::deserialize(deserializer)?.to_string())
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
