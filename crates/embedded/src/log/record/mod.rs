//! One change inside a frame: an after-image of the parts it touched, never of those it did not.
//!
//! ```text
//!  0 length   u32   of the whole record
//!  4 check    u32   CRC32C of everything after it, seeded with the store's salt: a record is read by itself
//!  8 kind     u8
//!  9 event    u8    what the change tells the world
//! 10 parts    u16   which parts follow (items)
//! 12 subject  u64   the item's sequence number, or the queue's id
//! 20 the parts in order of their bit, each a u32 length and its bytes
//! ```

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use towline_domain::item::Settle;
use towline_domain::kv::KvRecord;
use towline_domain::{
    AttemptError, Body, Change, Dependency, EventKind, Extras, Field, Flow, GroupTag, Head, Hour, ItemId,
    KeyTag, Outcome, Queue, QueueId, QueueName, State, Tally, TallyTag, Timestamp, digest,
};

pub const HEADER_BYTES: usize = 20;

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordPlace {
    pub segment: u32,
    pub offset: u32,
    pub length: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Item = 1,
    ItemRemoved = 2,
    Queue = 3,
    QueueDeleted = 4,
    Kv = 5,
    KvDeleted = 6,
    Tally = 7,
}

impl Kind {
    pub fn from_code(code: u8) -> Result<Kind, RecordError> {
        Ok(match code {
            1 => Kind::Item,
            2 => Kind::ItemRemoved,
            3 => Kind::Queue,
            4 => Kind::QueueDeleted,
            5 => Kind::Kv,
            6 => Kind::KvDeleted,
            7 => Kind::Tally,
            _ => return Err(RecordError::Kind),
        })
    }
}

/// Sets of parts, as bits.
pub type Parts = u16;
pub const HEAD: Parts = 1;
pub const BODY: Parts = 1 << 1;
/// The four payload fields take bits 2 to 5. A field that is unset is a part of length [`UNSET`].
pub const FIELDS: Parts = 0b1111 << 2;
pub const OUTCOME: Parts = 1 << 6;
pub const ERROR: Parts = 1 << 7;
pub const INDEXED: Parts = 1 << 8;
/// The id that its submitter chose, for whoever reads this record alone.
pub const NAMED: Parts = 1 << 9;
/// Those that the index keeps track of.
pub const TRACKED: Parts = NAMED - 1;
const PARTS: u16 = 10;
const UNSET: u32 = u32::MAX;

pub fn field_part(field: Field) -> Parts {
    1 << (2 + field as u16)
}

/// What the index needs to know of a body, so that it need not read it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Indexed {
    /// An id its submitter chose; others follow from time and sequence number.
    pub id: Option<ItemId>,
    pub key: Option<Key>,
    /// Hashes of its tags and its group.
    pub labels: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    pub queue: QueueId,
    pub digest: digest::ContentDigest,
    pub content: digest::ContentDigest,
}

impl Indexed {
    pub fn of(body: &Body, id: Option<ItemId>) -> Option<Indexed> {
        let digest = match (&body.idempotency_key, &body.replace_key) {
            (Some(key), _) => Some(digest::key(key)),
            (None, Some(key)) => Some(digest::replace_key(key)),
            (None, None) => None,
        };
        let key = body.claim.zip(digest).map(|(claim, digest)| Key {
            queue: claim.queue,
            digest,
            content: claim.content,
        });
        let mut labels: Vec<u64> = body.tags.iter().map(|(name, value)| digest::tag(name, value)).collect();
        labels.extend(body.group.as_deref().map(group_label));
        let indexed = Indexed { id, key, labels };
        (indexed != Indexed::default()).then_some(indexed)
    }
}

/// Groups share the label index with tags, under a name no tag can have.
pub fn group_label(group: &str) -> u64 {
    digest::group(group)
}

/// A head as it is stored: without its id, which follows from the record.
#[derive(Serialize, Deserialize)]
struct StoredHead<'a> {
    queue: QueueId,
    state: Cow<'a, State>,
    priority: i16,
    created_at: Timestamp,
    /// Relative to creation: most items are ready at once.
    ready_after: u64,
    retries: u32,
    deliveries: u32,
    revision: u32,
    transitions: u32,
    expires_at: Option<Timestamp>,
    last_settle: Option<Settle>,
    extras: Option<Cow<'a, Extras>>,
}

