//! An amount of memory: `"512MiB"`, or a number of bytes.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// Units with their bytes. `Gi` is what Kubernetes writes for `GiB`.
const UNITS: [(&str, u64); 13] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let shown: String = text.chars().take(40).collect();
        let wrong = || {
            format!("{shown:?} is not a size; use a number of bytes, or a number with KiB, MiB, GiB or TiB")
        };
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let unit = unit.trim_start();
        let bytes = match unit {
            "" => 1,
            unit => UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1,
        };
        number.checked_mul(bytes).map(Size).ok_or_else(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS[..4].iter().rev().find(|(_, bytes)| self.0 != 0 && self.0.is_multiple_of(*bytes));
        match unit {
            Some((name, bytes)) => write!(f, "{}{name}", self.0 / bytes),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size like \"512MiB\", or a number of bytes")
            }
            fn visit_u64<E>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom(format!("{bytes} is not a size")))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl PartialSchema for Size {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String).description(Some("Like `512MiB`"));
        let number =
            ObjectBuilder::new().schema_type(Type::Integer).description(Some("Bytes")).minimum(Some(0));
        OneOfBuilder::new().item(text).item(number).into()
    }
}

impl ToSchema for Size {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_printed() {
        for (text, bytes, printed) in [
            ("4096", 4096, "4KiB"),
            ("512MiB", 512 << 20, "512MiB"),
            ("4Gi", 4 << 30, "4GiB"),
            ("1500 MB", 1_500_000_000, "1500000000B"),
            ("0", 0, "0B"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, printed), "{text}");
            assert_eq!(printed.parse(), Ok(size));
        }
        for text in ["", "GiB", "1.5GiB", "4 gib", "-1", "99999999999TiB"] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.contains(text) && error.contains("use"), "{error}");
        }
    }
}
