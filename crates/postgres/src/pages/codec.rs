//! The packed heads of a page, as they are stored: each after the one before it, and as a difference to it.
//!
//! Items that were submitted, received or settled together differ in little but their tokens, so that one takes a few
//! bytes and, while it is leased or finished, the sixteen of its token. What few items have is JSON: self-describing, so
//! that a later version can add to it. The first byte is the version of all this.
//!
//! **Invariant:** what cannot have been written here is told as damage, never taken for something else.

use crate::encoding::code;
use crate::encoding::varint::{Source, put_signed, put_unsigned};
use crate::pages::extras::{self, Stored};
use crate::pages::snapshot::{Image, Kept, Location, PARTS};
use towline_domain::item::Settle;
use towline_domain::{CountKind, Head, ItemId, Lease, LeaseToken, Millis, QueueId, State, Timestamp};
use uuid::Uuid;

const VERSION: u8 = 1;

// The first byte of an item: its state in the lower three bits.
const SCHEDULED: u8 = 1 << 3;
const CHOSEN_ID: u8 = 1 << 4;
const EXTRAS: u8 = 1 << 5;
const SETTLED: u8 = 1 << 6;
const EXPIRES: u8 = 1 << 7;
// The second: what it has, and in what it is like the one before it.
const SIDE: u8 = 1;
const EDITED: u8 = 1 << 1;
const SAME_BIRTH: u8 = 1 << 2;
const SAME_COUNTS: u8 = 1 << 3;
const SAME_STATE: u8 = 1 << 4;
const SAME_SETTLE: u8 = 1 << 5;
const FOLLOWS: u8 = 1 << 6;
const SAME_LENGTHS: u8 = 1 << 7;
// Of a lease.
const UNACKNOWLEDGED: u8 = 1;
const BUFFERS: u8 = 1 << 1;

/// An item about to be packed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed<'a> {
    pub(crate) seq: u64,
    pub(crate) head: &'a Head,
    pub(crate) counted: CountKind,
    pub(crate) kept: Kept,
}

/// Packs a page.
#[derive(Debug)]
pub(crate) struct Packer<'a> {
    salt: u64,
    bytes: Vec<u8>,
    next: u64,
    before: Option<Packed<'a>>,
}

