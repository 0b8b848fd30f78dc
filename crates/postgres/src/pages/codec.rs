//! The page codec: the items of a page as bytes, each encoded as a difference to the item before it.
//!
//! Items that were submitted, received or settled together differ in little but their lease tokens. Such an item takes a
//! few bytes, and 16 more for its token if it was received. Values that few items have are JSON, so that a later version can
//! add to them. The first byte is the version of the format.
//!
//! **Invariant:** bytes that the encoder cannot have written are reported as damage, never decoded as something else.

use crate::encoding::bytes::{ByteReader, put_signed, put_text, put_unsigned};
use crate::encoding::code;
use crate::pages::extras::{self, StoredExtras};
use crate::pages::snapshot::{ItemSnapshot, PARTS, PayloadLocation, PayloadRef};
use towline_domain::item::Settle;
use towline_domain::{CountKind, Head, ItemId, KeyTag, Lease, LeaseToken, Millis, QueueId, State, Timestamp};

const VERSION: u8 = 1;

// The first byte of an item: its state in the lower three bits, then these flags.
const SCHEDULED: u8 = 1 << 3;
const CHOSEN_ID: u8 = 1 << 4;
const EXTRAS: u8 = 1 << 5;
const SETTLED: u8 = 1 << 6;
const EXPIRES: u8 = 1 << 7;
// The second byte: what the item has, and in what it equals the item before it.
const SIDE: u8 = 1;
const EDITED: u8 = 1 << 1;
const SAME_CREATION: u8 = 1 << 2;
const SAME_COUNTS: u8 = 1 << 3;
const SAME_STATE: u8 = 1 << 4;
const SAME_SETTLE: u8 = 1 << 5;
const FOLLOWS: u8 = 1 << 6;
const SAME_LENGTHS: u8 = 1 << 7;
// Flags of a lease.
const UNACKNOWLEDGED: u8 = 1;
const BUFFERS: u8 = 1 << 1;

/// An item to encode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ItemSnapshotRef<'a> {
    pub(crate) seq: u64,
    pub(crate) head: &'a Head,
    pub(crate) counted: CountKind,
    pub(crate) kept: PayloadRef,
}

/// Encodes the items of one page.
#[derive(Debug)]
pub(crate) struct PageEncoder<'a> {
    salt: u64,
    bytes: Vec<u8>,
    next: u64,
    previous: Option<ItemSnapshotRef<'a>>,
}

