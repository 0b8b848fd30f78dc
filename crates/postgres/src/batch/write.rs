//! The second round trip of a batch: writes what was decided, and commits.

use crate::batch::batch_rows::BatchRows;
use crate::batch::content_request::ContentRequest;
use crate::batch::outcome::Contents;
use crate::batch::overlay::Overlay;
use crate::connection::session::{Parameters, SHARDS, Session, Step, pipeline};
use crate::encoding::sql::millis;
use crate::error::Failure;
use crate::events::codec as event_codec;
use towline_domain::{Hour, limits};

/// Writes what the overlay has decided, commits, and reads what the answers need. Also returns whether it wrote anything.
pub(crate) async fn write(
    session: &Session,
    overlay: &Overlay,
    request: &mut ContentRequest,
    batch: i64,
) -> Result<(Contents, bool), Failure> {
    let rows = BatchRows::of(overlay);
    let parameters = WriteParameters::new(session, overlay, batch);
    let mut steps = request.steps(session);
    let reads = steps.len();
    push_items(&mut steps, session, &rows, &parameters);
    push_store(&mut steps, session, &rows, &parameters);
    let anything = steps.len() > reads;
    if anything {
        let parameters: Parameters<'_> = vec![&session.number, &parameters.batch, &parameters.decided_at];
        steps.push(session.step(&session.statements.record_batch, parameters));
    }
    steps.push(session.command("COMMIT"));
    let mut answers = pipeline(steps).await?;
    answers.truncate(reads);
    Ok((std::mem::take(request).contents_of_steps(answers), anything))
}

/// Parameters that are not rows.
struct WriteParameters {
    batch: i64,
    decided_at: i64,
    errors_max: i64,
    /// The shard of `counters` and `tallies` that the batch adds to, and the shard to move over first, if any.
    shard: i32,
    old_shard: Option<i32>,
    /// Tallies of earlier hours do not change any more and stay in their shard.
    first_hour: i64,
    event_partition: i16,
    events: Vec<Vec<u8>>,
}

impl WriteParameters {
    fn new(session: &Session, overlay: &Overlay, batch: i64) -> WriteParameters {
        let (shard, old_shard) = shards(session.shard, batch);
        WriteParameters {
            batch,
            decided_at: millis(overlay.now),
            errors_max: limits::ERRORS_KEPT_MAX as i64,
            shard,
            old_shard,
            first_hour: Hour::of(overlay.now).0.cast_signed() - 1,
            event_partition: overlay.event_slot,
            events: encode_events(overlay),
        }
    }
}

/// Adds a statement unless it has no rows.
macro_rules! push {
    ($steps:ident, $session:ident, $statement:ident, $empty:expr, $parameters:expr) => {
        if !$empty {
            $steps.push($session.step(&$session.statements.$statement, $parameters));
        }
    };
}

/// Pages, payloads, and the other rows of items. All batches write the tables, and the rows of each, in the same order, so
/// that no two batches wait for each other.
fn push_items<'a>(
    steps: &mut Vec<Step<'a>>,
    session: &'a Session,
    rows: &'a BatchRows<'a>,
    parameters: &'a WriteParameters,
) {
    macro_rules! push_rows {
        ($($arguments:tt)*) => { push!(steps, session, $($arguments)*) };
    }
    push_rows!(delete_side_rows, rows.removed.is_empty(), vec![&rows.removed]);
    let removed = &rows.removed_ranges;
    push_rows!(delete_side_rows_in_ranges, removed.0.is_empty(), vec![&removed.0, &removed.1]);
    let layout = &rows.layout;
    push_rows!(delete_pages, layout.deleted.is_empty(), vec![&layout.deleted]);
    let deleted = &layout.deleted_terminal;
    push_rows!(delete_terminal_pages, deleted.0.is_empty(), vec![&deleted.0, &deleted.1]);
    push_rows!(update_pages, layout.changed.is_empty(), layout.changed.parameters());
    push_rows!(insert_pages, layout.new.is_empty(), layout.new.parameters());
    push_rows!(insert_terminal_pages, layout.terminal.is_empty(), layout.terminal.parameters());
    let payloads = &layout.payloads;
    push_rows!(
        insert_payloads,
        payloads.first.is_empty(),
        vec![&layout.payload_partitions, &payloads.first, &payloads.last, &payloads.bytes]
    );
    let released = &rows.released;
    push_rows!(release_keys, released.0.is_empty(), vec![&released.0, &released.1, &released.2]);
    push_rows!(free_keys, rows.freed_keys.is_empty(), vec![&rows.freed_keys]);
    let keys = &rows.keys;
    push_rows!(
        insert_keys,
        keys.seq.is_empty(),
        vec![&keys.queue, &keys.key, &keys.seq, &keys.id, &keys.content_digest, &keys.freed]
    );
    push_rows!(insert_chosen_ids, rows.chosen.0.is_empty(), vec![&rows.chosen.0, &rows.chosen.1]);
    push_rows!(delete_tags, rows.retagged.is_empty(), vec![&rows.retagged]);
    push_rows!(insert_tags, rows.tags.0.is_empty(), vec![&rows.tags.0, &rows.tags.1, &rows.tags.2]);
    push_rows!(upsert_edits, rows.edits.seq.is_empty(), rows.edits.parameters());
    let errors = &rows.errors;
    push_rows!(insert_errors, errors.0.is_empty(), vec![&errors.0, &errors.1, &errors.2]);
    push_rows!(trim_errors, rows.many_errors.is_empty(), vec![&rows.many_errors, &parameters.errors_max]);
    push_rows!(upsert_outcomes, rows.outcomes.0.is_empty(), vec![&rows.outcomes.0, &rows.outcomes.1]);
}

