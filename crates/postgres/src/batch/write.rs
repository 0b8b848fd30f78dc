//! The second round trip of a batch: what was decided, and the commit.

use crate::batch::outcome::{Contents, Outcome};
use crate::batch::overlay::{Entry, Overlay};
use crate::batch::plan::replace_key;
use crate::batch::tally::Columns;
use crate::connection::session::{Parameters, SHARDS, Session, Step, pipeline};
use crate::encoding::code;
use crate::encoding::sql::{millis, queue_number};
use crate::error::Failure;
use crate::events::codec as event_codec;
use crate::pages::layout::Layout;
use crate::pages::payloads::Pieces;
use crate::pages::snapshot::{Image, Kept};
use std::borrow::Cow;
use tokio_postgres::Row;
use towline_domain::{Field, FieldSet, Hour, limits};
use uuid::Uuid;

/// What the answers of a batch have to bring along.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pieces: Pieces,
    edited: Vec<i64>,
    edited_fields: [bool; 4],
    with_errors: Vec<i64>,
}

impl Wanted {
    pub(crate) fn of(outcomes: &[Outcome]) -> Wanted {
        let mut wanted = Wanted::default();
        for outcome in outcomes {
            let Outcome::Received { given, fields, .. } = outcome else { continue };
            for given in given.iter().filter(|given| given.is_stored()) {
                wanted.add(given.seq, &given.kept, *fields);
                if given.may_have_errors() {
                    wanted.with_errors.push(given.seq.cast_signed());
                }
            }
        }
        wanted
    }

    /// Of these items, everything but what `fields` leaves out.
    pub(crate) fn all(images: &[Image], fields: FieldSet) -> Wanted {
        let mut wanted = Wanted::default();
        for image in images {
            wanted.add(image.seq, &image.kept, fields);
            if image.kept.side {
                wanted.with_errors.push(image.seq.cast_signed());
            }
        }
        wanted
    }

    fn add(&mut self, seq: u64, kept: &Kept, fields: FieldSet) {
        let fields = Field::ALL.map(|field| fields.contains(field));
        self.pieces.want(seq, &kept.at, fields);
        if kept.edited.is_some() {
            self.edited.push(seq.cast_signed());
            self.edited_fields.iter_mut().zip(fields).for_each(|(wanted, field)| *wanted |= field);
        }
    }

    pub(crate) fn bodies(&self) -> Parameters<'_> {
        let Pieces { slot, chunk, offset, length, .. } = &self.pieces;
        vec![slot, chunk, offset, length]
    }

    pub(crate) fn edits(&self) -> Parameters<'_> {
        let [state_blob, blob, metadata, parameters] = &self.edited_fields;
        vec![&self.edited, state_blob, blob, metadata, parameters]
    }

    pub(crate) fn errors(&self) -> Parameters<'_> {
        vec![&self.with_errors]
    }

    pub(crate) fn contents(
        self,
        bodies: &[Row],
        edits: &[Row],
        errors: &[Row],
        outcomes: &[Row],
    ) -> Contents {
        Contents::read(self.pieces, bodies, edits, errors, outcomes)
    }

    fn steps<'a>(&'a self, session: &'a Session) -> Vec<Step<'a>> {
        let statements = &session.statements;
        let mut steps = Vec::new();
        if !self.pieces.is_empty() {
            steps.push(session.step(&statements.read_payloads, self.bodies()));
        }
        if !self.edited.is_empty() {
            steps.push(session.step(&statements.read_edits, self.edits()));
        }
        if !self.with_errors.is_empty() {
            steps.push(session.step(&statements.read_errors, self.errors()));
        }
        steps
    }

    /// What the steps brought.
    fn brought(self, rows: Vec<Vec<Row>>) -> Contents {
        let mut rows = rows.into_iter();
        let mut next = |sent: bool| if sent { rows.next().unwrap_or_default() } else { Vec::new() };
        let bodies = next(!self.pieces.is_empty());
        let edits = next(!self.edited.is_empty());
        let errors = next(!self.with_errors.is_empty());
        self.contents(&bodies, &edits, &errors, &[])
    }

    /// Reads it by itself: the batch was committed, and its answers were lost on the way.
    pub(crate) async fn read(self, session: &Session) -> Result<Contents, Failure> {
        let rows = pipeline(self.steps(session)).await?;
        Ok(self.brought(rows))
    }
}

