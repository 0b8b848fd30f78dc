//! Writes records into the frame that is being filled.

use super::{
    BODY, CHOSEN_ID, ERROR, FIELDS, HEAD, HEADER_BYTES, INDEXED, Indexed, OUTCOME, Parts, RecordKind,
    StoredHead, StoredRemoval, StoredTimes, TallyKey, UNSET, check, field_part,
};
use serde::Serialize;
use std::borrow::Cow;
use towline_domain::kv::KvRecord;
use towline_domain::{
    Body, Change, EventKind, Field, Head, ItemId, Queue, QueueId, QueueName, Tally, TallyTag, limits,
};

/// Appends one record to the buffer of a frame.
#[derive(Debug)]
pub struct RecordEncoder<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
    /// Where the payload fields start.
    payload: Option<usize>,
}

impl<'a> RecordEncoder<'a> {
    pub fn new(
        buffer: &'a mut Vec<u8>,
        kind: RecordKind,
        event: Option<EventKind>,
        subject: u64,
    ) -> RecordEncoder<'a> {
        let start = buffer.len();
        buffer.extend_from_slice(&[0; 8]);
        buffer.push(kind as u8);
        buffer.push(event.map_or(0, |event| event as u8));
        buffer.extend_from_slice(&[0; 2]);
        buffer.extend_from_slice(&subject.to_le_bytes());
        RecordEncoder { buffer, start, payload: None }
    }

    /// Appends a part. `None` means an unset field. The caller appends parts in the order of [`super::PARTS`].
    pub fn part(&mut self, part: Parts, bytes: Option<&[u8]>) {
        self.mark(part);
        if part & FIELDS != 0 {
            self.payload.get_or_insert(self.buffer.len());
        }
        let length = bytes.map_or(UNSET, |bytes| u32::try_from(bytes.len()).unwrap_or(UNSET));
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(bytes.unwrap_or_default());
    }

    fn encoded<T: Serialize>(&mut self, part: Parts, value: &T) {
        self.mark(part);
        let at = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 4]);
        // Serializing owned data into memory cannot fail. If it did, the decoder would refuse the empty part.
        if let Err(error) = postcard::to_io(value, &mut *self.buffer) {
            debug_assert!(false, "{error}");
            self.buffer.truncate(at + 4);
        }
        let length = u32::try_from(self.buffer.len() - at - 4).unwrap_or(UNSET);
        self.buffer[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }

    fn mark(&mut self, part: Parts) {
        let at = self.start + 10;
        let parts = u16::from_le_bytes([self.buffer[at], self.buffer[at + 1]]) | part;
        self.buffer[at..at + 2].copy_from_slice(&parts.to_le_bytes());
    }

    /// Fills in length and checks. Returns the record's length.
    pub fn finish(self, salt: u64) -> u32 {
        let RecordEncoder { buffer, start, payload } = self;
        let check = check(&buffer[start + 8..payload.unwrap_or(buffer.len())], salt);
        buffer[start + 4..start + 8].copy_from_slice(&check.to_le_bytes());
        if let Some(payload) = payload {
            let check = crc32c::crc32c_append(check, &buffer[payload..]);
            buffer.extend_from_slice(&check.to_le_bytes());
        }
        let length = u32::try_from(buffer.len() - start).unwrap_or(u32::MAX);
        buffer[start..start + 4].copy_from_slice(&length.to_le_bytes());
        length
    }
}

/// Writes a change of an item. `chosen` is the item's id if its submitter chose it. Returns the record's length and parts.
pub fn encode_change(
    buffer: &mut Vec<u8>,
    change: &Change,
    sequence: u64,
    indexed: Option<&Indexed>,
    chosen: Option<ItemId>,
    salt: u64,
) -> (u32, Parts) {
    let Some(head) = change.head() else {
        return (encode_removal(buffer, change, sequence, chosen, salt), 0);
    };
    let mut parts = HEAD;
    let mut encoder = RecordEncoder::new(buffer, RecordKind::Item, change.event(), sequence);
    encode_head(&mut encoder, head);
    if let Some((body, _)) = change.submitted() {
        // Most items have the default body, which is left out.
        if *body != Body::default() {
            encoder.encoded(BODY, body);
            parts |= BODY;
        }
    }
    if let Some(outcome) = change.outcome() {
        encoder.encoded(OUTCOME, outcome);
        parts |= OUTCOME;
    }
    if let Some(error) = change.error() {
        encoder.encoded(ERROR, &(head.revision, error));
        parts |= ERROR;
    }
    if let Some(indexed) = indexed {
        encoder.encoded(INDEXED, indexed);
        parts |= INDEXED;
    }
    if let Some(id) = chosen {
        encoder.encoded(CHOSEN_ID, &id);
    }
    // A replacement overwrites all fields of the item before it, so it also stores which fields are unset.
    let replaces = change.before().is_some();
    for field in Field::ALL {
        let submitted = change.submitted().map(|(_, fields)| fields.get(field));
        let submitted = submitted.filter(|bytes| bytes.is_some() || replaces);
        let edited = || change.edits()?.get(field).map(Option::as_ref);
        if let Some(bytes) = submitted.or_else(edited) {
            encoder.part(field_part(field), bytes.map(|bytes| &bytes[..]));
            parts |= field_part(field);
        }
    }
    (encoder.finish(salt), parts)
}

