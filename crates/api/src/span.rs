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

/// A number below this was probably meant as seconds.
const SURPRISING_BELOW: Millis = Millis(100);

/// Decoding never fails. [`Span::into_domain`] refuses a bad value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    parsed: Result<Millis, String>,
    is_number: bool,
}

impl Span {
    pub fn into_domain(self, what: &'static str) -> Result<Millis, Refusal> {
        self.parsed.map_err(|message| invalid(what, message))
    }

    /// A note for a client that wrote a number without a unit and may have meant seconds.
    #[must_use]
    pub fn note(&self, what: &'static str) -> Option<String> {
        let Ok(span) = self.parsed else { return None };
        let surprising = self.is_number && Millis::ZERO < span && span < SURPRISING_BELOW;
        let count = span.0;
        surprising.then(|| {
            format!("{what}: the number {count} means {count} ms; write \"{count}s\" for seconds, or \"{count}ms\"")
        })
    }

    fn text(parsed: Result<Millis, String>) -> Span {
        Span { parsed, is_number: false }
    }

    fn number(parsed: Result<Millis, String>) -> Span {
        Span { parsed, is_number: true }
    }

    fn milliseconds(count: u64) -> Result<Millis, String> {
        match Millis(count) {
            span if span <= Millis::MAX => Ok(span),
            span => Err(format!("{} ms is longer than 100 years", span.0)),
        }
    }
}

impl From<Millis> for Span {
    fn from(span: Millis) -> Span {
        Span::text(Ok(span))
    }
}

impl From<Duration> for Span {
    fn from(span: Duration) -> Span {
        Span::text(Span::milliseconds(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parsed {
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
            .examples(["2s"]);
        let number = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .description(Some("Milliseconds, not seconds: `20` is 20 ms."))
            .minimum(Some(0))
            .maximum(Some(Millis::MAX.0));
        OneOfBuilder::new().item(text).item(number).description(Some("At most 100 years.")).into()
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.parsed {
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
                Ok(Span::text(Millis::parse(text).map_err(|error| error.to_string())))
            }
            fn visit_u64<E>(self, count: u64) -> Result<Span, E> {
                Ok(Span::number(Span::milliseconds(count)))
            }
            fn visit_i64<E>(self, count: i64) -> Result<Span, E> {
                let negative = |_| format!("{count} ms is negative; durations count forward");
                Ok(Span::number(u64::try_from(count).map_err(negative).and_then(Span::milliseconds)))
            }
            fn visit_f64<E>(self, count: f64) -> Result<Span, E> {
                Ok(Span::number(Err(format!("{count} is not a whole number of milliseconds"))))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
