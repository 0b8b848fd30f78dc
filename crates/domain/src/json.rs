//! A JSON value kept as its text, so that numbers of any size and precision come back as they were sent.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One valid JSON value, without insignificant white space at its ends.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Json(Box<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not JSON: {cause}")]
pub struct JsonError {
    text: String,
    cause: String,
}

impl Json {
    pub fn parse(text: &str) -> Result<Json, JsonError> {
        let text = text.trim_matches([' ', '\n', '\r', '\t']);
        // Validation only: building a tree would cost an allocation a node and lose digits.
        match serde_json::from_str::<&serde_json::value::RawValue>(text) {
            Ok(raw) => Ok(Json(raw.get().into())),
            Err(error) => Err(JsonError { text: text.chars().take(64).collect(), cause: error.to_string() }),
        }
    }

    /// The JSON string whose content is `text`.
    #[must_use]
    pub fn string(text: &str) -> Json {
        Json(serde_json::Value::from(text).to_string().into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Json {
    type Error = JsonError;
    fn try_from(text: String) -> Result<Json, JsonError> {
        Json::parse(&text)
    }
}

impl From<Json> for String {
    fn from(json: Json) -> String {
        json.0.into()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_kept() {
        for text in ["123456789012345678901234567890", "1.0", "1e400", "\"a\"", "{\"b\":[1,null]}", "0.10"] {
            assert_eq!(Json::parse(text).unwrap().as_str(), text);
        }
        assert_eq!(Json::parse(" 1 \n").unwrap().as_str(), "1");
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in ["", "{", "1 2", "nan", "'a'", &"[".repeat(10_000)] {
            assert!(Json::parse(text).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn text_becomes_a_json_string() {
        assert_eq!(Json::string("a\"b").as_str(), r#""a\"b""#);
    }
}
