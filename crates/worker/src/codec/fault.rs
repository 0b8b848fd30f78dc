//! What went wrong, and where: the path is added on the way out, so that nothing is kept while all goes well.

use super::CodecError;
use std::fmt;

/// A message may quote a value, and a value may be a megabyte.
const MESSAGE_CHARS_MAX: usize = 500;
const KEY_CHARS_MAX: usize = 60;

#[derive(Debug)]
pub(super) struct Fault {
    /// Innermost first.
    path: Vec<Segment>,
    message: String,
}

#[derive(Debug)]
enum Segment {
    Key(String),
    Index(usize),
}

impl Fault {
    pub(super) fn new(message: impl fmt::Display) -> Fault {
        Fault { path: Vec::new(), message: message.to_string() }
    }

    pub(super) fn at_key(mut self, key: &str) -> Fault {
        self.path.push(Segment::Key(shortened(key, KEY_CHARS_MAX)));
        self
    }

    pub(super) fn at_index(mut self, index: usize) -> Fault {
        self.path.push(Segment::Index(index));
        self
    }
}

impl fmt::Display for Fault {
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

impl std::error::Error for Fault {}

impl serde::ser::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Fault {
        Fault::new(message)
    }
}

impl serde::de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Fault {
        Fault::new(message)
    }
}

impl From<Fault> for CodecError {
    fn from(fault: Fault) -> CodecError {
        CodecError(fault.to_string())
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
