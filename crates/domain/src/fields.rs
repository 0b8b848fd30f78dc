//! The four opaque payload fields of an item. The worker that holds its lease can set and unset each.

use crate::limits;
use crate::refusal::Refusal;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// What a handler keeps from one attempt to the next, such as a VM snapshot.
    StateBlob,
    /// The body of the work; `payload` in the API and on the command line.
    Blob,
    Metadata,
    Parameters,
}

impl Field {
    pub const ALL: [Field; 4] = [Field::StateBlob, Field::Blob, Field::Metadata, Field::Parameters];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Field::StateBlob => "state_blob",
            Field::Blob => "blob",
            Field::Metadata => "metadata",
            Field::Parameters => "parameters",
        }
    }
}

/// What to read of an item besides its head: these fields, and body, outcome and errors unless it is
/// [`FieldSet::HEADS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSet(u8);

impl FieldSet {
    pub const ALL: FieldSet = FieldSet(0b1111);
    pub const NONE: FieldSet = FieldSet(0);
    /// Heads alone. Body, outcome and errors are empty, and a store that has heads in memory reads nothing else.
    pub const HEADS: FieldSet = FieldSet(0b1_0000);

    #[must_use]
    pub const fn with(self, field: Field) -> FieldSet {
        FieldSet(self.0 | 1 << field as u8)
    }

    /// The same fields, with bodies.
    #[must_use]
    pub fn with_bodies(self) -> FieldSet {
        FieldSet(self.0 & FieldSet::ALL.0)
    }

    #[must_use]
    pub fn has_any(self) -> bool {
        self.0 & FieldSet::ALL.0 != 0
    }

    #[must_use]
    pub fn contains(self, field: Field) -> bool {
        self.0 & 1 << field as u8 != 0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields {
    pub state_blob: Option<Bytes>,
    pub blob: Option<Bytes>,
    pub metadata: Option<Bytes>,
    pub parameters: Option<Bytes>,
}

impl Fields {
    #[must_use]
    pub fn get(&self, field: Field) -> Option<&Bytes> {
        match field {
            Field::StateBlob => self.state_blob.as_ref(),
            Field::Blob => self.blob.as_ref(),
            Field::Metadata => self.metadata.as_ref(),
            Field::Parameters => self.parameters.as_ref(),
        }
    }

    pub fn set(&mut self, field: Field, value: Option<Bytes>) {
        match field {
            Field::StateBlob => self.state_blob = value,
            Field::Blob => self.blob = value,
            Field::Metadata => self.metadata = value,
            Field::Parameters => self.parameters = value,
        }
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        Field::ALL.iter().filter_map(|&field| self.get(field)).map(Bytes::len).sum()
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        for field in Field::ALL {
            check_one(field, self.get(field))?;
        }
        Ok(())
    }
}

fn check_one(field: Field, value: Option<&Bytes>) -> Result<(), Refusal> {
    match value {
        Some(value) if value.len() > limits::FIELD_BYTES_MAX => {
            let (bytes, max) = (value.len() as u64, limits::FIELD_BYTES_MAX as u64);
            Err(Refusal::TooLarge { what: field.name(), bytes, max })
        }
        _ => Ok(()),
    }
}

/// For each field: leave it (`None`), unset it (`Some(None)`) or set it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldEdits {
    // Most settles edit nothing: they carry one pointer.
    edits: Option<Box<[Option<Option<Bytes>>; 4]>>,
}

impl FieldEdits {
    #[must_use]
    pub fn set(mut self, field: Field, value: Bytes) -> FieldEdits {
        self.edits.get_or_insert_default()[field as usize] = Some(Some(value));
        self
    }

    #[must_use]
    pub fn unset(mut self, field: Field) -> FieldEdits {
        self.edits.get_or_insert_default()[field as usize] = Some(None);
        self
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edits.is_none()
    }

    #[must_use]
    pub fn get(&self, field: Field) -> Option<&Option<Bytes>> {
        self.edits.as_ref().and_then(|edits| edits[field as usize].as_ref())
    }

    pub fn apply(&self, fields: &mut Fields) {
        for field in Field::ALL {
            if let Some(value) = self.get(field) {
                fields.set(field, value.clone());
            }
        }
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        for field in Field::ALL {
            if let Some(value) = self.get(field) {
                check_one(field, value.as_ref())?;
            }
        }
        Ok(())
    }
}