/// Appends records to a frame's buffer.
#[derive(Debug)]
pub struct Encoder<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Encoder<'a> {
    pub fn new(buffer: &'a mut Vec<u8>, kind: Kind, event: Option<EventKind>, subject: u64) -> Encoder<'a> {
        let start = buffer.len();
        buffer.extend_from_slice(&[0; 8]);
        buffer.push(kind as u8);
        buffer.push(event.map_or(0, |event| event as u8));
        buffer.extend_from_slice(&[0; 2]);
        buffer.extend_from_slice(&subject.to_le_bytes());
        Encoder { buffer, start }
    }

    /// Parts must come in the order of their bits.
    fn raw(&mut self, part: Parts, bytes: &[u8]) {
        self.mark(part);
        self.buffer.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(UNSET).to_le_bytes());
        self.buffer.extend_from_slice(bytes);
    }

    /// `None`: a field that is unset.
    pub fn part(&mut self, part: Parts, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.raw(part, bytes),
            None => {
                self.mark(part);
                self.buffer.extend_from_slice(&UNSET.to_le_bytes());
            }
        }
    }

    fn encoded<T: Serialize>(&mut self, part: Parts, value: &T) {
        self.mark(part);
        let at = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 4]);
        // Serializing owned data into memory has no way to fail; an empty part would be refused when read.
        if let Err(error) = postcard::to_io(value, &mut *self.buffer) {
            debug_assert!(false, "{error}");
            self.buffer.truncate(at + 4);
        }
        let length = u32::try_from(self.buffer.len() - at - 4).unwrap_or(UNSET);
        self.buffer[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Adds to the first part, while it is the only one. What was read by position before sees the same as ever.
    fn behind<T: Serialize>(&mut self, value: &T) {
        let at = self.buffer.len();
        if let Err(error) = postcard::to_io(value, &mut *self.buffer) {
            debug_assert!(false, "{error}");
            self.buffer.truncate(at);
        }
        let length = u32::try_from(self.buffer.len() - self.start - HEADER_BYTES - 4).unwrap_or(UNSET);
        let at = self.start + HEADER_BYTES;
        self.buffer[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }

    fn mark(&mut self, part: Parts) {
        let at = self.start + 10;
        let parts = u16::from_le_bytes([self.buffer[at], self.buffer[at + 1]]) | part;
        self.buffer[at..at + 2].copy_from_slice(&parts.to_le_bytes());
    }

    /// The record's length.
    pub fn finish(self, salt: u64) -> u32 {
        let (buffer, start) = (self.buffer, self.start);
        let length = u32::try_from(buffer.len() - start).unwrap_or(u32::MAX);
        buffer[start..start + 4].copy_from_slice(&length.to_le_bytes());
        let check = check(&buffer[start + 8..], salt);
        buffer[start + 4..start + 8].copy_from_slice(&check.to_le_bytes());
        length
    }
}

fn check(bytes: &[u8], salt: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), bytes)
}

/// What a removed item was, where somebody is told.
#[derive(Serialize, Deserialize)]
struct Removed {
    queue: QueueId,
    /// The time in an id that was not chosen.
    made_at: u64,
    chosen: Option<ItemId>,
}