/// Writes what the overlay holds, commits, and reads what the answers bring along; and tells whether there was anything.
pub(crate) async fn write(
    session: &Session,
    overlay: &Overlay,
    wanted: &mut Wanted,
    batch: i64,
) -> Result<(Contents, bool), Failure> {
    let rows = Rows::of(overlay);
    let removed: Vec<i64> =
        overlay.removed.iter().filter(|(_, side)| **side).map(|(seq, _)| seq.cast_signed()).collect();
    let (gone_first, gone_last): (Vec<i64>, Vec<i64>) = overlay.gone.iter().copied().unzip();
    let (kept, decided_at) = (limits::ERRORS_KEPT_MAX as i64, millis(overlay.now));
    let (shard, before) = shards(session.shard, batch);
    // Those before it are not counted in any more.
    let last_hour = Hour::of(overlay.now).0.cast_signed() - 1;
    let values_max = limits::TALLY_VALUES_MAX as i64;
    let told = pack_told(overlay);
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
    push!(delete_side_rows, removed.is_empty(), vec![&removed]);
    push!(delete_side_rows_in_ranges, gone_first.is_empty(), vec![&gone_first, &gone_last]);
    let layout = &rows.layout;
    push!(delete_pages, layout.gone.is_empty(), vec![&layout.gone]);
    push!(
        delete_terminal_pages,
        layout.gone_finished.0.is_empty(),
        vec![&layout.gone_finished.0, &layout.gone_finished.1]
    );
    push!(update_pages, layout.changed.is_empty(), layout.changed.parameters());
    push!(insert_pages, layout.new.is_empty(), layout.new.parameters());
    push!(insert_terminal_pages, layout.finished.is_empty(), layout.finished.parameters());
    let bodies = &layout.bodies;
    push!(
        insert_payloads,
        bodies.first.is_empty(),
        vec![&layout.slots, &bodies.first, &bodies.last, &bodies.blob]
    );
    let released = &rows.released;
    push!(release_keys, released.0.is_empty(), vec![&released.0, &released.1, &released.2]);
    let keys = &rows.keys;
    push!(insert_keys, keys.seq.is_empty(), vec![&keys.queue, &keys.key, &keys.seq, &keys.id, &keys.content]);
    push!(insert_chosen_ids, rows.chosen.0.is_empty(), vec![&rows.chosen.0, &rows.chosen.1]);
    push!(delete_tags, rows.retagged.is_empty(), vec![&rows.retagged]);
    push!(insert_tags, rows.tags.0.is_empty(), vec![&rows.tags.0, &rows.tags.1, &rows.tags.2]);
    push!(upsert_edits, rows.edits.seq.is_empty(), rows.edits.parameters());
    let errors = &rows.errors;
    push!(insert_errors, errors.0.is_empty(), vec![&errors.0, &errors.1, &errors.2]);
    push!(trim_errors, rows.many_errors.is_empty(), vec![&rows.many_errors, &kept]);
    push!(upsert_outcomes, rows.outcomes.0.is_empty(), vec![&rows.outcomes.0, &rows.outcomes.1]);
    let kv = &rows.kv;
    push!(insert_kv, kv.new.0.is_empty(), vec![&kv.new.0, &kv.new.1, &kv.new.2]);
    push!(update_kv, kv.changed.0.is_empty(), vec![&kv.changed.0, &kv.changed.1, &kv.changed.2]);
    push!(delete_kv, kv.gone.is_empty(), vec![&kv.gone]);
    let counts = &rows.counts;
    if let Some(before) = &before {
        push!(fold_counters, false, vec![before, &shard]);
    }
    push!(add_counts, counts.queue.is_empty(), counts.parameters(&shard));
    if let Some(before) = &before {
        push!(fold_tallies, false, vec![before, &shard, &last_hour]);
    }
    push!(add_tallies, rows.tallies.is_empty(), rows.tallies.all_parameters(&shard));
    push!(add_tag_tallies, rows.tagged.is_empty(), rows.tagged.tag_parameters(&shard, &values_max));
    push!(upsert_rate_states, rows.rates.0.is_empty(), vec![&rows.rates.0, &rows.rates.1]);
    let turns = &rows.turns;
    push!(upsert_round_robins, turns.0.is_empty(), vec![&turns.0, &turns.1, &turns.2, &turns.3]);
    for put in &rows.queues {
        push!(upsert_queue, false, vec![&put.0, &put.1, &put.2]);
    }
    for gone in &rows.queues_gone {
        push!(delete_queue, false, vec![gone]);
    }
    // Last, while all locks are held: what is told of an item is told in order.
    push!(insert_events, told.is_empty(), vec![&overlay.event_slot, &decided_at, &told]);
    let anything = steps.len() > reads;
    push!(record_batch, !anything, vec![&session.number, &batch, &decided_at]);
    steps.push(session.command("COMMIT"));
    let mut answers = pipeline(steps).await?;
    answers.truncate(reads);
    Ok((std::mem::take(wanted).brought(answers), anything))
}

