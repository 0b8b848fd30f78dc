//! Outcomes of operations, and the contents that are read to answer them.

use crate::batch::overlay::Entry;
use crate::batch::receive_hints::OrderPosition;
use crate::encoding::code;
use crate::error::damaged;
use crate::pages::payloads::{PayloadBytes, PayloadPieces};
use crate::pages::snapshot::PayloadRef;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use tokio_postgres::Row;
use towline_domain::{
    AttemptError, Body, Errors, Field, FieldEdits, FieldSet, Fields, Head, Item, Outcome as CommitOutcome,
};
use towline_store::{Answered, Reply, StoreError, transaction};

pub(crate) type Outcome = transaction::Outcome<DeliveredItem>;

/// A delivered item, as it was at the delivery.
#[derive(Debug)]
pub(crate) struct DeliveredItem {
    pub(crate) seq: u64,
    pub(crate) place: OrderPosition,
    head: Head,
    pub(crate) kept: PayloadRef,
    /// Set if this batch submitted the item: no content has to be read.
    submitted: Option<Box<(Body, Fields)>>,
    replaced: Option<Box<Body>>,
    edits: Vec<FieldEdits>,
    errors: Vec<AttemptError>,
}

impl DeliveredItem {
    pub(crate) fn of(seq: u64, place: OrderPosition, entry: &Entry) -> DeliveredItem {
        DeliveredItem {
            seq,
            place,
            head: entry.head.clone(),
            kept: entry.kept,
            submitted: entry.submitted.clone(),
            replaced: entry.replaced.clone(),
            edits: entry.edits.clone(),
            errors: entry.errors.iter().map(|(_, error)| error.clone()).collect(),
        }
    }

    pub(crate) fn is_stored(&self) -> bool {
        self.submitted.is_none()
    }

    /// The first delivery of an item comes before any error of it.
    pub(crate) fn may_have_errors(&self) -> bool {
        self.is_stored() && self.head.transitions > 1
    }
}

/// What was read of items, apart from their heads.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pieces: PayloadPieces,
    bodies: PayloadBytes,
    edits: FxHashMap<u64, FieldEdits>,
    /// Replaces the body in `bodies`.
    replaced: FxHashMap<u64, Body>,
    errors: FxHashMap<u64, Vec<AttemptError>>,
    outcomes: FxHashMap<u64, CommitOutcome>,
    /// Items that cannot be read.
    damage: FxHashMap<u64, StoreError>,
    /// How many deliveries met damage.
    pub(crate) damages: u64,
}

impl Contents {
    pub(crate) fn read(
        pieces: PayloadPieces,
        bodies: &[Row],
        edits: &[Row],
        errors: &[Row],
        outcomes: &[Row],
    ) -> Contents {
        let mut contents =
            Contents { bodies: PayloadBytes::of(bodies, &pieces), pieces, ..Contents::default() };
        for row in edits {
            let mut edit = FieldEdits::default();
            for field in Field::ALL {
                let at = 1 + 2 * field as usize;
                if row.get(at) {
                    edit = match row.get::<_, Option<&[u8]>>(at + 1) {
                        Some(value) => edit.set(field, Bytes::copy_from_slice(value)),
                        None => edit.unset(field),
                    };
                }
            }
            let seq = row.get::<_, i64>(0).cast_unsigned();
            contents.edits.insert(seq, edit);
            match row.get::<_, Option<&str>>(9).map(|text| text_of(seq, "edits", text)) {
                Some(Ok(body)) => drop(contents.replaced.insert(seq, body)),
                Some(Err(damage)) => drop(contents.damage.insert(seq, damage)),
                None => {}
            }
        }
        for row in errors {
            let seq = row.get::<_, i64>(0).cast_unsigned();
            match text_of(seq, "errors", row.get(1)) {
                Ok(error) => contents.errors.entry(seq).or_default().push(error),
                Err(damage) => drop(contents.damage.insert(seq, damage)),
            }
        }
        for row in outcomes {
            let seq = row.get::<_, i64>(0).cast_unsigned();
            match text_of(seq, "outcomes", row.get(1)) {
                Ok(outcome) => drop(contents.outcomes.insert(seq, outcome)),
                Err(damage) => drop(contents.damage.insert(seq, damage)),
            }
        }
        contents
    }

    /// The whole item.
    pub(crate) fn item(&mut self, seq: u64, head: Head) -> Result<Item, StoreError> {
        if let Some(damage) = self.damage.remove(&seq) {
            return Err(damage);
        }
        let Some(submitted) = self.bodies.take(&self.pieces, seq) else {
            return Err(damaged(format_args!("{seq} of pages"), "its row of payloads is missing"));
        };
        let (mut body, mut fields) = submitted?;
        if let Some(replaced) = self.replaced.remove(&seq) {
            body = replaced;
        }
        if let Some(edits) = self.edits.get(&seq) {
            edits.apply(&mut fields);
        }
        let errors: Errors = self.errors.remove(&seq).unwrap_or_default().into_iter().collect();
        Ok(Item { head, body, fields, outcome: self.outcomes.remove(&seq).unwrap_or_default(), errors })
    }
}

fn text_of<T: serde::de::DeserializeOwned>(seq: u64, table: &str, text: &str) -> Result<T, StoreError> {
    code::from_json(text).map_err(|error| damaged(format_args!("{seq} of {table}"), error))
}

/// The answer, with the contents that were read for it. An item that cannot be read is left out: its lease is committed, and
/// lapses. The receiver gets the other items.
pub(crate) fn answer(outcome: Outcome, contents: &mut Contents) -> Answered {
    match outcome {
        Outcome::Decided(decided) => decided.map_err(Into::into),
        Outcome::Received(deliveries) => Ok(Reply::Received(deliveries.received(|given, wanted| {
            given.into_iter().filter_map(|given| given.read(contents, wanted)).collect()
        }))),
    }
}

impl DeliveredItem {
    fn read(self, contents: &mut Contents, wanted: FieldSet) -> Option<Item> {
        let DeliveredItem { seq, head, submitted, replaced, edits, errors, .. } = self;
        let mut item = match submitted {
            Some(submitted) => {
                let (body, fields) = *submitted;
                let (outcome, errors) = Default::default();
                Item { head, body, fields, outcome, errors }
            }
            None => {
                let id = head.id;
                let read = contents.item(seq, head).inspect_err(|error| {
                    tracing::error!(%id, "a received item is not delivered: {error}");
                    contents.damages += 1;
                });
                read.ok()?
            }
        };
        if let Some(body) = replaced {
            item.body = *body;
        }
        edits.iter().for_each(|edits| edits.apply(&mut item.fields));
        errors.into_iter().for_each(|error| item.errors.push(error));
        item.fields = only(item.fields, wanted);
        Some(item)
    }
}

fn only(mut fields: Fields, wanted: FieldSet) -> Fields {
    for field in Field::ALL.into_iter().filter(|&field| !wanted.contains(field)) {
        fields.set(field, None);
    }
    fields
}
