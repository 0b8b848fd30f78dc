//! A JSON value stored as its text, so that numbers of any size and precision are returned as they were sent.

use crate::limits;
use serde::{Deserialize, Serialize};
use std::fmt;

const WHITE: [char; 4] = [' ', '\n', '\r', '\t'];

/// One valid JSON value without insignificant white space. Values that differ only in spacing are equal.
///
/// **Invariant:** every common JSON parser can read it. It is nested at most [`limits::JSON_DEPTH_MAX`] deep, and its
/// strings are Unicode: no escape is half a character (an unpaired surrogate).
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Json(Box<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {cause}")]
pub struct JsonError {
    text: String,
    cause: String,
}

impl Json {
    pub fn parse(text: &str) -> Result<Json, JsonError> {
        let text = text.trim_matches(WHITE);
        let wrong = |cause| JsonError { text: text.chars().take(64).collect(), cause };
        // Validation only: a tree would cost an allocation a node and lose digits.
        let raw = serde_json::from_str::<&serde_json::value::RawValue>(text)
            .map_err(|error| wrong(format!("is not JSON: {error}")))?;
        tighten(raw.get()).map(Json).map_err(wrong)
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

/// Removes white space from valid JSON. Refuses what the grammar allows and common parsers reject.
fn tighten(text: &str) -> Result<Box<str>, String> {
    let bytes = text.as_bytes();
    let (mut tight, mut from) = (String::new(), 0);
    let mut depth = 0_usize;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'[' | b'{' => {
                depth += 1;
                if depth > limits::JSON_DEPTH_MAX {
                    return Err(format!(
                        "is nested more than {} deep; make it flatter",
                        limits::JSON_DEPTH_MAX
                    ));
                }
            }
            b']' | b'}' => depth -= 1,
            b' ' | b'\n' | b'\r' | b'\t' => {
                tight.push_str(&text[from..at]);
                from = at + 1;
            }
            b'"' => at = string_end(bytes, at + 1)?,
            _ => {}
        }
        at += 1;
    }
    if from == 0 {
        return Ok(text.into());
    }
    tight.push_str(&text[from..]);
    Ok(tight.into())
}

/// The end of the string whose content begins at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> Result<usize, String> {
    loop {
        match bytes[at] {
            b'"' => return Ok(at),
            b'\\' if bytes[at + 1] == b'u' => {
                let half = || format!("has \\u{} without its pair, half a character", digits(bytes, at));
                match utf16(bytes, at) {
                    Some(0xdc00..=0xdfff) => return Err(half()),
                    Some(0xd800..=0xdbff) => match utf16(bytes, at + 6) {
                        Some(0xdc00..=0xdfff) => at += 12,
                        _ => return Err(half()),
                    },
                    _ => at += 6,
                }
            }
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn digits(bytes: &[u8], at: usize) -> String {
    String::from_utf8_lossy(&bytes[at + 2..at + 6]).into_owned()
}

/// The number in `\uXXXX`, if there is such an escape at `at`.
fn utf16(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
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
    fn white_space_is_kept_in_strings_only() {
        let text = " {\n \"a b\" : [ 1 ,\t\"x\\\" y\" ] ,\r\n\"c\":{ } } ";
        assert_eq!(Json::parse(text).unwrap().as_str(), r#"{"a b":[1,"x\" y"],"c":{}}"#);
    }

    #[test]
    fn nesting_has_a_limit() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let most = Json::parse(&nested(limits::JSON_DEPTH_MAX)).unwrap();
        serde_json::from_str::<serde_json::Value>(most.as_str()).unwrap();
        for depth in [limits::JSON_DEPTH_MAX + 1, 100_000] {
            let message = Json::parse(&nested(depth)).unwrap_err().to_string();
            assert!(message.contains("nested more than 100 deep"), "{message}");
        }
        assert!(Json::parse(&format!("{:?}", "[".repeat(500))).is_ok(), "brackets in a string are text");
    }

    #[test]
    fn half_a_character_is_refused() {
        for good in [r#""\ud83d\ude00""#, r#""\\ud83d""#, r#"["\u0041\\"]"#, r#"{"\uD83D\uDE00":1}"#] {
            let kept = Json::parse(good).unwrap();
            serde_json::from_str::<serde_json::Value>(kept.as_str()).unwrap();
        }
        for bad in [r#""\ud83d""#, r#""\ude00""#, r#"["\ud83d\ud83d"]"#, r#"{"\uD83Dx":1}"#, r#""\ud83d\n""#]
        {
            let message = Json::parse(bad).unwrap_err().to_string();
            assert!(message.contains("half a character"), "{message}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_refused() {
        for text in ["", "{", "1 2", "nan", "'a'", &"[".repeat(10_000)] {
            assert!(Json::parse(text).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn text_becomes_a_json_string() {
        assert_eq!(Json::string("a\"b").as_str(), r#""a\"b""#);
    }
}
