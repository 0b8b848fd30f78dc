//! A codespec by name, by name and version, or written out.

use super::codespec::CodespecBody;
use crate::object::{NameOrObject, name_or_object};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// `NAME`, `NAME@VERSION`, or a whole codespec, which is then created under the name of what uses it.
#[derive(Debug, Clone, PartialEq)]
pub enum CodespecRef {
    Named(String),
    Inline(Box<CodespecBody>),
}

impl Default for CodespecRef {
    fn default() -> CodespecRef {
        CodespecRef::Named(String::new())
    }
}

impl CodespecRef {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, CodespecRef::Named(name) if name.is_empty())
    }
}

impl Serialize for CodespecRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            CodespecRef::Named(name) => serializer.serialize_str(name),
            CodespecRef::Inline(body) => body.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CodespecRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CodespecRef, D::Error> {
        let given = name_or_object("the name of a codespec, or a codespec", deserializer)?;
        Ok(match given {
            NameOrObject::Name(name) => CodespecRef::Named(name),
            NameOrObject::Object(body) => CodespecRef::Inline(Box::new(body)),
        })
    }
}

impl PartialSchema for CodespecRef {
    fn schema() -> RefOr<Schema> {
        let name =
            ObjectBuilder::new().schema_type(Type::String).description(Some("`NAME` or `NAME@VERSION`"));
        OneOfBuilder::new().item(name).item(CodespecBody::schema()).into()
    }
}

impl ToSchema for CodespecRef {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        CodespecBody::schemas(schemas);
    }
}
