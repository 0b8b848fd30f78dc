//! The JSON records of a buffer: its description, its writer, its end.

use blake3::Hash;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::format::chunk_sizes::ChunkSizes;
use crate::storage::ErrorContext;
use crate::{BufferError, BufferState, Meta, Owner, Position, Result, WriterMark};

const VERSION: u32 = 1;

/// The maximum size of a description or writer record, in bytes. Longer than any valid one.
pub(crate) const RECORD_BYTES_MAX: u64 = 64 << 10;
/// The maximum size of an end record, in bytes. Enough for a million chunks of different sizes.
pub(crate) const END_RECORD_BYTES_MAX: u64 = 32 << 20;

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    content: T,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriterRecord {
    pub writer: WriterMark,
    pub begun_at_ms: u64,
    pub touched_at_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndRecord {
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
    Complete { sizes: ChunkSizes, writer: WriterMark },
    Failed { reason: String },
}

impl EndRecord {
    pub fn new(outcome: Outcome, position: Position, now_ms: u64) -> Self {
        let Position { chunks, bytes, chain } = position;
        Self { outcome, finished_at_ms: now_ms, chunks, bytes, chain: chain.to_hex().to_string() }
    }

    /// The totals of the buffer. Checks them, because an operator could have edited the record.
    pub fn position(&self, context: ErrorContext<'_>) -> Result<Position> {
        let chain = Hash::from_hex(&self.chain)
            .map_err(|_| context.damaged("the hash chain in its end record is not valid"))?;
        if let Outcome::Complete { sizes, .. } = &self.outcome
            && sizes.totals() != Some((self.chunks, self.bytes))
        {
            return Err(context.damaged("the sizes in its end record do not add up"));
        }
        Ok(Position { chunks: self.chunks, bytes: self.bytes, chain })
    }

    pub fn state(&self) -> BufferState {
        let finished_at_ms = self.finished_at_ms;
        match &self.outcome {
            Outcome::Complete { .. } => BufferState::Complete { finished_at_ms },
            Outcome::Failed { reason } => BufferState::Failed { finished_at_ms, reason: reason.clone() },
        }
    }

    /// The error for a writer that comes after the end.
    pub fn refusal(&self, id: &str) -> BufferError {
        match &self.outcome {
            Outcome::Complete { .. } => BufferError::AlreadyWritten { id: id.to_owned() },
            Outcome::Failed { reason } => BufferError::Failed { id: id.to_owned(), reason: reason.clone() },
        }
    }
}

/// A record with its name for error messages.
pub(crate) trait Record: Serialize + DeserializeOwned {
    const NAME: &'static str;
}

impl Record for Meta {
    const NAME: &'static str = "its description";
}

impl Record for Owner {
    const NAME: &'static str = "the owner record";
}

impl Record for WriterRecord {
    const NAME: &'static str = "its writer record";
}

impl Record for EndRecord {
    const NAME: &'static str = "its end record";
}

pub(crate) fn encode<T: Record>(content: &T, context: ErrorContext<'_>) -> Result<Vec<u8>> {
    serde_json::to_vec(&Versioned { version: VERSION, content })
        .map_err(|error| context.damaged(format!("{} cannot be written: {error}", T::NAME)))
}

pub(crate) fn decode<T: Record>(bytes: &[u8], context: ErrorContext<'_>) -> Result<T> {
    let record: Versioned<T> = serde_json::from_slice(bytes)
        .map_err(|error| context.damaged(format!("{} cannot be read: {error}", T::NAME)))?;
    if record.version != VERSION {
        return Err(context.damaged(format!(
            "{} has version {}: a later version of Towline wrote it",
            T::NAME,
            record.version
        )));
    }
    Ok(record.content)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: ErrorContext<'static> = ErrorContext { action: "testing", id: "b" };

    /// Records of earlier versions stay readable: these texts never change.
    #[test]
    fn the_record_formats_are_stable() {
        let writer =
            WriterRecord { writer: WriterMark::from_bytes([1; 16]), begun_at_ms: 1, touched_at_ms: 2 };
        let text =
            r#"{"version":1,"writer":"01010101010101010101010101010101","begun_at_ms":1,"touched_at_ms":2}"#;
        assert_eq!(String::from_utf8(encode(&writer, AT).unwrap()).unwrap(), text);
        assert_eq!(decode::<WriterRecord>(text.as_bytes(), AT).unwrap(), writer);

        let mut sizes = ChunkSizes::default();
        sizes.push(7);
        let outcome = Outcome::Complete { sizes, writer: WriterMark::from_bytes([1; 16]) };
        let end =
            EndRecord::new(outcome, Position { chunks: 1, bytes: 7, chain: Hash::from_bytes([2; 32]) }, 9);
        let text = r#"{"version":1,"state":"complete","sizes":[[1,7]],"writer":"01010101010101010101010101010101","finished_at_ms":9,"chunks":1,"bytes":7,"chain":"0202020202020202020202020202020202020202020202020202020202020202"}"#;
        assert_eq!(String::from_utf8(encode(&end, AT).unwrap()).unwrap(), text);
        assert_eq!(decode::<EndRecord>(text.as_bytes(), AT).unwrap(), end);
        assert_eq!(end.position(AT).unwrap().bytes, 7);

        let failed = EndRecord::new(Outcome::Failed { reason: "no".into() }, Position::START, 9);
        let text = r#"{"version":1,"state":"failed","reason":"no","finished_at_ms":9,"chunks":0,"bytes":0,"chain":"0000000000000000000000000000000000000000000000000000000000000000"}"#;
        assert_eq!(String::from_utf8(encode(&failed, AT).unwrap()).unwrap(), text);
        assert_eq!(decode::<EndRecord>(text.as_bytes(), AT).unwrap(), failed);

        let meta = Meta { created_at_ms: 5, tags: [("k".into(), "v".into())].into(), expires_at_ms: Some(6) };
        let text = r#"{"version":1,"created_at_ms":5,"tags":{"k":"v"},"expires_at_ms":6}"#;
        assert_eq!(String::from_utf8(encode(&meta, AT).unwrap()).unwrap(), text);
        assert_eq!(decode::<Meta>(text.as_bytes(), AT).unwrap(), meta);

        let owner = Owner { stores: ["b".into(), "a".into()].into(), since_ms: 5 };
        let text = r#"{"version":1,"stores":["a","b"],"since_ms":5}"#;
        assert_eq!(String::from_utf8(encode(&owner, AT).unwrap()).unwrap(), text);
        assert_eq!(decode::<Owner>(text.as_bytes(), AT).unwrap(), owner);
    }

    #[test]
    fn an_inconsistent_end_record_and_a_later_version_are_damage() {
        let mut end = EndRecord::new(
            Outcome::Complete { sizes: ChunkSizes::default(), writer: WriterMark::from_bytes([1; 16]) },
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
