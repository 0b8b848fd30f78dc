//! The possible contents of an item's payload fields.

use super::history::{Open, Span};
use bytes::Bytes;
use towline_domain::{Field, FieldEdits, FieldSet, Fields};
use towline_store::Operation;

/// The payload fields, each with its value and with other values that it may have instead.
#[derive(Debug, Default)]
pub(super) struct Payload {
    now: Fields,
    /// For each field, the delivery whose holder wrote it.
    since: [Option<(u32, Span)>; 4],
    or: Vec<(Field, Option<Bytes>)>,
}

impl Payload {
    pub(super) fn new(fields: &Fields) -> Payload {
        Payload { now: fields.clone(), since: [None; 4], or: Vec::new() }
    }

    /// An edit by the lease holder of this delivery was acknowledged.
    pub(super) fn edited(&mut self, edits: &FieldEdits, delivery: u32, span: &Span) {
        for field in Field::ALL {
            let Some(value) = edits.get(field) else {
                continue;
            };
            let mut last = *span;
            match self.since[field as usize] {
                Some((number, _)) if number > delivery => continue,
                // Of two overlapping edits, either may be the last.
                Some((number, then)) if number == delivery && !then.before(span) => {
                    self.or.push((field, self.now.get(field).cloned()));
                    last = then.or(span);
                }
                _ => self.or.retain(|(other, _)| *other != field),
            }
            self.now.set(field, value.clone());
            self.since[field as usize] = Some((delivery, last));
        }
    }

    /// The first field with an impossible value.
    pub(super) fn impossible_field(&self, seen: &Fields, wanted: FieldSet, open: &[Open]) -> Option<Field> {
        Field::ALL.into_iter().filter(|&field| wanted.contains(field)).find(|&field| {
            let value = seen.get(field);
            let given = |edits: &FieldEdits| edits.get(field).is_some_and(|edit| edit.as_ref() == value);
            self.now.get(field) != value
                && !self.or.iter().any(|(other, or)| *other == field && or.as_ref() == value)
                && !open.iter().any(|open| match open.operation() {
                    Operation::Lease { call, .. } => given(&call.adjust.edits),
                    _ => false,
                })
        })
    }

    pub(super) fn observed(&mut self, seen: &Fields) {
        self.now = seen.clone();
        self.or.clear();
    }
}