impl<'a> PageEncoder<'a> {
    pub(crate) fn new(salt: u64, first_seq: u64) -> PageEncoder<'a> {
        PageEncoder { salt, bytes: vec![VERSION], next: first_seq, previous: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn push(&mut self, item: ItemSnapshotRef<'a>) {
        let ItemSnapshotRef { seq, head, kept, .. } = item;
        let [first, second] = self.flags(&item);
        let out = &mut self.bytes;
        put_unsigned(out, seq - self.next);
        out.extend([first, second]);
        let created = head.created_at.0.cast_signed();
        let since_creation = |time: Timestamp| time.0.cast_signed() - created;
        if first & CHOSEN_ID != 0 {
            out.extend(head.id.0.as_bytes());
        }
        if second & SAME_CREATION == 0 {
            put_unsigned(out, head.created_at.0);
            put_signed(out, since_creation(head.ready_at));
            put_signed(out, head.priority.into());
        }
        if second & SAME_COUNTS == 0 {
            counts(head).into_iter().for_each(|count| put_unsigned(out, count.into()));
        }
        if let Some(at) = head.expires_at {
            put_signed(out, since_creation(at));
        }
        put_state(out, &head.state, second & SAME_STATE != 0, &since_creation);
        if let Some(settle) = &head.last_settle {
            out.extend(settle.token.0.as_bytes());
            if second & SAME_SETTLE == 0 {
                out.push(code::of_verb(settle.verb));
                out.push(code::of_settled(settle.left));
                out.extend(settle.digest.to_le_bytes());
            }
        }
        if let Some(text) = extras::to_json(head) {
            put_text(out, &text);
        }
        let at = kept.at;
        if second & FOLLOWS == 0 {
            put_unsigned(out, at.partition.into());
            put_unsigned(out, at.chunk);
            put_unsigned(out, at.offset.into());
        }
        if second & SAME_LENGTHS == 0 {
            out.push(at.has);
            at.parts().for_each(|(_, length)| put_unsigned(out, length.into()));
        }
        if let Some(bytes) = kept.edited {
            put_unsigned(out, bytes);
        }
        self.next = seq + 1;
        self.previous = Some(item);
    }

    /// The first two bytes of an item.
    fn flags(&self, item: &ItemSnapshotRef<'_>) -> [u8; 2] {
        let ItemSnapshotRef { seq, head, counted, kept } = item;
        let flag = |flag: u8, on: bool| if on { flag } else { 0 };
        let first = state_code(&head.state)
            | flag(SCHEDULED, *counted == CountKind::Scheduled)
            | flag(CHOSEN_ID, ItemId::derive(self.salt, head.created_at, *seq) != head.id)
            | flag(EXTRAS, extras::has_any(head))
            | flag(SETTLED, head.last_settle.is_some())
            | flag(EXPIRES, head.expires_at.is_some());
        let second = flag(SIDE, kept.side) | flag(EDITED, kept.edited.is_some());
        let Some(previous) = &self.previous else { return [first, second] };
        let settles = head.last_settle.as_ref().zip(previous.head.last_settle.as_ref());
        let (at, previous_at) = (&kept.at, &previous.kept.at);
        let same = flag(SAME_CREATION, creation(previous.head) == creation(head))
            | flag(SAME_COUNTS, counts(previous.head) == counts(head))
            | flag(SAME_STATE, same_state(&previous.head.state, &head.state))
            | flag(SAME_SETTLE, settles.is_some_and(|(one, other)| settle_terms(one) == settle_terms(other)))
            | flag(FOLLOWS, previous_at.is_followed_by(at))
            | flag(SAME_LENGTHS, (previous_at.has, previous_at.lengths) == (at.has, at.lengths));
        [first, second | same]
    }
}

fn creation(head: &Head) -> (Timestamp, Timestamp, i16) {
    (head.created_at, head.ready_at, head.priority)
}

fn counts(head: &Head) -> [u32; 4] {
    [head.retries, head.deliveries, head.revision, head.transitions]
}

fn settle_terms(settle: &Settle) -> (i16, i16, u64) {
    (code::of_verb(settle.verb).into(), code::of_settled(settle.left).into(), settle.digest)
}

fn state_code(state: &State) -> u8 {
    match state {
        State::Pending => code::PENDING,
        State::Processing(_) => code::PROCESSING,
        State::Paused => code::PAUSED,
        State::Completed { .. } => code::COMPLETED,
        State::Failed { .. } => code::FAILED,
    }
}

/// Whether two states are equal but for their lease tokens.
fn same_state(one: &State, other: &State) -> bool {
    match (one, other) {
        (State::Processing(one), State::Processing(other)) => {
            let terms =
                |lease: &Lease| (lease.deadline, lease.visibility, lease.unacknowledged, lease.renewals);
            terms(one) == terms(other) && one.buffers.is_none() && other.buffers.is_none()
        }
        (State::Processing(_), _) | (_, State::Processing(_)) => false,
        _ => one == other,
    }
}

fn put_state(out: &mut Vec<u8>, state: &State, same: bool, since: &impl Fn(Timestamp) -> i64) {
    let mut terminal = |at: Timestamp, remove_at: Option<Timestamp>| {
        put_signed(out, since(at));
        put_unsigned(out, remove_at.map_or(0, |at| at.0 + 1));
    };
    match state {
        State::Processing(lease) => {
            out.extend(lease.token.0.as_bytes());
            if same {
                return;
            }
            put_signed(out, since(lease.deadline));
            put_unsigned(out, lease.visibility.0);
            put_unsigned(out, lease.renewals.into());
            let buffers = lease.buffers.as_ref();
            let unacknowledged = if lease.unacknowledged { UNACKNOWLEDGED } else { 0 };
            out.push(unacknowledged | if buffers.is_some() { BUFFERS } else { 0 });
            if let Some(buffers) = buffers {
                put_text(out, &code::to_json(buffers));
            }
        }
        State::Completed { at, remove_at } if !same => terminal(*at, *remove_at),
        State::Failed { at, remove_at, kind } if !same => {
            terminal(*at, *remove_at);
            out.push(code::of_failure(*kind));
        }
        _ => {}
    }
}

/// Decodes a page, or says what is wrong with it.
pub(crate) fn decode(
    bytes: &[u8],
    first_seq: u64,
    last_seq: u64,
    queue: QueueId,
    salt: u64,
) -> Result<Vec<ItemSnapshot>, &'static str> {
    let mut reader = ByteReader::new(bytes);
    if reader.byte()? != VERSION {
        return Err("a page in an unknown format version");
    }
    let mut items: Vec<ItemSnapshot> =
        Vec::with_capacity(usize::try_from(last_seq - first_seq + 1).unwrap_or(0).min(4096));
    let mut next = first_seq;
    while !reader.is_empty() {
        let seq = next.checked_add(reader.unsigned()?).ok_or("a sequence number out of range")?;
        let item = decode_item(&mut reader, seq, queue, salt, items.last())?;
        items.push(item);
        next = seq + 1;
    }
    match items.last() {
        Some(last) if last.seq == last_seq => Ok(items),
        _ => Err("the last item is not last_seq"),
    }
}