/// Writes what a change did to an item; `chosen`: its id, if it does not follow from its number. Returns the record's
/// length and parts.
pub fn encode_change(
    buffer: &mut Vec<u8>,
    change: &Change,
    sequence: u64,
    indexed: Option<&Indexed>,
    chosen: Option<ItemId>,
    salt: u64,
) -> (u32, Parts) {
    let Some(head) = change.head() else {
        let mut encoder = Encoder::new(buffer, Kind::ItemRemoved, change.event(), sequence);
        if let Some(before) = change.before().filter(|_| change.event().is_some()) {
            let made_at = if chosen.is_some() { 0 } else { before.id.made_at().0 };
            encoder.encoded(HEAD, &Removed { queue: before.queue, made_at, chosen });
            if let Some(group) = before.leaves {
                encoder.behind(&group);
            }
        }
        return (encoder.finish(salt), 0);
    };
    let mut parts = HEAD;
    let mut encoder = Encoder::new(buffer, Kind::Item, change.event(), sequence);
    encode_head(&mut encoder, head);
    if let Some((body, fields)) = change.submitted() {
        // An item without a body part has the default body: the plain item of a plain queue.
        if *body != Body::default() {
            encode_body(&mut encoder, body);
            parts |= BODY;
        }
        // Nothing of an item that is replaced stays: what the new one has not is said to be unset.
        let replaces = change.before().is_some();
        for field in Field::ALL {
            let bytes = fields.get(field);
            if bytes.is_some() || replaces {
                encoder.part(field_part(field), bytes.map(|bytes| &bytes[..]));
                parts |= field_part(field);
            }
        }
    }
    if let Some(edits) = change.edits() {
        for field in Field::ALL {
            match edits.get(field) {
                Some(Some(bytes)) => encoder.raw(field_part(field), bytes),
                Some(None) => encoder.part(field_part(field), None),
                None => continue,
            }
            parts |= field_part(field);
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
        encoder.encoded(NAMED, &id);
    }
    (encoder.finish(salt), parts)
}

fn encode_body(encoder: &mut Encoder<'_>, body: &Body) {
    // Behind the rest: bodies were written before there were traces and replace keys.
    match (&body.replace_key, &body.trace) {
        (None, None) => encoder.encoded(BODY, body),
        (None, Some(trace)) => encoder.encoded(BODY, &(body, trace)),
        (Some(key), None) => encoder.encoded(BODY, &(body, key)),
        (Some(key), Some(trace)) => encoder.encoded(BODY, &(body, key, trace)),
    }
}

pub fn encode_head(encoder: &mut Encoder<'_>, head: &Head) {
    let stored = StoredHead {
        queue: head.queue,
        state: Cow::Borrowed(&head.state),
        priority: head.priority,
        created_at: head.created_at,
        ready_after: head.ready_at.since(head.created_at).0,
        retries: head.retries,
        deliveries: head.deliveries,
        revision: head.revision,
        transitions: head.transitions,
        expires_at: head.expires_at,
        last_settle: head.last_settle,
        extras: head.extras.as_deref().map(Cow::Borrowed),
    };
    encoder.encoded(HEAD, &stored);
    // Behind the rest: heads were written before there were such things. Up to the last that there is.
    let tally_tags = head.extras.as_ref().map_or(&[][..], |extras| &extras.tally_tags);
    let waits = (head.group, head.extras.as_ref().and_then(|extras| extras.after.as_ref()));
    let has_key = !head.fairness_key.is_none();
    let has_waits = has_key || waits.0.is_some() || waits.1.is_some();
    if has_waits || !tally_tags.is_empty() {
        encoder.behind(&tally_tags);
    }
    if has_waits {
        encoder.behind(&waits);
    }
    if has_key {
        encoder.behind(&head.fairness_key);
    }
}

pub fn encode_queue(buffer: &mut Vec<u8>, queue: &Queue, event: Option<EventKind>, salt: u64) -> u32 {
    let mut encoder = Encoder::new(buffer, Kind::Queue, event, u64::from(queue.id.0));
    encoder.encoded(HEAD, queue);
    // What came later lies behind the rest, in the order in which it came: up to the last that there is.
    let flow = &queue.policy.flow;
    let has_flow = *flow != Flow::default();
    if has_flow || !queue.policy.tally_tags.is_empty() {
        encoder.behind(&queue.policy.tally_tags);
    }
    if has_flow {
        encoder.behind(&(flow.concurrency, flow.rate));
    }
    if flow.takes_turns() {
        encoder.behind(&flow.fairness);
    }
    if flow.concurrency_per_key.is_some() {
        encoder.behind(&flow.concurrency_per_key);
    }
    encoder.finish(salt)
}

/// Where something is counted: an hour, and a tag if it is told apart by one.
pub type TallyKey = (Hour, Option<TallyTag>);

pub fn encode_tally(buffer: &mut Vec<u8>, queue: QueueId, key: &TallyKey, tally: &Tally, salt: u64) -> u32 {
    let mut encoder = Encoder::new(buffer, Kind::Tally, None, u64::from(queue.0));
    encoder.encoded(HEAD, &(key, tally));
    encoder.finish(salt)
}

/// At most as long as [`encode_tally`] makes it.
pub fn tally_bytes(tag: Option<&TallyTag>) -> usize {
    // A header, and nine numbers of at most ten bytes.
    let tag = tag.map_or(0, |tag| tag.name.len() + tag.value.as_ref().map_or(0, String::len) + 12);
    HEADER_BYTES + 4 + 9 * 10 + tag
}

pub fn decode_tally(bytes: &[u8]) -> Result<(TallyKey, Tally), RecordError> {
    decode_static(bytes)
}

/// `name`: for whoever reads what happened before.
pub fn encode_queue_deleted(buffer: &mut Vec<u8>, id: QueueId, name: Option<&QueueName>, salt: u64) -> u32 {
    let event = Some(EventKind::QueueDeleted);
    let mut encoder = Encoder::new(buffer, Kind::QueueDeleted, event, u64::from(id.0));
    if let Some(name) = name {
        encoder.encoded(HEAD, name);
    }
    encoder.finish(salt)
}

pub fn encode_kv(buffer: &mut Vec<u8>, key: &str, record: &KvRecord, salt: u64) -> u32 {
    let mut encoder = Encoder::new(buffer, Kind::Kv, None, 0);
    encoder.encoded(HEAD, &(key, record));
    encoder.finish(salt)
}

pub fn encode_kv_deleted(buffer: &mut Vec<u8>, key: &str, salt: u64) -> u32 {
    let mut encoder = Encoder::new(buffer, Kind::KvDeleted, None, 0);
    encoder.encoded(HEAD, &key);
    encoder.finish(salt)
}

/// A record whose check held.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    pub kind: Kind,
    pub event: u8,
    pub parts: Parts,
    pub subject: u64,
    pub bytes: &'a [u8],
}

