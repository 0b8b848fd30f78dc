//! The second round trip of a batch: what was decided, and the commit.

use crate::code;
use crate::columns::Columns;
use crate::error::Failure;
use crate::image::{millis, queue_number};
use crate::outcome::{Contents, Outcome};
use crate::overlay::{Entry, Overlay};
use crate::session::{Parameters, Session, Step, pipeline};
use std::collections::BTreeMap;
use tokio_postgres::Row;
use towline_domain::{Body, Field, FieldSet, limits};
use towline_store::StoreError;
use uuid::Uuid;

/// What the answers of a batch have to bring along.
#[derive(Debug)]
pub(crate) struct Wanted {
    sequences: Vec<i64>,
    with_errors: Vec<i64>,
    fields: [bool; 4],
}

impl Wanted {
    pub(crate) fn of(outcomes: &[Outcome]) -> Wanted {
        let mut wanted = Wanted { sequences: Vec::new(), with_errors: Vec::new(), fields: [false; 4] };
        for outcome in outcomes {
            let Outcome::Received { given, fields, .. } = outcome else { continue };
            let stored = given.iter().filter(|given| given.is_stored());
            wanted.sequences.extend(stored.map(|given| given.seq.cast_signed()));
            let suspects = given.iter().filter(|given| given.may_have_errors());
            wanted.with_errors.extend(suspects.map(|given| given.seq.cast_signed()));
            for field in Field::ALL {
                wanted.fields[field as usize] |= fields.contains(field);
            }
        }
        wanted
    }

    /// Of these items, everything but what `fields` leaves out.
    pub(crate) fn all(sequences: Vec<i64>, fields: FieldSet) -> Wanted {
        let fields = Field::ALL.map(|field| fields.contains(field));
        Wanted { with_errors: sequences.clone(), sequences, fields }
    }

    pub(crate) fn bodies(&self) -> Parameters<'_> {
        let [state_blob, blob, metadata, parameters] = &self.fields;
        vec![&self.sequences, state_blob, blob, metadata, parameters]
    }

    pub(crate) fn errors(&self) -> Parameters<'_> {
        vec![&self.with_errors]
    }

    fn steps<'a>(&'a self, session: &'a Session) -> Vec<Step<'a>> {
        let statements = &session.statements;
        let mut steps = Vec::new();
        if !self.sequences.is_empty() {
            steps.push(session.step(&statements.bodies, self.bodies()));
            steps.push(session.step(&statements.errors, self.errors()));
        }
        steps
    }

    /// Reads it by itself: the batch was committed, and its answers were lost on the way.
    pub(crate) async fn read(&self, session: &Session) -> Result<Contents, Failure> {
        let rows = pipeline(self.steps(session)).await?;
        Ok(contents(&rows)?)
    }
}

fn contents(rows: &[Vec<Row>]) -> Result<Contents, StoreError> {
    match rows {
        [bodies, errors, ..] => Contents::read(bodies, errors, &[]),
        _ => Ok(Contents::default()),
    }
}

