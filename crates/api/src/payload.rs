//! Payload fields: opaque bytes (base64 in JSON, bytes in MessagePack), UTF-8 text or JSON.

use crate::invalid::{invalid, not_one_of};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use towline_domain::{Json, Refusal};
use utoipa::ToSchema;

/// Defines a wire type with the payload fields of an item, each in its forms. `payload` has attributes of its own, because a
/// request has an alias and a description for it.
macro_rules! with_payload_fields {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            { $($before:tt)* }
            { $(#[$payload:meta])* }
            { $($after:tt)* }
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($before)*
            $(#[$payload])*
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, content_encoding = "base64")]
            pub payload: Option<crate::payload::Payload>,
            /// `payload` as UTF-8 text.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub payload_text: Option<String>,
            /// `payload` as any JSON value.
            #[serde(default, with = "crate::params::value", skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<serde_json::Value>)]
            pub payload_json: Option<towline_domain::Json>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, content_encoding = "base64")]
            pub state_blob: Option<crate::payload::Payload>,
            /// `state_blob` as UTF-8 text.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub state_blob_text: Option<String>,
            /// `state_blob` as any JSON value.
            #[serde(default, with = "crate::params::value", skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<serde_json::Value>)]
            pub state_blob_json: Option<towline_domain::Json>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, content_encoding = "base64")]
            pub metadata: Option<crate::payload::Payload>,
            /// `metadata` as UTF-8 text.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub metadata_text: Option<String>,
            /// `metadata` as any JSON value.
            #[serde(default, with = "crate::params::value", skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<serde_json::Value>)]
            pub metadata_json: Option<towline_domain::Json>,
            /// A fourth payload field, for programs that use Cyclotron's job parameters. Not the `params` of an item.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, content_encoding = "base64")]
            pub parameters: Option<crate::payload::Payload>,
            $($after)*
        }
    };
}
pub(crate) use with_payload_fields;

/// Writes padding, and accepts text without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Decoding never fails. [`Payload::into_domain`] refuses a bad value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload(Result<Bytes, String>);

impl Payload {
    /// The bytes, if they were encoded correctly.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        self.0.as_deref().ok()
    }

    pub fn into_domain(self, what: &'static str) -> Result<Bytes, Refusal> {
        self.0.map_err(|message| match Form::EVERY_FIELD.contains(&what) {
            true => invalid(
                what,
                format!(
                    "{message}; encode the bytes, or send text as `{what}_text`, or JSON as `{what}_json`"
                ),
            ),
            false => invalid(what, format!("{message}; encode the bytes")),
        })
    }
}

/// The forms of a payload field in JSON: `payload`, `payload_text` or `payload_json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ToSchema)]
#[schema(rename_all = "snake_case", as = PayloadForm)]
pub enum Form {
    #[default]
    Base64,
    Text,
    Json,
}

impl Form {
    /// The fields that have all forms.
    const EVERY_FIELD: [&'static str; 3] = ["payload", "state_blob", "metadata"];

    pub fn parse(name: &str) -> Result<Form, Refusal> {
        match name {
            "base64" => Ok(Form::Base64),
            "text" => Ok(Form::Text),
            "json" => Ok(Form::Json),
            _ => Err(not_one_of("payload_as", name, "base64, text, json")),
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Form::Base64 => "base64",
            Form::Text => "text",
            Form::Json => "json",
        }
    }

    /// Moves the value to the field of this form. A value that does not have this form stays where it is.
    pub(crate) fn apply(
        self,
        bytes: &mut Option<Payload>,
        text: &mut Option<String>,
        json: &mut Option<Json>,
    ) {
        let Some(Payload(Ok(value))) = bytes else { return };
        let Ok(value) = std::str::from_utf8(value) else { return };
        match self {
            Form::Base64 => return,
            Form::Text => *text = Some(value.to_owned()),
            Form::Json => match Json::parse(value) {
                Ok(value) => *json = Some(value),
                Err(_) => return,
            },
        }
        *bytes = None;
    }
}

/// The bytes of a payload field, which is given in one form at most.
pub(crate) fn given(
    what: &'static str,
    bytes: Option<Payload>,
    text: Option<String>,
    json: Option<Json>,
) -> Result<Option<Bytes>, Refusal> {
    match (bytes, text, json) {
        (None, None, None) => Ok(None),
        (Some(payload), None, None) => payload.into_domain(what).map(Some),
        (None, Some(text), None) => Ok(Some(text.into())),
        (None, None, Some(json)) => Ok(Some(json.as_str().to_owned().into())),
        _ => {
            Err(invalid(what, format!("given in two forms; choose `{what}`, `{what}_text` or `{what}_json`")))
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Payload {
        Payload(Ok(bytes))
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Payload {
        Payload(Ok(bytes.into()))
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Ok(bytes) if serializer.is_human_readable() => serializer.serialize_str(&BASE64.encode(bytes)),
            Ok(bytes) => serializer.serialize_bytes(bytes),
            Err(why) => serializer.serialize_str(why),
        }
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Payload, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Payload;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64 text in JSON, or bytes in MessagePack")
            }
            fn visit_str<E>(self, text: &str) -> Result<Payload, E> {
                Ok(Payload(match BASE64.decode(text) {
                    Ok(bytes) => Ok(bytes.into()),
                    Err(error) => Err(format!("not base64 ({error})")),
                }))
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Payload, E> {
                Ok(Payload(Ok(Bytes::copy_from_slice(bytes))))
            }
            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Payload, E> {
                Ok(Payload(Ok(bytes.into())))
            }
        }
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(Visitor)
        } else {
            // Text in MessagePack is base64 too, so a client can pass on a value from JSON without decoding
            // it.
            deserializer.deserialize_any(Visitor)
        }
    }
}
