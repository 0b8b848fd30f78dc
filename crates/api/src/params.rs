//! Parameters: JSON values by name, stored as the text that the submitter sent. For `#[serde(with =
//! "params")]`.
//!
//! MessagePack numbers have at most 64 bits; a larger JSON number becomes the nearest float. JSON has neither
//! infinite numbers nor bytes, so a MessagePack value with one of them is refused.

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess};
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

/// Writes a value from a format that has more kinds of values than JSON as JSON text. A tree of the value would take many times
/// the memory of the text.
struct Transcoder<'a>(&'a mut Vec<u8>);

impl Transcoder<'_> {
    fn write<T: Serialize + ?Sized, E: de::Error>(self, value: &T) -> Result<(), E> {
        serde_json::to_writer(self.0, value).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Transcoder<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> de::Visitor<'de> for Transcoder<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has")
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.write(&value)
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.write(&value)
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.write(&value)
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        if !value.is_finite() {
            return Err(E::custom(format!("{value} is not a number in JSON")));
        }
        self.write(&value)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.write(text)
    }
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.write(&())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.push(b'[');
        let empty = self.0.len();
        while seq.next_element_seed(Transcoder(self.0))?.is_some() {
            self.0.push(b',');
        }
        end(self.0, empty, b']');
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.push(b'{');
        let empty = self.0.len();
        while map.next_key_seed(NameTranscoder(self.0))?.is_some() {
            self.0.push(b':');
            map.next_value_seed(Transcoder(self.0))?;
            self.0.push(b',');
        }
        end(self.0, empty, b'}');
        Ok(())
    }
}

/// Ends a list or an object, in place of the last comma.
fn end(out: &mut Vec<u8>, empty: usize, bracket: u8) {
    if out.len() > empty {
        out.pop();
    }
    out.push(bracket);
}

/// The same for the name of an entry, which is a string.
struct NameTranscoder<'a>(&'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for NameTranscoder<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl de::Visitor<'_> for NameTranscoder<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        Transcoder(self.0).write(text)
    }
}

struct OwnedValue(Json);

impl<'de> Deserialize<'de> for OwnedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OwnedValue, D::Error> {
        let json = if deserializer.is_human_readable() {
            Json::parse(Box::<RawValue>::deserialize(deserializer)?.get())
        } else {
            let mut text = Vec::new();
            Transcoder(&mut text).deserialize(deserializer)?;
            Json::parse(std::str::from_utf8(&text).map_err(de::Error::custom)?)
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

/// One value, for `#[serde(with = "params::value")]`. `null` is the same as absent.
pub(crate) mod value {
    use super::{OwnedValue, Value};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use towline_domain::Json;

    pub(crate) fn serialize<S: Serializer>(value: &Option<Json>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Value).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
        let value = OwnedValue::deserialize(deserializer)?.0;
        Ok(Some(value).filter(|value| value.as_str() != "null"))
    }
}