/// Writes what the overlay holds, commits, and reads what the answers bring along.
pub(crate) async fn write(
    session: &Session,
    overlay: &Overlay,
    wanted: &Wanted,
    batch: i64,
) -> Result<Contents, Failure> {
    let rows = Rows::of(overlay);
    let removed: Vec<i64> = overlay.removed.iter().map(|seq| seq.cast_signed()).collect();
    let (kept, decided_at) = (limits::ERRORS_KEPT_MAX as i64, millis(overlay.now));
    let statements = &session.statements;
    let mut steps = wanted.steps(session);
    let reads = steps.len();
    // In the order in which rows that others may want are locked, everywhere the same.
    macro_rules! push {
        ($statement:ident, $empty:expr, $parameters:expr) => {
            if !$empty {
                steps.push(session.step(&statements.$statement, $parameters));
            }
        };
    }
    push!(remove, removed.is_empty(), vec![&removed]);
    push!(insert_items, rows.new.is_empty(), rows.new.all());
    let bodies = &rows.bodies;
    push!(insert_bodies, bodies.seq.is_empty(), bodies.parameters());
    let keys = &rows.keys;
    push!(insert_keys, keys.seq.is_empty(), vec![&keys.queue, &keys.key, &keys.seq, &keys.id, &keys.content]);
    push!(insert_chosen_ids, rows.chosen.0.is_empty(), vec![&rows.chosen.0, &rows.chosen.1]);
    push!(insert_tags, rows.tags.0.is_empty(), vec![&rows.tags.0, &rows.tags.1, &rows.tags.2]);
    push!(update_items, rows.changed.is_empty(), rows.changed.changing());
    push!(edit_bodies, rows.edits.seq.is_empty(), rows.edits.parameters());
    let errors = &rows.errors;
    push!(insert_errors, errors.0.is_empty(), vec![&errors.0, &errors.1, &errors.2]);
    push!(trim_errors, rows.many_errors.is_empty(), vec![&rows.many_errors, &kept]);
    push!(insert_outcomes, rows.outcomes.0.is_empty(), vec![&rows.outcomes.0, &rows.outcomes.1]);
    let kv = &rows.kv;
    push!(kv_insert, kv.new.0.is_empty(), vec![&kv.new.0, &kv.new.1, &kv.new.2]);
    push!(kv_update, kv.changed.0.is_empty(), vec![&kv.changed.0, &kv.changed.1, &kv.changed.2]);
    push!(kv_delete, kv.gone.is_empty(), vec![&kv.gone]);
    let counts = &rows.counts;
    push!(count, counts.queue.is_empty(), counts.parameters(&session.shard));
    for put in &rows.queues {
        push!(put_queue, false, vec![&put.0, &put.1, &put.2]);
    }
    for gone in &rows.queues_gone {
        push!(delete_queue, false, vec![gone]);
    }
    let anything = steps.len() > reads;
    push!(mark, !anything, vec![&session.number, &batch, &decided_at]);
    steps.push(session.command("COMMIT"));
    let answers = pipeline(steps).await?;
    Ok(contents(&answers[..reads])?)
}

#[derive(Default)]
struct Rows<'a> {
    new: Columns<'a>,
    changed: Columns<'a>,
    bodies: Bodies<'a>,
    edits: Edits<'a>,
    keys: Keys<'a>,
    chosen: (Vec<Uuid>, Vec<i64>),
    tags: (Vec<i64>, Vec<&'a [u8]>, Vec<&'a [u8]>),
    errors: (Vec<i64>, Vec<i64>, Vec<String>),
    /// Items that may have more errors than are kept.
    many_errors: Vec<i64>,
    outcomes: (Vec<i64>, Vec<String>),
    kv: Kv<'a>,
    counts: CountChanges,
    queues: Vec<(i32, String, String)>,
    queues_gone: Vec<i32>,
}

#[derive(Default)]
struct Bodies<'a> {
    seq: Vec<i64>,
    body: Vec<Option<String>>,
    fields: [Vec<Option<&'a [u8]>>; 4],
}

#[derive(Default)]
struct Edits<'a> {
    seq: Vec<i64>,
    sets: [Vec<bool>; 4],
    values: [Vec<Option<&'a [u8]>>; 4],
}

#[derive(Default)]
struct Keys<'a> {
    queue: Vec<i32>,
    key: Vec<&'a [u8]>,
    seq: Vec<i64>,
    id: Vec<Uuid>,
    content: Vec<&'a [u8]>,
}

type Records<'a> = (Vec<&'a [u8]>, Vec<&'a [u8]>, Vec<Option<i64>>);

#[derive(Default)]
struct Kv<'a> {
    new: Records<'a>,
    changed: Records<'a>,
    gone: Vec<&'a [u8]>,
}

#[derive(Default)]
struct CountChanges {
    queue: Vec<i32>,
    change: [Vec<i64>; 6],
}