impl<'a> Packer<'a> {
    pub(crate) fn new(salt: u64, first_seq: u64) -> Packer<'a> {
        Packer { salt, bytes: vec![VERSION], next: first_seq, before: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn push(&mut self, item: Packed<'a>) {
        let Packed { seq, head, counted, kept } = item;
        let before = self.before.as_ref();
        let made = ItemId::derive(self.salt, head.created_at, seq);
        let mut first = state_code(&head.state);
        let mut second = 0;
        let set = |flags: &mut u8, flag: u8, on: bool| {
            if on {
                *flags |= flag;
            }
            on
        };
        set(&mut first, SCHEDULED, counted == CountKind::Scheduled);
        let chosen = set(&mut first, CHOSEN_ID, made != head.id);
        set(&mut first, EXTRAS, extras::are_any(head));
        set(&mut first, SETTLED, head.last_settle.is_some());
        set(&mut first, EXPIRES, head.expires_at.is_some());
        set(&mut second, SIDE, kept.side);
        set(&mut second, EDITED, kept.edited.is_some());
        let same_birth = set(&mut second, SAME_BIRTH, before.is_some_and(|b| birth(b.head) == birth(head)));
        let same_counts =
            set(&mut second, SAME_COUNTS, before.is_some_and(|b| counts(b.head) == counts(head)));
        let same_state =
            set(&mut second, SAME_STATE, before.is_some_and(|b| same_state(&b.head.state, &head.state)));
        let settle = head.last_settle.as_ref();
        let before_settle = before.and_then(|b| b.head.last_settle.as_ref());
        let same_settle = set(
            &mut second,
            SAME_SETTLE,
            settle.zip(before_settle).is_some_and(|(a, b)| settled(a) == settled(b)),
        );
        let at = kept.at;
        let follows = set(&mut second, FOLLOWS, before.is_some_and(|b| b.kept.at.is_followed_by(&at)));
        let same_lengths = set(
            &mut second,
            SAME_LENGTHS,
            before.is_some_and(|b| (b.kept.at.has, b.kept.at.lengths) == (at.has, at.lengths)),
        );

        let out = &mut self.bytes;
        put_unsigned(out, seq - self.next);
        out.extend([first, second]);
        let created = head.created_at.0.cast_signed();
        let since = |time: Timestamp| time.0.cast_signed() - created;
        if chosen {
            out.extend(head.id.0.as_bytes());
        }
        if !same_birth {
            put_unsigned(out, head.created_at.0);
            put_signed(out, since(head.ready_at));
            put_signed(out, head.priority.into());
        }
        if !same_counts {
            counts(head).into_iter().for_each(|count| put_unsigned(out, count.into()));
        }
        if let Some(at) = head.expires_at {
            put_signed(out, since(at));
        }
        put_state(out, &head.state, same_state, &since);
        if let Some(settle) = settle {
            out.extend(settle.token.0.as_bytes());
            if !same_settle {
                out.push(code::of_verb(settle.verb));
                out.push(code::of_settled(settle.left));
                out.extend(settle.digest.to_le_bytes());
            }
        }
        if let Some(text) = extras::to_json(head) {
            put_text(out, &text);
        }
        if !follows {
            put_unsigned(out, at.slot.into());
            put_unsigned(out, at.chunk);
            put_unsigned(out, at.offset.into());
        }
        if !same_lengths {
            out.push(at.has);
            at.parts().for_each(|(_, length)| put_unsigned(out, length.into()));
        }
        if let Some(bytes) = kept.edited {
            put_unsigned(out, bytes);
        }
        self.next = seq + 1;
        self.before = Some(item);
    }
}

fn birth(head: &Head) -> (Timestamp, Timestamp, i16) {
    (head.created_at, head.ready_at, head.priority)
}

fn counts(head: &Head) -> [u32; 4] {
    [head.retries, head.deliveries, head.revision, head.transitions]
}

fn settled(settle: &Settle) -> (i16, i16, u64) {
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

/// All but the token.
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

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_unsigned(out, text.len() as u64);
    out.extend(text.as_bytes());
}

fn put_state(out: &mut Vec<u8>, state: &State, same: bool, since: &impl Fn(Timestamp) -> i64) {
    let mut finished = |at: Timestamp, remove_at: Option<Timestamp>| {
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
        State::Completed { at, remove_at } if !same => finished(*at, *remove_at),
        State::Failed { at, remove_at, kind } if !same => {
            finished(*at, *remove_at);
            out.push(code::of_failure(*kind));
        }
        _ => {}
    }
}

/// Unpacks a page; tells what is wrong with it, if something is.
pub(crate) fn unpack(
    bytes: &[u8],
    first_seq: u64,
    last_seq: u64,
    queue: QueueId,
    salt: u64,
) -> Result<Vec<Image>, &'static str> {
    let mut source = Source::new(bytes);
    if source.byte()? != VERSION {
        return Err("heads of an unknown version");
    }
    let mut items: Vec<Image> =
        Vec::with_capacity(usize::try_from(last_seq - first_seq + 1).unwrap_or(0).min(4096));
    let mut next = first_seq;
    while !source.is_empty() {
        let seq = next.checked_add(source.unsigned()?).ok_or("a number out of range")?;
        let image = one(&mut source, seq, queue, salt, items.last())?;
        items.push(image);
        next = seq + 1;
    }
    match items.last() {
        Some(last) if last.seq == last_seq => Ok(items),
        _ => Err("it ends elsewhere"),
    }
}

