//! An error with the path of the value that caused it. The path is built only after an error, from the inside out.

use super::CodecError;
use std::fmt;

/// A message may quote a value of any size.
const MESSAGE_CHARS_MAX: usize = 500;
const KEY_CHARS_MAX: usize = 60;

#[derive(Debug)]
pub(super) struct PathError {
    /// The innermost segment comes first.
    path: Vec<Segment>,
    message: String,
}

#[derive(Debug)]
enum Segment {
    Key(String),
    Index(usize),
}

impl PathError {
    pub(super) fn new(message: impl fmt::Display) -> PathError {
        PathError { path: Vec::new(), message: message.to_string() }
    }

    pub(super) fn at_key(mut self, key: &str) -> PathError {
        self.path.push(Segment::Key(shortened(key, KEY_CHARS_MAX)));
        self
    }

    pub(super) fn at_index(mut self, index: usize) -> PathError {
        self.path.push(Segment::Index(index));
        self
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.path.iter().rev().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if !is_name(key) => write!(f, "[{key:?}]")?,
                Segment::Key(key) if at == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
            }
        }
        if !self.path.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(&shortened(&self.message, MESSAGE_CHARS_MAX))
    }
}

impl std::error::Error for PathError {}

impl serde::ser::Error for PathError {
    fn custom<T: fmt::Display>(message: T) -> PathError {
        PathError::new(message)
    }
}

impl serde::de::Error for PathError {
    fn custom<T: fmt::Display>(message: T) -> PathError {
        PathError::new(message)
    }
}

impl From<PathError> for CodecError {
    fn from(error: PathError) -> CodecError {
        CodecError(error.to_string())
    }
}

fn is_name(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '…'))
}

fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
