//! The small objects of a buffer, as JSON: its description, its writer, its end.

use blake3::Hash;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::sizes::Sizes;
use crate::storage::At;
use crate::{BufferError, Meta, Position, Result, State, WriterMark};

const VERSION: u32 = 1;

/// Longer than any description or writer can be.
pub(crate) const SMALL_BYTES_MAX: u64 = 64 << 10;
/// Longer than an end with a million chunks, no two alike in size.
pub(crate) const END_BYTES_MAX: u64 = 32 << 20;

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    content: T,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Writer {
    pub writer: WriterMark,
    pub begun_at_ms: u64,
    pub touched_at_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    #[serde(flatten)]
    pub outcome: Outcome,
    pub finished_at_ms: u64,
    pub chunks: u32,
    pub bytes: u64,
    pub chain: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Outcome {
    Complete { sizes: Sizes, writer: WriterMark },
    Failed { reason: String },
}

impl End {
    pub fn new(outcome: Outcome, position: Position, now_ms: u64) -> Self {
        let Position { chunks, bytes, chain } = position;
        Self { outcome, finished_at_ms: now_ms, chunks, bytes, chain: chain.to_hex().to_string() }
    }

    /// Checks what a hand could have changed.
    pub fn position(&self, at: At<'_>) -> Result<Position> {
        let chain = Hash::from_hex(&self.chain).map_err(|_| at.damaged("its end has no chain"))?;
        if let Outcome::Complete { sizes, .. } = &self.outcome
            && sizes.totals() != Some((self.chunks, self.bytes))
        {
            return Err(at.damaged("the sizes in its end do not add up"));
        }
        Ok(Position { chunks: self.chunks, bytes: self.bytes, chain })
    }

    pub fn state(&self) -> State {
        let finished_at_ms = self.finished_at_ms;
        match &self.outcome {
            Outcome::Complete { .. } => State::Complete { finished_at_ms },
            Outcome::Failed { reason } => State::Failed { finished_at_ms, reason: reason.clone() },
        }
    }

    /// Why nothing can be written any more.
    pub fn refusal(&self, id: &str) -> BufferError {
        match &self.outcome {
            Outcome::Complete { .. } => BufferError::AlreadyWritten { id: id.to_owned() },
            Outcome::Failed { reason } => BufferError::Failed { id: id.to_owned(), reason: reason.clone() },
        }
    }
}

/// What is stored as JSON.
pub(crate) trait Record: Serialize + DeserializeOwned {
    const WHAT: &'static str;
}

impl Record for Meta {
    const WHAT: &'static str = "its description";
}

impl Record for Writer {
    const WHAT: &'static str = "its writer";
}

impl Record for End {
    const WHAT: &'static str = "its end";
}

pub(crate) fn encode<T: Record>(content: &T, at: At<'_>) -> Result<Vec<u8>> {
    serde_json::to_vec(&Versioned { version: VERSION, content })
        .map_err(|error| at.damaged(format!("{} cannot be written: {error}", T::WHAT)))
}

pub(crate) fn decode<T: Record>(bytes: &[u8], at: At<'_>) -> Result<T> {
    let record: Versioned<T> = serde_json::from_slice(bytes)
        .map_err(|error| at.damaged(format!("{} cannot be read: {error}", T::WHAT)))?;
    if record.version != VERSION {
        return Err(at.damaged(format!("{} is of version {}, a later Towline's", T::WHAT, record.version)));
    }
    Ok(record.content)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: At<'static> = At { doing: "testing", id: "b" };

    /// What earlier versions wrote stays readable: these texts never change.
    #[test]
    fn the_texts_are_what_they_were() {
        let writer = Writer { writer: WriterMark::from_bytes([1; 16]), begun_at_ms: 1, touched_at_ms: 2 };
        let text =
            r#"{"version":1,"writer":"01010101010101010101010101010101","begun_at_ms":1,"touched_at_ms":2}"#;
        assert_eq!(String::from_utf8(encode(&writer, AT).unwrap()).unwrap(), text);
        assert_eq!(decode::<Writer>(text.as_bytes(), AT).unwrap(), writer);

        let mut sizes = Sizes::default();
        sizes.push(7);
        let outcome = Outcome::Complete { sizes, writer: WriterMark::from_bytes([1; 16]) };
        let end = End::new(outcome, Position { chunks: 1, bytes: 7, chain: Hash::from_bytes([2; 32]) }, 9);
        let text = r#"{"version":1,"state":"complete","sizes":[[1,7]],"writer":"01010101010101010101010101010101","finished_at_ms":9,"chunks":1,"bytes":7,"chain":"0202020202020202020202020202020202020202020202020202020202020202"}"#;
        assert_eq!(String::from_utf8(encode(&end, AT).unwrap()).unwrap(), text);
        assert_eq!(decode::<End>(text.as_bytes(), AT).unwrap(), end);
        assert_eq!(end.position(AT).unwrap().bytes, 7);

        let failed = End::new(Outcome::Failed { reason: "no".into() }, Position::START, 9);
        let text = r#"{"version":1,"state":"failed","reason":"no","finished_at_ms":9,"chunks":0,"bytes":0,"chain":"0000000000000000000000000000000000000000000000000000000000000000"}"#;
        assert_eq!(String::from_utf8(encode(&failed, AT).unwrap()).unwrap(), text);
        assert_eq!(decode::<End>(text.as_bytes(), AT).unwrap(), failed);

        let meta = Meta { created_at_ms: 5, tags: [("k".into(), "v".into())].into(), expires_at_ms: Some(6) };
        let text = r#"{"version":1,"created_at_ms":5,"tags":{"k":"v"},"expires_at_ms":6}"#;
        assert_eq!(String::from_utf8(encode(&meta, AT).unwrap()).unwrap(), text);
        assert_eq!(decode::<Meta>(text.as_bytes(), AT).unwrap(), meta);
    }

    #[test]
    fn an_end_that_does_not_add_up_and_a_later_version_are_damage() {
        let mut end = End::new(
            Outcome::Complete { sizes: Sizes::default(), writer: WriterMark::from_bytes([1; 16]) },
            Position::START,
            9,
        );
        assert!(end.position(AT).is_ok());
        end.bytes = 1;
        assert!(matches!(end.position(AT), Err(BufferError::Damaged { .. })));
        let later = br#"{"version":2,"created_at_ms":5}"#;
        assert!(matches!(decode::<Meta>(later, AT), Err(BufferError::Damaged { .. })));
    }
}