fn pack_told(overlay: &Overlay) -> Vec<Vec<u8>> {
    let name = |id| {
        let changed = overlay.queues.get(&id).and_then(Option::as_ref);
        changed.or_else(|| overlay.catalog.by_id(id)).map(|queue| &queue.name)
    };
    event_codec::pack(&overlay.told, overlay.salt, overlay.now, name)
}

/// The shard that a batch counts in, and the one that is left with it: a row is changed so many times and no more.
fn shards(own: i32, batch: i64) -> (i32, Option<i32>) {
    const BATCHES: i64 = 512;
    const ROUNDS: i64 = 1024;
    let shard = |round: i64| own + SHARDS * i32::try_from(round.rem_euclid(ROUNDS)).unwrap_or(0);
    let round = batch / BATCHES;
    (shard(round), (batch % BATCHES == 0).then(|| shard(round - 1)))
}

#[derive(Default)]
struct Rows<'a> {
    layout: Layout,
    edits: Edits<'a>,
    keys: Keys<'a>,
    /// Keys that go to others: of which queue, from which item.
    released: (Vec<i32>, Vec<Vec<u8>>, Vec<i64>),
    chosen: (Vec<Uuid>, Vec<i64>),
    tags: (Vec<i64>, Vec<&'a [u8]>, Vec<&'a [u8]>),
    /// Items with other tags than before.
    retagged: Vec<i64>,
    errors: (Vec<i64>, Vec<i64>, Vec<String>),
    /// Items that may have more errors than are kept.
    many_errors: Vec<i64>,
    outcomes: (Vec<i64>, Vec<String>),
    kv: Kv<'a>,
    counts: CountChanges,
    tallies: Columns,
    tagged: Columns,
    queues: Vec<(i32, String, String)>,
    queues_gone: Vec<i32>,
    rates: (Vec<i32>, Vec<i64>),
    turns: (Vec<i32>, Vec<i64>, Vec<i32>, Vec<bool>),
}

#[derive(Default)]
struct Edits<'a> {
    seq: Vec<i64>,
    sets: [Vec<bool>; 4],
    values: [Vec<Option<&'a [u8]>>; 4],
    bodies: Vec<Option<String>>,
}