impl<'a> Rows<'a> {
    fn of(overlay: &'a Overlay) -> Rows<'a> {
        let mut rows = Rows::default();
        // In order of submission, as a reader of the table would expect to find them.
        let changed: BTreeMap<u64, &Entry> = overlay
            .entries
            .iter()
            .filter(|(_, entry)| entry.changed)
            .map(|(&seq, entry)| (seq, entry))
            .collect();
        for (seq, entry) in changed {
            rows.item(overlay, seq, entry);
        }
        for ((queue, key), owner) in &overlay.keys {
            if !owner.stored && overlay.owns(owner) {
                rows.keys.queue.push(queue_number(*queue));
                rows.keys.key.push(key.as_bytes());
                rows.keys.seq.push(owner.seq.cast_signed());
                rows.keys.id.push(owner.id.0);
                rows.keys.content.push(&owner.content);
            }
        }
        rows.kv(overlay);
        for (&queue, change) in &overlay.counted {
            if change.iter().any(|&change| change != 0) {
                rows.counts.queue.push(queue_number(queue));
                for (column, &change) in rows.counts.change.iter_mut().zip(change) {
                    column.push(change);
                }
            }
        }
        for (&id, queue) in &overlay.queues {
            match queue {
                Some(queue) => {
                    rows.queues.push((queue_number(id), queue.name.to_string(), code::to_json(queue)));
                }
                None => rows.queues_gone.push(queue_number(id)),
            }
        }
        rows
    }

    fn item(&mut self, overlay: &'a Overlay, number: u64, entry: &'a Entry) {
        let seq = number.cast_signed();
        let standing = overlay.standing(&entry.head);
        match &entry.submitted {
            None => self.changed.push(number, &entry.head, entry.bytes, standing, None),
            Some(submitted) => {
                let (body, fields) = &**submitted;
                let group = body.group.as_ref().map(String::as_bytes);
                self.new.push(number, &entry.head, entry.bytes, standing, group);
                self.bodies.seq.push(seq);
                self.bodies.body.push((*body != Body::default()).then(|| code::to_json(body)));
                for field in Field::ALL {
                    self.bodies.fields[field as usize].push(fields.get(field).map(|value| &value[..]));
                }
                if entry.chosen_id {
                    self.chosen.0.push(entry.head.id.0);
                    self.chosen.1.push(seq);
                }
                for (name, value) in &body.tags {
                    self.tags.0.push(seq);
                    self.tags.1.push(name.as_bytes());
                    self.tags.2.push(value.as_bytes());
                }
            }
        }
        if !entry.edits.is_empty() {
            self.edits.seq.push(seq);
            for field in Field::ALL {
                let last = entry.edits.iter().rev().find_map(|edits| edits.get(field));
                self.edits.sets[field as usize].push(last.is_some());
                let value = last.and_then(Option::as_ref).map(|value| &value[..]);
                self.edits.values[field as usize].push(value);
            }
        }
        for (revision, error) in &entry.errors {
            self.errors.0.push(seq);
            self.errors.1.push((*revision).into());
            self.errors.2.push(code::to_json(error));
        }
        // Each error comes with a change of state of its own.
        if !entry.errors.is_empty() && entry.head.transitions as usize >= limits::ERRORS_KEPT_MAX {
            self.many_errors.push(seq);
        }
        if let Some(outcome) = &entry.outcome {
            self.outcomes.0.push(seq);
            self.outcomes.1.push(code::to_json(outcome));
        }
    }

    fn kv(&mut self, overlay: &'a Overlay) {
        for (key, slot) in overlay.kv.iter().filter(|(_, slot)| slot.changed) {
            match (&slot.record, slot.stored) {
                (Some(record), stored) => {
                    let records = if stored { &mut self.kv.changed } else { &mut self.kv.new };
                    records.0.push(key.as_bytes());
                    records.1.push(&record.value);
                    records.2.push(record.expires_at.map(millis));
                }
                (None, true) => self.kv.gone.push(key.as_bytes()),
                (None, false) => {}
            }
        }
    }
}

impl Bodies<'_> {
    fn parameters(&self) -> Parameters<'_> {
        let [state_blob, blob, metadata, parameters] = &self.fields;
        vec![&self.seq, &self.body, state_blob, blob, metadata, parameters]
    }
}

impl Edits<'_> {
    fn parameters(&self) -> Parameters<'_> {
        let mut parameters: Parameters<'_> = vec![&self.seq];
        for (sets, values) in self.sets.iter().zip(&self.values) {
            parameters.push(sets);
            parameters.push(values);
        }
        parameters
    }
}

impl CountChanges {
    fn parameters<'a>(&'a self, shard: &'a i32) -> Parameters<'a> {
        let mut parameters: Parameters<'a> = vec![shard, &self.queue];
        for column in &self.change {
            parameters.push(column);
        }
        parameters
    }
}