fn one(
    source: &mut Source<'_>,
    seq: u64,
    queue: QueueId,
    salt: u64,
    before: Option<&Image>,
) -> Result<Image, &'static str> {
    const LIKE: &str = "like the one before it, and there is none";
    let (first, second) = (source.byte()?, source.byte()?);
    let chosen = if first & CHOSEN_ID != 0 { Some(source.uuid()?) } else { None };
    let (created_at, ready_at, priority) = if second & SAME_BIRTH != 0 {
        birth(&before.ok_or(LIKE)?.head)
    } else {
        let created_at = Timestamp(source.unsigned()?);
        let ready_at = source.time_since(created_at)?;
        (created_at, ready_at, i16::try_from(source.signed()?).map_err(|_| "a priority out of range")?)
    };
    let [retries, deliveries, revision, transitions] = if second & SAME_COUNTS != 0 {
        counts(&before.ok_or(LIKE)?.head)
    } else {
        [source.number()?, source.number()?, source.number()?, source.number()?]
    };
    let expires_at = if first & EXPIRES != 0 { Some(source.time_since(created_at)?) } else { None };
    let like = if second & SAME_STATE != 0 { Some(&before.ok_or(LIKE)?.head.state) } else { None };
    let state = state(source, first & 0b111, created_at, like)?;
    let last_settle = if first & SETTLED == 0 {
        None
    } else {
        let token = LeaseToken(source.uuid()?);
        Some(if second & SAME_SETTLE != 0 {
            Settle { token, ..before.and_then(|before| before.head.last_settle).ok_or(LIKE)? }
        } else {
            let verb = code::verb(source.byte()?).ok_or("an unknown settle")?;
            let left = code::settled(source.byte()?).ok_or("an unknown settle")?;
            Settle { token, verb, left, digest: source.digest()? }
        })
    };
    let (extras, group, fairness_key) =
        if first & EXTRAS != 0 { json::<Stored>(source)?.open() } else { Default::default() };
    let mut at = match before {
        Some(before) if second & FOLLOWS != 0 => before.kept.at.after(),
        _ if second & FOLLOWS != 0 => return Err(LIKE),
        _ => Location {
            slot: u8::try_from(source.unsigned()?).map_err(|_| "a slot out of range")?,
            chunk: source.unsigned()?,
            offset: source.number()?,
            ..Location::default()
        },
    };
    if second & SAME_LENGTHS != 0 {
        let like = before.ok_or(LIKE)?.kept.at;
        (at.has, at.lengths) = (like.has, like.lengths);
    } else {
        at.has = source.byte()?;
        for part in (0..PARTS).filter(|part| at.has & 1 << part != 0) {
            at.lengths[part] = source.number()?;
        }
    }
    let edited = if second & EDITED != 0 { Some(source.unsigned()?) } else { None };
    let counted = match &state {
        State::Pending if first & SCHEDULED != 0 => CountKind::Scheduled,
        State::Pending => CountKind::Pending,
        State::Processing(_) => CountKind::Processing,
        State::Paused => CountKind::Paused,
        State::Completed { .. } => CountKind::Completed,
        State::Failed { .. } => CountKind::Failed,
    };
    let head = Head {
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
        group,
        fairness_key,
        extras,
    };
    Ok(Image { seq, head, counted, kept: Kept { at, edited, side: second & SIDE != 0 } })
}

fn state(
    source: &mut Source<'_>,
    code: u8,
    created_at: Timestamp,
    like: Option<&State>,
) -> Result<State, &'static str> {
    if code == code::PROCESSING {
        let token = LeaseToken(source.uuid()?);
        return Ok(State::Processing(match like {
            Some(State::Processing(lease)) => Lease { token, ..lease.clone() },
            Some(_) => return Err("a lease like something else"),
            None => {
                let deadline = source.time_since(created_at)?;
                let (visibility, renewals) = (Millis(source.unsigned()?), source.number()?);
                let flags = source.byte()?;
                let buffers = if flags & BUFFERS != 0 { Some(json(source)?) } else { None };
                let unacknowledged = flags & UNACKNOWLEDGED != 0;
                Lease { token, deadline, visibility, unacknowledged, renewals, buffers }
            }
        }));
    }
    if let Some(like) = like {
        return if state_code(like) == code { Ok(like.clone()) } else { Err("a state like another") };
    }
    let mut finished = || -> Result<(Timestamp, Option<Timestamp>), &'static str> {
        let at = source.time_since(created_at)?;
        Ok((at, source.unsigned()?.checked_sub(1).map(Timestamp)))
    };
    match code {
        code::PENDING => Ok(State::Pending),
        code::PAUSED => Ok(State::Paused),
        code::COMPLETED => {
            let (at, remove_at) = finished()?;
            Ok(State::Completed { at, remove_at })
        }
        code::FAILED => {
            let (at, remove_at) = finished()?;
            let kind = code::failure(source.byte()?).ok_or("an unknown kind of failure")?;
            Ok(State::Failed { at, remove_at, kind })
        }
        _ => Err("an unknown state"),
    }
}

fn json<T: serde::de::DeserializeOwned>(source: &mut Source<'_>) -> Result<T, &'static str> {
    let length = usize::try_from(source.unsigned()?).map_err(|_| "a length out of range")?;
    let text = std::str::from_utf8(source.take(length)?).map_err(|_| "not text")?;
    code::from_json(text).map_err(|_| "not what it should be")
}

/// The token of a uuid, as it is stored.
impl Source<'_> {
    fn uuid(&mut self) -> Result<Uuid, &'static str> {
        Uuid::from_slice(self.take(16)?).map_err(|_| "not an id")
    }

    fn digest(&mut self) -> Result<u64, &'static str> {
        self.take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| "not a digest")
    }

    fn number(&mut self) -> Result<u32, &'static str> {
        u32::try_from(self.unsigned()?).map_err(|_| "a number out of range")
    }

    fn time_since(&mut self, since: Timestamp) -> Result<Timestamp, &'static str> {
        since.0.checked_add_signed(self.signed()?).map(Timestamp).ok_or("a time out of range")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests;