/// Records, counts, queues and events, in the same order in all batches.
fn push_store<'a>(
    steps: &mut Vec<Step<'a>>,
    session: &'a Session,
    rows: &'a BatchRows<'a>,
    parameters: &'a WriteParameters,
) {
    macro_rules! push_rows {
        ($($arguments:tt)*) => { push!(steps, session, $($arguments)*) };
    }
    let WriteParameters { shard, old_shard, first_hour, .. } = parameters;
    let kv = &rows.kv;
    push_rows!(insert_kv, kv.new.0.is_empty(), vec![&kv.new.0, &kv.new.1, &kv.new.2]);
    push_rows!(update_kv, kv.changed.0.is_empty(), vec![&kv.changed.0, &kv.changed.1, &kv.changed.2]);
    push_rows!(delete_kv, kv.removed.is_empty(), vec![&kv.removed]);
    if let Some(old) = old_shard {
        push_rows!(fold_counters, false, vec![old, shard]);
    }
    push_rows!(add_counts, rows.counts.queue.is_empty(), rows.counts.parameters(shard));
    if let Some(old) = old_shard {
        push_rows!(fold_tallies, false, vec![old, shard, first_hour]);
    }
    push_rows!(add_tallies, rows.tallies.is_empty(), rows.tallies.all_parameters(shard));
    push_rows!(add_tag_tallies, rows.tag_tallies.is_empty(), rows.tag_tallies.tag_parameters(shard));
    push_rows!(upsert_rate_states, rows.rates.0.is_empty(), vec![&rows.rates.0, &rows.rates.1]);
    let turns = &rows.round_robins;
    push_rows!(upsert_round_robins, turns.0.is_empty(), vec![&turns.0, &turns.1, &turns.2, &turns.3]);
    for queue in &rows.queues {
        push_rows!(upsert_queue, false, vec![&queue.0, &queue.1, &queue.2]);
    }
    for queue in &rows.deleted_queues {
        push_rows!(delete_queue, false, vec![queue]);
    }
    // Last, while the transaction holds all its locks: the events of an item are then in order.
    let WriteParameters { event_partition, decided_at, events, .. } = parameters;
    push_rows!(insert_events, events.is_empty(), vec![event_partition, decided_at, events]);
}

fn encode_events(overlay: &Overlay) -> Vec<Vec<u8>> {
    let name = |id| {
        let changed = overlay.queues.get(&id).and_then(Option::as_ref);
        changed.or_else(|| overlay.catalog.by_id(id)).map(|queue| &queue.name)
    };
    event_codec::encode(&overlay.events, overlay.salt, overlay.now, name)
}

/// The shard that a batch adds to and, if the batch is the first in that shard, the one before it: a row changes only so
/// many times.
fn shards(own: i32, batch: i64) -> (i32, Option<i32>) {
    const BATCHES: i64 = 512;
    const ROUNDS: i64 = 1024;
    let shard = |round: i64| own + SHARDS * i32::try_from(round.rem_euclid(ROUNDS)).unwrap_or(0);
    let round = batch / BATCHES;
    (shard(round), (batch % BATCHES == 0).then(|| shard(round - 1)))
}