#[derive(Default)]
struct Keys<'a> {
    queue: Vec<i32>,
    key: Vec<Cow<'a, [u8]>>,
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
        let mut rows = Rows {
            layout: Layout::of(overlay),
            tallies: Columns::of_all(&overlay.tallies),
            tagged: Columns::of_tags(&overlay.tallies),
            ..Rows::default()
        };
        for (&seq, entry) in overlay.entries.iter().filter(|(_, entry)| entry.changed) {
            rows.item(seq, entry);
        }
        for ((queue, key), owner) in &overlay.keys {
            if !owner.stored && overlay.owns(owner) {
                rows.keys.queue.push(queue_number(*queue));
                rows.keys.key.push(Cow::Borrowed(key.as_bytes()));
                rows.keys.seq.push(owner.seq.cast_signed());
                rows.keys.id.push(owner.id.0);
                rows.keys.content.push(&owner.content);
            }
        }
        rows.replace_keys(overlay);
        rows.kv(overlay);
        for (&queue, change) in &overlay.counted {
            if change.iter().any(|&change| change != 0) {
                rows.counts.queue.push(queue_number(queue));
                for (column, &change) in rows.counts.change.iter_mut().zip(change) {
                    column.push(change);
                }
            }
        }
        for (&id, (spent, _)) in overlay.spent.iter().filter(|(_, (_, changed))| *changed) {
            rows.rates.0.push(queue_number(id));
            // A time that does not fit limits nothing.
            rows.rates.1.push(i64::try_from(spent.0).unwrap_or(0));
        }
        for (&id, turn) in overlay.turns.iter().filter(|(_, turn)| turn.changed) {
            rows.turns.0.push(queue_number(id));
            rows.turns.1.push(turn.turn.key.number());
            rows.turns.2.push(turn.turn.given.cast_signed());
            rows.turns.3.push(turn.begins);
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

    /// Keys of new items, wherever they were before.
    fn replace_keys(&mut self, overlay: &'a Overlay) {
        for ((queue, key), owner) in &overlay.replace_keys {
            if owner.stored == Some(owner.seq) || !overlay.entries.contains_key(&owner.seq) {
                continue;
            }
            let (queue, key) = (queue_number(*queue), replace_key(key));
            if let Some(stored) = owner.stored {
                self.released.0.push(queue);
                self.released.1.push(key.clone());
                self.released.2.push(stored.cast_signed());
            }
            self.keys.queue.push(queue);
            self.keys.key.push(Cow::Owned(key));
            self.keys.seq.push(owner.seq.cast_signed());
            self.keys.id.push(owner.id.0);
            self.keys.content.push(&[]);
        }
    }

    fn item(&mut self, number: u64, entry: &'a Entry) {
        let seq = number.cast_signed();
        if entry.chosen_id {
            self.chosen.0.push(entry.head.id.0);
            self.chosen.1.push(seq);
        }
        if entry.replaced.is_some() {
            self.retagged.push(seq);
        }
        let submitted = entry.submitted.as_ref().map(|submitted| &submitted.0);
        if let Some(body) = submitted.or(entry.replaced.as_deref()) {
            let group = body.group.as_ref().map(|group| ("", group.as_str()));
            let tags = body.tags.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            for (name, value) in tags.chain(group) {
                self.tags.0.push(seq);
                self.tags.1.push(name.as_bytes());
                self.tags.2.push(value.as_bytes());
            }
        }
        if !entry.edits.is_empty() {
            self.edits.seq.push(seq);
            self.edits.bodies.push(entry.replaced.as_deref().map(code::to_json));
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

impl Edits<'_> {
    fn parameters(&self) -> Parameters<'_> {
        let mut parameters: Parameters<'_> = vec![&self.seq];
        for (sets, values) in self.sets.iter().zip(&self.values) {
            parameters.push(sets);
            parameters.push(values);
        }
        parameters.push(&self.bodies);
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