/// Why bytes are not the record they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("a record is cut short")]
    Short,
    #[error("a record's checksum does not match")]
    Check,
    #[error("a record is of a kind this version does not know")]
    Kind,
    #[error("a record's content does not decode")]
    Content,
    #[error("a record belongs to another item")]
    Foreign,
}

impl<'a> Record<'a> {
    /// The record at the beginning of `bytes`.
    pub fn read(bytes: &'a [u8], salt: u64) -> Result<Record<'a>, RecordError> {
        let record = Record::peek(bytes)?;
        let stored = u32::from_le_bytes(bytes[4..8].try_into().map_err(|_| RecordError::Short)?);
        if check(&record.bytes[8..], salt) != stored {
            return Err(RecordError::Check);
        }
        Ok(record)
    }

    /// As [`Record::read`], for bytes whose frame has been checked already.
    pub fn peek(bytes: &'a [u8]) -> Result<Record<'a>, RecordError> {
        let header: &[u8; HEADER_BYTES] =
            bytes.get(..HEADER_BYTES).and_then(|b| b.try_into().ok()).ok_or(RecordError::Short)?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        if length < HEADER_BYTES || length > bytes.len() {
            return Err(RecordError::Short);
        }
        let kind = Kind::from_code(header[8])?;
        let mut subject = [0; 8];
        subject.copy_from_slice(&header[12..20]);
        Ok(Record {
            kind,
            event: header[9],
            parts: u16::from_le_bytes([header[10], header[11]]),
            subject: u64::from_le_bytes(subject),
            bytes: &bytes[..length],
        })
    }

    /// Each part with its bytes; `None` for a field that was unset.
    pub fn parts(&self) -> impl Iterator<Item = Result<(Parts, Option<&'a [u8]>), RecordError>> + use<'a> {
        let (bytes, parts) = (self.bytes, self.parts);
        let mut at = HEADER_BYTES;
        (0..PARTS).map(|bit| 1 << bit).filter(move |part| parts & part != 0).map(move |part| {
            let length = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or(RecordError::Short)?;
            at += 4;
            let length = u32::from_le_bytes(length);
            if length == UNSET {
                return Ok((part, None));
            }
            let part_bytes = bytes.get(at..at + length as usize).ok_or(RecordError::Short)?;
            at += length as usize;
            Ok((part, Some(part_bytes)))
        })
    }

    pub fn part(&self, wanted: Parts) -> Result<Option<&'a [u8]>, RecordError> {
        if self.parts & wanted == 0 {
            return Ok(None);
        }
        for part in self.parts() {
            let (part, bytes) = part?;
            if part == wanted {
                return Ok(bytes);
            }
        }
        Err(RecordError::Short)
    }

    /// A part that must be there.
    pub fn need(&self, part: Parts) -> Result<&'a [u8], RecordError> {
        self.part(part)?.ok_or(RecordError::Content)
    }
}

/// The head of an item; `id` is the one its submitter chose, if any.
pub fn decode_head(bytes: &[u8], sequence: u64, id: Option<ItemId>, salt: u64) -> Result<Head, RecordError> {
    let (stored, behind): (StoredHead<'static>, &[u8]) = take(bytes)?;
    let mut extras = stored.extras.map(|extras| Box::new(extras.into_owned()));
    let (mut group, mut fairness_key) = (None, KeyTag::NONE);
    if !behind.is_empty() {
        let (tally_tags, mut behind): (Vec<(String, String)>, &[u8]) = take(behind)?;
        let mut after: Option<Box<Dependency>> = None;
        if !behind.is_empty() {
            ((group, after), behind) = take(behind)?;
        }
        if !behind.is_empty() {
            fairness_key = decode_static(behind)?;
        }
        if let Some(extras) = &mut extras {
            (extras.tally_tags, extras.after) = (tally_tags, after);
        }
    }
    Ok(Head {
        id: id.unwrap_or_else(|| ItemId::derive(salt, stored.created_at, sequence)),
        queue: stored.queue,
        state: stored.state.into_owned(),
        priority: stored.priority,
        created_at: stored.created_at,
        ready_at: Timestamp(stored.created_at.0.saturating_add(stored.ready_after)),
        retries: stored.retries,
        deliveries: stored.deliveries,
        revision: stored.revision,
        transitions: stored.transitions,
        expires_at: stored.expires_at,
        last_settle: stored.last_settle,
        group,
        fairness_key,
        extras,
    })
}

/// A value, and what lies behind it.
fn take<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<(T, &[u8]), RecordError> {
    postcard::take_from_bytes(bytes).map_err(|_| RecordError::Content)
}

fn decode_static<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, RecordError> {
    postcard::from_bytes(bytes).map_err(|_| RecordError::Content)
}

pub fn decode_indexed(bytes: &[u8]) -> Result<Indexed, RecordError> {
    decode_static(bytes)
}

pub fn decode_body(bytes: &[u8]) -> Result<Body, RecordError> {
    let (mut body, mut behind): (Body, &[u8]) = take(bytes)?;
    // What is claimed by no idempotency key is by a replace key.
    if body.claim.is_some() && body.idempotency_key.is_none() {
        let (key, rest) = take(behind)?;
        (body.replace_key, behind) = (Some(key), rest);
    }
    if !behind.is_empty() {
        body.trace = Some(decode_static(behind)?);
    }
    Ok(body)
}

pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, RecordError> {
    decode_static(bytes)
}

/// An error and its ordinal: the item's revision when it happened. Errors are put in order by it, wherever they lie.
pub fn decode_error(bytes: &[u8]) -> Result<(u32, AttemptError), RecordError> {
    decode_static(bytes)
}

pub fn decode_named(bytes: &[u8]) -> Result<ItemId, RecordError> {
    decode_static(bytes)
}

/// The queue and the id of an item that was removed, and the group that it left unfinished.
pub fn decode_removed(
    bytes: &[u8],
    sequence: u64,
    salt: u64,
) -> Result<(QueueId, ItemId, Option<GroupTag>), RecordError> {
    let (Removed { queue, made_at, chosen }, behind) = take(bytes)?;
    let group = if behind.is_empty() { None } else { Some(decode_static(behind)?) };
    Ok((queue, chosen.unwrap_or_else(|| ItemId::derive(salt, Timestamp(made_at), sequence)), group))
}

pub fn decode_queue_name(bytes: &[u8]) -> Result<QueueName, RecordError> {
    decode_static(bytes)
}

pub fn decode_kv(bytes: &[u8]) -> Result<(String, KvRecord), RecordError> {
    decode_static(bytes)
}

pub fn decode_kv_key(bytes: &[u8]) -> Result<String, RecordError> {
    decode_static(bytes)
}

pub fn decode_queue(bytes: &[u8]) -> Result<Queue, RecordError> {
    let (mut queue, mut behind): (Queue, &[u8]) = take(bytes)?;
    if !behind.is_empty() {
        (queue.policy.tally_tags, behind) = take(behind)?;
    }
    if !behind.is_empty() {
        let flow = &mut queue.policy.flow;
        ((flow.concurrency, flow.rate), behind) = take(behind)?;
    }
    if !behind.is_empty() {
        (queue.policy.flow.fairness, behind) = take(behind)?;
    }
    if !behind.is_empty() {
        queue.policy.flow.concurrency_per_key = decode_static(behind)?;
    }
    Ok(queue)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use towline_domain::{Fairness, Policy, QueueState, Schema};

    fn stored(policy: Policy) -> (Queue, usize) {
        let (id, name, created_at) = (QueueId(7), "jobs".parse().unwrap(), Timestamp(5));
        let (schema, state) = (Schema::default(), QueueState::Open);
        let queue = Queue { id, name, schema, policy, state, paused: false, created_at, revision: 1 };
        let mut buffer = Vec::new();
        let length = encode_queue(&mut buffer, &queue, None, 1) as usize;
        let record = Record::read(&buffer, 1).unwrap();
        assert_eq!(decode_queue(record.need(HEAD).unwrap()).unwrap(), queue);
        (queue, length)
    }

    #[test]
    fn a_trace_lies_behind_its_body() {
        let mut body = Body { source: Some("elsewhere".to_owned()), ..Body::default() };
        let before = postcard::to_allocvec(&body).unwrap();
        assert_eq!(decode_body(&before).unwrap(), body);
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap();
        for state in [None, Some("congo=t61".parse().unwrap())] {
            body.trace = Some(Box::new(towline_domain::Trace { parent, state }));
            assert_eq!(postcard::to_allocvec(&body).unwrap(), before, "who knows no traces reads the same");
            let with = postcard::to_allocvec(&(&body, &body.trace.as_ref().unwrap())).unwrap();
            assert_eq!(decode_body(&with).unwrap(), body);
            assert!(decode_body(&with[..with.len() - 1]).is_err(), "half a trace is damage");
        }
    }

    #[test]
    fn what_came_later_takes_no_room_until_it_is_used() {
        let (queue, plain) = stored(Policy::default());
        // As it was written before there was anything behind it.
        assert_eq!(plain, HEADER_BYTES + 4 + postcard::to_allocvec(&queue).unwrap().len());
        let tally_tags = || ["team".to_owned()].into();
        let flow = || Flow { concurrency: Some(3), rate: "10/s".parse().ok(), ..Flow::default() };
        let (_, tagged) = stored(Policy { tally_tags: tally_tags(), ..Policy::default() });
        let (_, limited) = stored(Policy { flow: flow(), ..Policy::default() });
        let (_, both) = stored(Policy { tally_tags: tally_tags(), flow: flow(), ..Policy::default() });
        let fairness = Some(Fairness { weights: [("gold".to_owned(), 3)].into() });
        let (_, fair) =
            stored(Policy { flow: Flow { fairness: fairness.clone(), ..flow() }, ..Policy::default() });
        let by_key = |fairness| Flow { fairness, concurrency_per_key: Some(2), ..flow() };
        let (_, limited_by_key) = stored(Policy { flow: by_key(None), ..Policy::default() });
        let (_, all) = stored(Policy { flow: by_key(fairness), ..Policy::default() });
        assert!(plain < tagged && plain < limited && limited.max(tagged) < both && limited < fair);
        assert!(limited < limited_by_key && limited_by_key.max(fair) < all);
    }
}