/// A removal without an event, for example at the end of a TTL, contains only the sequence number.
fn encode_removal(
    buffer: &mut Vec<u8>,
    change: &Change,
    sequence: u64,
    chosen_id: Option<ItemId>,
    salt: u64,
) -> u32 {
    let removal = change.event().zip(change.before());
    let event = removal.as_ref().map(|(event, _)| *event);
    let mut encoder = RecordEncoder::new(buffer, RecordKind::ItemRemoved, event, sequence);
    if let Some((_, before)) = removal {
        let made_at = if chosen_id.is_some() { 0 } else { before.id.made_at().0 };
        let group = before.leaves;
        encoder.encoded(HEAD, &StoredRemoval { queue: before.queue, made_at, chosen_id, group });
    }
    encoder.finish(salt)
}

/// How an offer that there is not is written.
const NO_OFFER: u8 = 0;

pub fn encode_head(encoder: &mut RecordEncoder<'_>, head: &Head) {
    let stored = StoredHead {
        queue: head.queue,
        state: Cow::Borrowed(&head.state),
        priority: head.priority,
        created_at: head.created_at,
        ready_after: head.ready_at.0.wrapping_sub(head.created_at.0),
        retries: head.retries,
        deliveries: head.deliveries,
        revision: head.revision,
        transitions: head.transitions,
        expires_at: head.expires_at,
        last_settle: head.last_settle,
        group: head.group,
        fairness_key: head.fairness_key,
        extras: head.extras.as_deref().map(Cow::Borrowed),
    };
    if head.changed_at.is_none() && head.heartbeat_at.is_none() {
        return encoder.encoded(HEAD, &stored);
    }
    let times = StoredTimes::of(head);
    // Extras without an offer end before it. So that the times are not read as the offer, write that there is none.
    match head.extras.as_ref().is_some_and(|extras| extras.offer.is_none()) {
        true => encoder.encoded(HEAD, &(stored, NO_OFFER, times)),
        false => encoder.encoded(HEAD, &(stored, times)),
    }
}

pub fn encode_queue(buffer: &mut Vec<u8>, queue: &Queue, event: Option<EventKind>, salt: u64) -> u32 {
    let mut encoder = RecordEncoder::new(buffer, RecordKind::Queue, event, u64::from(queue.id.0));
    // Left out of the policy, so that the queues of earlier builds are read.
    match queue.policy.tally_values_max {
        limits::TALLY_VALUES_DEFAULT => encoder.encoded(HEAD, queue),
        values_max => encoder.encoded(HEAD, &(queue, values_max)),
    }
    encoder.finish(salt)
}

/// Stores the name, so that the event reader can name the queue in events that precede its deletion.
pub fn encode_queue_deleted(buffer: &mut Vec<u8>, id: QueueId, name: Option<&QueueName>, salt: u64) -> u32 {
    let event = Some(EventKind::QueueDeleted);
    let mut encoder = RecordEncoder::new(buffer, RecordKind::QueueDeleted, event, u64::from(id.0));
    if let Some(name) = name {
        encoder.encoded(HEAD, name);
    }
    encoder.finish(salt)
}

pub fn encode_kv(buffer: &mut Vec<u8>, key: &str, record: &KvRecord, salt: u64) -> u32 {
    let mut encoder = RecordEncoder::new(buffer, RecordKind::Kv, None, 0);
    encoder.encoded(HEAD, &(key, record));
    encoder.finish(salt)
}

pub fn encode_kv_deleted(buffer: &mut Vec<u8>, key: &str, salt: u64) -> u32 {
    let mut encoder = RecordEncoder::new(buffer, RecordKind::KvDeleted, None, 0);
    encoder.encoded(HEAD, &key);
    encoder.finish(salt)
}

pub fn encode_tally(buffer: &mut Vec<u8>, queue: QueueId, key: &TallyKey, tally: &Tally, salt: u64) -> u32 {
    let mut encoder = RecordEncoder::new(buffer, RecordKind::Tally, None, u64::from(queue.0));
    encoder.encoded(HEAD, &(key, tally));
    encoder.finish(salt)
}

/// An upper bound on the length of a record that [`encode_tally`] writes.
pub fn tally_bytes(tag: Option<&TallyTag>) -> usize {
    // A header, and nine numbers of at most ten bytes.
    let tag = tag.map_or(0, |tag| tag.name.len() + tag.value.as_ref().map_or(0, String::len) + 12);
    HEADER_BYTES + 4 + 9 * 10 + tag
}