const NO_PREVIOUS: &str = "refers to the item before it, but is the first";

fn decode_item(
    reader: &mut ByteReader<'_>,
    seq: u64,
    queue: QueueId,
    salt: u64,
    previous: Option<&ItemSnapshot>,
) -> Result<ItemSnapshot, &'static str> {
    let (first, second) = (reader.byte()?, reader.byte()?);
    let chosen = if first & CHOSEN_ID != 0 { Some(reader.uuid()?) } else { None };
    let (created_at, ready_at, priority) = if second & SAME_CREATION != 0 {
        creation(&previous.ok_or(NO_PREVIOUS)?.head)
    } else {
        let created_at = Timestamp(reader.unsigned()?);
        let ready_at = reader.time_since(created_at)?;
        (created_at, ready_at, i16::try_from(reader.signed()?).map_err(|_| "a priority out of range")?)
    };
    let [retries, deliveries, revision, transitions] = if second & SAME_COUNTS != 0 {
        counts(&previous.ok_or(NO_PREVIOUS)?.head)
    } else {
        [reader.number()?, reader.number()?, reader.number()?, reader.number()?]
    };
    let expires_at = if first & EXPIRES != 0 { Some(reader.time_since(created_at)?) } else { None };
    let same_as =
        if second & SAME_STATE != 0 { Some(&previous.ok_or(NO_PREVIOUS)?.head.state) } else { None };
    let state = decode_state(reader, first & 0b111, created_at, same_as)?;
    let last_settle =
        if first & SETTLED != 0 { Some(decode_settle(reader, second, previous)?) } else { None };
    let stored_extras = if first & EXTRAS != 0 { Some(json::<StoredExtras>(reader)?) } else { None };
    let at = decode_location(reader, second, previous)?;
    let edited = if second & EDITED != 0 { Some(reader.unsigned()?) } else { None };
    let counted = match &state {
        State::Pending if first & SCHEDULED != 0 => CountKind::Scheduled,
        State::Pending => CountKind::Pending,
        State::Processing(_) => CountKind::Processing,
        State::Paused => CountKind::Paused,
        State::Completed { .. } => CountKind::Completed,
        State::Failed { .. } => CountKind::Failed,
    };
    let mut head = Head {
        id: chosen.map_or_else(|| ItemId::derive(salt, created_at, seq), ItemId),
        queue,
        state,
        priority,
        created_at,
        ready_at,
        retries,
        deliveries,
        revision,
        transitions,
        expires_at,
        last_settle,
        group: None,
        fairness_key: KeyTag::NONE,
        changed_at: None,
        heartbeat_at: None,
        extras: None,
    };
    if let Some(stored) = stored_extras {
        stored.apply(&mut head);
    }
    Ok(ItemSnapshot { seq, head, counted, kept: PayloadRef { at, edited, side: second & SIDE != 0 } })
}

