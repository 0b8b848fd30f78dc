//! The writer of JSON text that both codecs use.

use super::path_error::PathError;
use super::{DEPTH_MAX, Integer};
use std::collections::HashSet;

/// Up to this many keys, comparing all pairs is faster than hashing.
const FEW_KEYS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct JsonWriter {
    out: Vec<u8>,
    depth: usize,
}

impl JsonWriter {
    pub(super) fn finish(self) -> Result<String, PathError> {
        String::from_utf8(self.out).map_err(PathError::new)
    }

    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// The text that was written after this length.
    pub(super) fn since(&self, len: usize) -> &[u8] {
        &self.out[len..]
    }

    pub(super) fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn integer(&mut self, integer: Integer) {
        self.raw(&integer.to_string());
    }

    /// Writes a float like serde_json: with a point or an exponent, so that it is read as a float again.
    pub(super) fn float(&mut self, float: f64) -> Result<(), PathError> {
        if !float.is_finite() {
            return Err(PathError::new(format_args!(
                "{float} cannot be written as JSON; use an Option, or a string"
            )));
        }
        serde_json::to_writer(&mut self.out, &float).map_err(PathError::new)
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), PathError> {
        serde_json::to_writer(&mut self.out, text).map_err(PathError::new)
    }

    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut JsonWriter, T) -> Result<(), PathError>,
    ) -> Result<(), PathError> {
        self.open(b'[')?;
        for (at, item) in items.into_iter().enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            write(self, item).map_err(|error| error.at_index(at))?;
        }
        self.close(b']');
        Ok(())
    }

    /// Writes an object. Refuses a duplicate key: a reader would keep only one of the values.
    pub(super) fn object<'a, T>(
        &mut self,
        entries: impl Iterator<Item = (&'a str, T)> + Clone,
        mut write: impl FnMut(&mut JsonWriter, T) -> Result<(), PathError>,
    ) -> Result<(), PathError> {
        if let Some(key) = duplicate_key(entries.clone().map(|(key, _)| key)) {
            return Err(PathError::new(format_args!("the key {key:?} occurs twice; rename one of the two")));
        }
        self.open(b'{')?;
        for (at, (key, value)) in entries.enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            self.text(key)?;
            self.out.push(b':');
            write(self, value).map_err(|error| error.at_key(key))?;
        }
        self.close(b'}');
        Ok(())
    }

    /// Writes `{"$ayepi":"<name>","value":...}`. Paths do not include these levels.
    pub(super) fn tag(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut JsonWriter) -> Result<(), PathError>,
    ) -> Result<(), PathError> {
        self.open(b'{')?;
        self.raw(r#""$ayepi":""#);
        self.raw(name);
        self.raw(r#"","value":"#);
        write(self)?;
        self.close(b'}');
        Ok(())
    }

    pub(super) fn open(&mut self, bracket: u8) -> Result<(), PathError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(too_deep());
        }
        self.out.push(bracket);
        Ok(())
    }

    pub(super) fn close(&mut self, bracket: u8) {
        self.depth -= 1;
        self.out.push(bracket);
    }
}

/// The first key that occurs more than once.
pub(super) fn duplicate_key<'a>(mut keys: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    if keys.clone().nth(FEW_KEYS).is_some() {
        let mut seen = HashSet::new();
        return keys.find(|key| !seen.insert(*key));
    }
    while let Some(key) = keys.next() {
        if keys.clone().any(|other| other == key) {
            return Some(key);
        }
    }
    None
}

pub(super) fn too_deep() -> PathError {
    PathError::new(format_args!("nested more than {DEPTH_MAX} deep; make it flatter"))
}
