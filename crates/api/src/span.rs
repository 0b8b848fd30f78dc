//! A duration on the wire: `"5m"`, or a number of milliseconds.

use crate::invalid::invalid;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;
use towline_domain::{Millis, Refusal};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

/// Decoding never fails. [`Span::into_domain`] refuses a bad value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span(Result<Millis, String>);

impl Span {
    pub fn into_domain(self, what: &'static str) -> Result<Millis, Refusal> {
        self.0.map_err(|message| invalid(what, message))
    }

    fn milliseconds(count: u64) -> Span {
        match Millis(count) {
            span if span <= Millis::MAX => Span(Ok(span)),
            span => Span(Err(format!("{} ms is longer than 100 years", span.0))),
        }
    }
}

impl From<Millis> for Span {
    fn from(span: Millis) -> Span {
        Span(Ok(span))
    }
}

impl From<Duration> for Span {
    fn from(span: Duration) -> Span {
        Span::milliseconds(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(span) => span.fmt(f),
            Err(text) => f.write_str(text),
        }
    }
}

impl ToSchema for Span {
    fn name() -> Cow<'static, str> {
        "Duration".into()
    }
}

impl PartialSchema for Span {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("Like `500ms`, `90s`, `5m`, `2h45m`, `7d`; ISO 8601 (`PT1H30M`) too."))
            .examples(["5m"]);
        let number = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .description(Some("Milliseconds."))
            .minimum(Some(0))
            .maximum(Some(Millis::MAX.0));
        OneOfBuilder::new().item(text).item(number).description(Some("At most 100 years.")).into()
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(span) => serializer.collect_str(span),
            Err(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration like \"5m\", or a number of milliseconds")
            }
            fn visit_str<E>(self, text: &str) -> Result<Span, E> {
                Ok(Span(Millis::parse(text).map_err(|error| error.to_string())))
            }
            fn visit_u64<E>(self, count: u64) -> Result<Span, E> {
                Ok(Span::milliseconds(count))
            }
            fn visit_i64<E>(self, count: i64) -> Result<Span, E> {
                Ok(match u64::try_from(count) {
                    Ok(count) => Span::milliseconds(count),
                    Err(_) => Span(Err(format!("{count} ms is negative; durations count forward"))),
                })
            }
            fn visit_f64<E>(self, count: f64) -> Result<Span, E> {
                Ok(Span(Err(format!("{count} is not a whole number of milliseconds"))))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