fn decode_settle(
    reader: &mut ByteReader<'_>,
    second: u8,
    previous: Option<&ItemSnapshot>,
) -> Result<Settle, &'static str> {
    let token = LeaseToken(reader.uuid()?);
    if second & SAME_SETTLE != 0 {
        let same = previous.and_then(|previous| previous.head.last_settle).ok_or(NO_PREVIOUS)?;
        return Ok(Settle { token, ..same });
    }
    let verb = code::verb(reader.byte()?).ok_or("an unknown settle code")?;
    let left = code::settled(reader.byte()?).ok_or("an unknown settle code")?;
    Ok(Settle { token, verb, left, digest: reader.digest()? })
}

fn decode_location(
    reader: &mut ByteReader<'_>,
    second: u8,
    previous: Option<&ItemSnapshot>,
) -> Result<PayloadLocation, &'static str> {
    let mut at = if second & FOLLOWS != 0 {
        previous.ok_or(NO_PREVIOUS)?.kept.at.after()
    } else {
        PayloadLocation {
            partition: u8::try_from(reader.unsigned()?).map_err(|_| "a partition out of range")?,
            chunk: reader.unsigned()?,
            offset: reader.number()?,
            ..PayloadLocation::default()
        }
    };
    if second & SAME_LENGTHS != 0 {
        let same = previous.ok_or(NO_PREVIOUS)?.kept.at;
        (at.has, at.lengths) = (same.has, same.lengths);
    } else {
        at.has = reader.byte()?;
        for part in (0..PARTS).filter(|part| at.has & 1 << part != 0) {
            at.lengths[part] = reader.number()?;
        }
    }
    Ok(at)
}

fn decode_state(
    reader: &mut ByteReader<'_>,
    code: u8,
    created_at: Timestamp,
    same_as: Option<&State>,
) -> Result<State, &'static str> {
    if code == code::PROCESSING {
        let token = LeaseToken(reader.uuid()?);
        return Ok(State::Processing(match same_as {
            Some(State::Processing(lease)) => Lease { token, ..lease.clone() },
            Some(_) => return Err("a lease that equals the state of an item without one"),
            None => {
                let deadline = reader.time_since(created_at)?;
                let (visibility, renewals) = (Millis(reader.unsigned()?), reader.number()?);
                let flags = reader.byte()?;
                let buffers = if flags & BUFFERS != 0 { Some(json(reader)?) } else { None };
                let unacknowledged = flags & UNACKNOWLEDGED != 0;
                Lease { token, deadline, visibility, unacknowledged, renewals, buffers }
            }
        }));
    }
    if let Some(previous) = same_as {
        return if state_code(previous) == code {
            Ok(previous.clone())
        } else {
            Err("a state that equals another one")
        };
    }
    let mut terminal = || -> Result<(Timestamp, Option<Timestamp>), &'static str> {
        let at = reader.time_since(created_at)?;
        Ok((at, reader.unsigned()?.checked_sub(1).map(Timestamp)))
    };
    match code {
        code::PENDING => Ok(State::Pending),
        code::PAUSED => Ok(State::Paused),
        code::COMPLETED => {
            let (at, remove_at) = terminal()?;
            Ok(State::Completed { at, remove_at })
        }
        code::FAILED => {
            let (at, remove_at) = terminal()?;
            let kind = code::failure(reader.byte()?).ok_or("an unknown failure kind")?;
            Ok(State::Failed { at, remove_at, kind })
        }
        _ => Err("an unknown state"),
    }
}

fn json<T: serde::de::DeserializeOwned>(reader: &mut ByteReader<'_>) -> Result<T, &'static str> {
    code::from_json(reader.text()?).map_err(|_| "JSON of the wrong form")
}

impl ByteReader<'_> {
    fn digest(&mut self) -> Result<u64, &'static str> {
        self.take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| "a cut digest")
    }

    fn time_since(&mut self, since: Timestamp) -> Result<Timestamp, &'static str> {
        since.0.checked_add_signed(self.signed()?).map(Timestamp).ok_or("a time out of range")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
