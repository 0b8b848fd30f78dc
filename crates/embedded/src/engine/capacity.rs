//! Capacity: which operations still fit into the log, and which are refused when the disk is full.

use super::{Engine, SPARES};
use crate::log::segment::HEADER_BYTES;
use std::collections::BTreeMap;
use towline_domain::command::Verb;
use towline_domain::kv::KvCommand;
use towline_domain::{Body, Fields, Item, Json, LeaseCall, Outcome, Refusal, Submission, limits};
use towline_store::Operation;

/// An upper bound on the bytes of the tallies that one finished item changes.
const TALLIES: usize =
    limits::TALLY_TAGS_MAX * (2 * limits::TAG_KEY_BYTES_MAX + 2 * limits::TAG_VALUE_BYTES_MAX + 128) + 128;

/// An upper bound on the bytes of a dependency: ids, or a name.
const AFTER_BYTES: usize = limits::AFTER_ITEMS_MAX * 20 + limits::LABEL_BYTES_MAX;

/// The id of an item that was handed off, in the result of the commit.
const ID_BYTES: usize = 24;

/// Results and fields up to this size are kept even on a full disk.
const SETTLE_BYTES_SMALL: usize = 4096;

impl Engine {
    /// Whether there is no spare segment and the active segment is nearly full.
    pub(super) fn out_of_room(&self) -> bool {
        self.free.is_empty() && self.room_left() < self.segment_bytes / 32
    }

    /// Whether one more lease fits. On a full disk, leases leave the last segment to operations that free space.
    pub(super) fn has_room(&mut self) -> bool {
        if self.room_left() < self.segment_bytes / 8 && self.free.len() < SPARES {
            self.make_spare();
        }
        self.status.full.is_none() || self.room_left() >= self.segment_bytes / 8
    }

    /// The bytes that still fit into the active segment.
    pub(crate) fn room_left(&self) -> u64 {
        let taken = self.frame.len() + self.unwritten_tallies.bytes;
        self.segment_bytes.saturating_sub(self.active_offset + taken as u64)
    }

    /// Refuses an operation that is too large for a segment. On a full disk, it refuses submits first, then leases and large
    /// results, then settles, and operations that free space last.
    pub(super) fn check_room(&mut self, operation: &Operation) -> Option<Refusal> {
        let bytes = operation_bytes(operation) as u64;
        let max = self.segment_bytes - 4 * HEADER_BYTES;
        if bytes > max {
            return Some(Refusal::TooLarge { what: "the item", bytes, max });
        }
        let bytes = bytes + TALLIES as u64;
        let left = self.room_left();
        if left < bytes && self.free.len() < SPARES {
            self.make_spare();
        }
        let detail = self.status.full.as_ref()?;
        let share = |part: u64| self.segment_bytes / part;
        let (needed, may_use_spare) = match operation.asked() {
            Operation::Submit { .. } | Operation::Restore(_) | Operation::CreateQueue { .. } => {
                (share(4), false)
            }
            Operation::Receive(_) => (share(8), false),
            Operation::Lease { call, .. } if matches!(call.verb, Verb::Heartbeat { .. } | Verb::Edit) => {
                (share(8), false)
            }
            Operation::Lease { call, .. } if !call.adjust.then_submit.is_empty() => (share(4), false),
            // The last spare is for operations that free space, so it must not be used up by a few results.
            Operation::Lease { call, .. } if settle_bytes(call) > SETTLE_BYTES_SMALL => (share(8), false),
            Operation::Kv {
                command:
                    KvCommand::Set { .. }
                    | KvCommand::SetIfAbsent { .. }
                    | KvCommand::Replace { value: Some(_), .. },
                ..
            } => (share(8), false),
            Operation::Sweep => return None,
            Operation::Delete { .. } | Operation::DeleteQueue { .. } | Operation::Kv { .. } => (0, true),
            _ => (share(16), true),
        };
        let fits = left >= bytes + needed || (may_use_spare && !self.free.is_empty());
        (!fits).then(|| Refusal::DiskFull { detail: detail.clone() })
    }
}

/// An upper bound on the bytes that an operation adds to the log.
pub(crate) fn operation_bytes(operation: &Operation) -> usize {
    const OVERHEAD: usize = 1024;
    let variable = match operation.asked() {
        Operation::Submit { submission, .. } => submission_bytes(submission),
        Operation::Restore(restore) => {
            let Item { body, fields, outcome, errors, .. } = &restore.item;
            let errors = errors.iter().map(|error| error.message.len() + OVERHEAD);
            let after = restore.item.head.dependency().map_or(0, |_| AFTER_BYTES);
            content_bytes(body, fields) + outcome_bytes(outcome) + errors.sum::<usize>() + after
        }
        Operation::Lease { call, .. } => {
            let reason = if matches!(call.verb, Verb::Commit(_)) { 0 } else { limits::REASON_BYTES_MAX };
            let items = call.adjust.then_submit.iter();
            let items = items.map(|item| OVERHEAD + ID_BYTES + submission_bytes(&item.submission));
            settle_bytes(call) + reason + items.sum::<usize>()
        }
        Operation::Kv { key, command } => {
            key.len()
                + match command {
                    KvCommand::Set { value, .. }
                    | KvCommand::SetIfAbsent { value, .. }
                    | KvCommand::Replace { value: Some(value), .. } => value.len(),
                    _ => 0,
                }
        }
        Operation::ResolveDependency { .. } => AFTER_BYTES + limits::REASON_BYTES_MAX,
        _ => 0,
    };
    OVERHEAD + variable
}

fn submission_bytes(submission: &Submission) -> usize {
    let record = submission.record_guard.as_ref().map_or(0, |once| once.key.len() + once.next.len());
    let after = submission.after.as_ref().map_or(0, |_| AFTER_BYTES);
    content_bytes(&submission.body, &submission.fields) + record + after
}

/// The bytes of the results and fields that a call brings.
fn settle_bytes(call: &LeaseCall) -> usize {
    let edits = &call.adjust.edits;
    let fields = towline_domain::Field::ALL.into_iter().filter_map(|field| edits.get(field)?.as_ref());
    let outcome = match &call.verb {
        Verb::Commit(outcome) => outcome_bytes(outcome),
        _ => 0,
    };
    fields.map(bytes::Bytes::len).sum::<usize>() + outcome
}

fn content_bytes(body: &Body, fields: &Fields) -> usize {
    let tags: usize = body.tags.iter().map(|(name, value)| name.len() + value.len() + 24).sum();
    let inputs = body.inputs.iter().map(|(slot, buffer)| slot.as_str().len() + buffer.as_str().len() + 8);
    let trace = body.trace.as_ref().map_or(0, |_| limits::TRACESTATE_BYTES_MAX + 32);
    let labels = 4 * limits::LABEL_BYTES_MAX;
    fields.bytes() + params_bytes(&body.params) + tags + inputs.sum::<usize>() + labels + trace
}

fn outcome_bytes(outcome: &Outcome) -> usize {
    params_bytes(&outcome.output_params) + outcome.outputs.len() * 400
}

fn params_bytes(params: &BTreeMap<String, Json>) -> usize {
    params.iter().map(|(name, value)| name.len() + value.as_str().len() + 8).sum()
}
