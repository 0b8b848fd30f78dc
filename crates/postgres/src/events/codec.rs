//! The event codec: the events of a batch, encoded into one or a few rows of `events`.
//!
//! Items that one batch changed differ in little. Each event is encoded as a difference to the one before it. A run of
//! events that differ only in consecutive item numbers is stored as one event and a count.

use crate::encoding::bytes::{ByteReader, put_signed, put_text, put_unsigned};
use crate::encoding::code;
use std::num::NonZeroU64;
use towline_domain::{
    EventKind, EventPayload, GroupTag, ItemEvent, ItemEventState, ItemId, QueueId, QueueName, StateKind,
    Timestamp,
};

const VERSION: u8 = 1;
/// In place of an event kind: the event before repeats this many times, each time with the next item number.
const REPEAT: u8 = 0;
/// A row is closed at this many bytes. PostgreSQL stores a larger row outside the table, which costs more.
const ROW_BYTES: usize = 6 << 10;
/// More than any batch can have.
const REPEAT_MAX: u64 = 1 << 20;

// Flags: what follows for the item of an event.
const ITEM: u8 = 1;
const CHOSEN_ID: u8 = 1 << 1;
const STATE: u8 = 1 << 2;
const DEADLINE: u8 = 1 << 3;
const FAILURE: u8 = 1 << 4;
const REASON: u8 = 1 << 5;
const ORIGIN: u8 = 1 << 6;
const GROUP: u8 = 1 << 7;

/// An event without its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecodedEvent {
    pub(crate) kind: EventKind,
    pub(crate) queue: Option<QueueName>,
    pub(crate) item: Option<ItemEvent>,
}

/// The numbers that the next item is encoded as a difference to.
#[derive(Default)]
struct PreviousItem {
    seq: i64,
    made_at: i64,
}

impl PreviousItem {
    fn id(&self, salt: u64) -> ItemId {
        ItemId::derive(salt, Timestamp(self.made_at.cast_unsigned()), self.seq.cast_unsigned())
    }
}

/// Encodes events into rows. `name` returns the present or last name of a queue.
pub(crate) fn encode<'a>(
    events: &[EventPayload],
    salt: u64,
    at: Timestamp,
    name: impl Fn(QueueId) -> Option<&'a QueueName>,
) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    let mut out = vec![VERSION];
    let mut previous = PreviousItem::default();
    let (mut last, mut repeats): (Option<&EventPayload>, u64) = (None, 0);
    for event in events {
        if last.is_some_and(|last| continues_run(last, event, &previous, salt)) {
            repeats += 1;
            previous.seq += 1;
            last = Some(event);
            continue;
        }
        end_run(&mut out, &mut repeats);
        if out.len() >= ROW_BYTES {
            rows.push(std::mem::replace(&mut out, vec![VERSION]));
            (previous, last) = (PreviousItem::default(), None);
        }
        out.push(event.kind as u8);
        // Most batches are about one queue, whose name is stored once.
        let same = last.is_some_and(|last| last.queue == event.queue);
        out.push(u8::from(!same));
        if !same {
            put_text(&mut out, name(event.queue).map_or("", QueueName::as_str));
        }
        encode_item(&mut out, event.item.as_ref(), salt, at, &mut previous);
        last = Some(event);
    }
    end_run(&mut out, &mut repeats);
    if out.len() > 1 {
        rows.push(out);
    }
    rows
}

fn end_run(out: &mut Vec<u8>, repeats: &mut u64) {
    if *repeats > 0 {
        out.push(REPEAT);
        put_unsigned(out, std::mem::take(repeats));
    }
}

/// Whether an event differs from the one before only in its item number, which is the next one.
fn continues_run(last: &EventPayload, event: &EventPayload, previous: &PreviousItem, salt: u64) -> bool {
    let (Some(one), Some(other)) = (&last.item, &event.item) else { return false };
    (last.kind, last.queue) == (event.kind, event.queue)
        && one.after == other.after
        && one.group == other.group
        && one.id.made_at() == other.id.made_at()
        && other.id.sequence(salt) == Some((previous.seq + 1).cast_unsigned())
        && one.id.sequence(salt).is_some()
}

fn encode_item(
    out: &mut Vec<u8>,
    item: Option<&ItemEvent>,
    salt: u64,
    at: Timestamp,
    previous: &mut PreviousItem,
) {
    let Some(ItemEvent { id, group, after }) = item else {
        out.push(0);
        return;
    };
    let seq = id.sequence(salt);
    let mut flags = ITEM;
    let mut set = |flag: u8, on: bool| flags |= if on { flag } else { 0 };
    set(CHOSEN_ID, seq.is_none());
    set(GROUP, group.is_some());
    set(STATE, after.is_some());
    if let Some(after) = after {
        set(DEADLINE, after.deadline.is_some());
        set(FAILURE, after.failure.is_some());
        set(REASON, after.reason.is_some());
        set(ORIGIN, after.origin.is_some());
    }
    out.push(flags);
    match seq {
        Some(seq) => {
            let (seq, made_at) = (seq.cast_signed(), id.made_at().0.cast_signed());
            put_signed(out, seq - previous.seq);
            put_signed(out, made_at - previous.made_at);
            *previous = PreviousItem { seq, made_at };
        }
        None => out.extend_from_slice(id.0.as_bytes()),
    }
    if let Some(group) = group {
        out.extend_from_slice(&group.0.get().to_le_bytes());
    }
    let Some(after) = after else { return };
    let state = StateKind::ALL.iter().position(|state| *state == after.state);
    out.push(state.and_then(|state| u8::try_from(state).ok()).unwrap_or(u8::MAX));
    put_unsigned(out, after.attempt.into());
    put_unsigned(out, after.deliveries.into());
    if let Some(deadline) = after.deadline {
        put_signed(out, deadline.0.cast_signed() - at.0.cast_signed());
    }
    if let Some(failure) = after.failure {
        out.push(code::of_failure(failure));
    }
    if let Some(reason) = &after.reason {
        put_text(out, reason);
    }
    if let Some(origin) = &after.origin {
        put_text(out, origin.as_str());
    }
}

/// Decodes a row. The index of an event is part of its id, so an event of an unknown kind, which a later version wrote, is
/// `None` and not left out.
pub(crate) fn decode(
    bytes: &[u8],
    salt: u64,
    at: Timestamp,
) -> Result<Vec<Option<DecodedEvent>>, &'static str> {
    let mut reader = ByteReader::new(bytes);
    if reader.byte()? != VERSION {
        return Err("events in an unknown format version");
    }
    let mut events: Vec<Option<DecodedEvent>> = Vec::new();
    let mut previous = PreviousItem::default();
    let mut queue = None;
    while !reader.is_empty() {
        let code = reader.byte()?;
        if code == REPEAT {
            let count = reader.unsigned()?;
            let last = events.last().cloned().ok_or("a repeat without an event before it")?;
            if count > REPEAT_MAX {
                return Err("more events than a batch can have");
            }
            for _ in 0..count {
                previous.seq = previous.seq.wrapping_add(1);
                let id = previous.id(salt);
                let with_id = |item: ItemEvent| ItemEvent { id, ..item };
                events
                    .push(last.clone().map(|event| DecodedEvent { item: event.item.map(with_id), ..event }));
            }
            continue;
        }
        if reader.byte()? == 1 {
            queue = queue_name(&mut reader)?;
        }
        let item = decode_item(&mut reader, salt, at, &mut previous)?;
        let kind = EventKind::from_code(code);
        events.push(kind.map(|kind| DecodedEvent { kind, queue: queue.clone(), item }));
    }
    Ok(events)
}

fn queue_name(reader: &mut ByteReader<'_>) -> Result<Option<QueueName>, &'static str> {
    match reader.text()? {
        "" => Ok(None),
        name => name.parse().map(Some).map_err(|_| "an invalid queue name"),
    }
}

fn group_tag(reader: &mut ByteReader<'_>) -> Result<GroupTag, &'static str> {
    let bytes = reader.take(8)?.try_into().map_err(|_| "a cut group")?;
    NonZeroU64::new(u64::from_le_bytes(bytes)).map(GroupTag).ok_or("an invalid group")
}

fn decode_item(
    reader: &mut ByteReader<'_>,
    salt: u64,
    at: Timestamp,
    previous: &mut PreviousItem,
) -> Result<Option<ItemEvent>, &'static str> {
    let flags = reader.byte()?;
    let has = |flag: u8| flags & flag != 0;
    if !has(ITEM) {
        return Ok(None);
    }
    let id = if has(CHOSEN_ID) {
        ItemId(reader.uuid()?)
    } else {
        previous.seq = previous.seq.wrapping_add(reader.signed()?);
        previous.made_at = previous.made_at.wrapping_add(reader.signed()?);
        previous.id(salt)
    };
    let group = if has(GROUP) { Some(group_tag(reader)?) } else { None };
    if !has(STATE) {
        return Ok(Some(ItemEvent { id, group, after: None }));
    }
    let state = StateKind::ALL.get(usize::from(reader.byte()?)).ok_or("an unknown state")?;
    let (attempt, deliveries) = (reader.number()?, reader.number()?);
    let mut after = ItemEventState {
        state: *state,
        attempt,
        deliveries,
        deadline: None,
        failure: None,
        reason: None,
        origin: None,
    };
    if has(DEADLINE) {
        let deadline = at.0.cast_signed().wrapping_add(reader.signed()?);
        after.deadline = Some(Timestamp(deadline.cast_unsigned()));
    }
    if has(FAILURE) {
        after.failure = Some(code::failure(reader.byte()?).ok_or("an unknown failure kind")?);
    }
    if has(REASON) {
        after.reason = Some(reader.text()?.to_owned());
    }
    if has(ORIGIN) {
        after.origin = queue_name(reader)?;
    }
    Ok(Some(ItemEvent { id, group, after: Some(after) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_domain::FailureKind;
    use uuid::Uuid;

    const SALT: u64 = 17;
    const AT: Timestamp = Timestamp(1_000_000);

    fn events() -> Vec<EventPayload> {
        let id = |seq| ItemId::derive(SALT, Timestamp(900_000 + seq), seq);
        let plain = ItemEventState {
            state: StateKind::Processing,
            attempt: 1,
            deliveries: 1,
            deadline: Some(Timestamp(1_300_000)),
            failure: None,
            reason: None,
            origin: None,
        };
        let failed = ItemEventState {
            state: StateKind::Failed,
            attempt: 4,
            deliveries: 9,
            deadline: None,
            failure: Some(FailureKind::RetriesExhausted),
            reason: Some("out of héap".to_owned()),
            origin: Some("jobs".parse().unwrap()),
        };
        let of_item = |kind, queue, id, group: Option<&str>, after| EventPayload {
            kind,
            queue: QueueId(queue),
            item: Some(ItemEvent { id, group: group.map(GroupTag::of), after }),
        };
        vec![
            EventPayload { kind: EventKind::QueueCreated, queue: QueueId(1), item: None },
            of_item(EventKind::Received, 1, id(7), None, Some(plain.clone())),
            of_item(EventKind::Received, 1, id(8), None, Some(plain)),
            of_item(EventKind::Failed, 2, ItemId(Uuid::from_u128(99)), Some("g"), Some(failed)),
            of_item(EventKind::Removed, 3, id(2), Some("h"), None),
        ]
    }

    fn encoded() -> Vec<u8> {
        let names: Vec<QueueName> = ["jobs", "dead"].map(|name| name.parse().unwrap()).into();
        encode(&events(), SALT, AT, |id| names.get(id.0 as usize - 1)).remove(0)
    }

    fn decoded(rows: &[Vec<u8>]) -> Vec<DecodedEvent> {
        rows.iter().flat_map(|row| decode(row, SALT, AT).unwrap()).flatten().collect()
    }

    #[test]
    fn encoded_events_decode_to_the_same_events() {
        let names = [Some("jobs"), Some("jobs"), Some("jobs"), Some("dead"), None];
        let expected = events().into_iter().zip(names).map(|(event, queue)| {
            let queue = queue.map(|name| name.parse().unwrap());
            DecodedEvent { kind: event.kind, queue, item: event.item }
        });
        assert_eq!(decoded(&[encoded()]), expected.collect::<Vec<_>>());
    }

    /// Events like the second one, with these item numbers.
    fn received(seqs: impl IntoIterator<Item = u64>) -> Vec<EventPayload> {
        let one = |seq| {
            let mut event = events()[1].clone();
            if let Some(item) = &mut event.item {
                item.id = ItemId::derive(SALT, AT, seq);
            }
            event
        };
        seqs.into_iter().map(one).collect()
    }

    fn ids(events: &[DecodedEvent]) -> Vec<ItemId> {
        events.iter().map(|event| event.item.as_ref().unwrap().id).collect()
    }

    #[test]
    fn a_run_of_consecutive_items_takes_no_space() {
        let events = received(5000..6000);
        let rows = encode(&events, SALT, AT, |_| None);
        assert!(rows.len() == 1 && rows[0].len() < 40, "{} {}", rows.len(), rows[0].len());
        assert_eq!(
            ids(&decoded(&rows)),
            events.iter().map(|event| event.item.as_ref().unwrap().id).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_run_of_members_of_a_group_stores_the_group_once() {
        let mut events = received(5000..6000);
        events.extend(received(7000..7002));
        for event in events[..1000].iter_mut() {
            event.item.as_mut().unwrap().group = Some(GroupTag::of("g"));
        }
        let rows = encode(&events, SALT, AT, |_| None);
        assert!(rows.len() == 1 && rows[0].len() < 80, "{} {}", rows.len(), rows[0].len());
        let groups: Vec<_> = decoded(&rows).iter().map(|event| event.item.as_ref().unwrap().group).collect();
        assert!(groups[..1000].iter().all(|group| *group == Some(GroupTag::of("g"))));
        assert_eq!(groups[1000..], [None, None]);
        assert_eq!(groups.len(), 1002);
    }

    #[test]
    fn events_beyond_the_size_of_a_row_go_into_the_next() {
        let events = received((0..5000).map(|n| n * 3 % 5000));
        let rows = encode(&events, SALT, AT, |_| None);
        assert!(rows.len() > 3 && rows.iter().all(|row| row.len() < ROW_BYTES + 64), "{}", rows.len());
        assert_eq!(
            ids(&decoded(&rows)),
            events.iter().map(|event| event.item.as_ref().unwrap().id).collect::<Vec<_>>()
        );
        assert!(encode(&[], SALT, AT, |_| None).is_empty());
    }

    #[test]
    fn cut_bytes_are_an_error_or_decode_to_fewer_events() {
        let bytes = encoded();
        for length in 0..bytes.len() {
            if let Ok(events) = decode(&bytes[..length], SALT, AT) {
                assert!(events.len() < 5, "{length}");
            }
        }
        for bad in
            [&[2][..], &[VERSION, REPEAT, 5], &[VERSION, 16, 0, 0, REPEAT, 0xff, 0xff, 0xff, 0xff, 0x7f]]
        {
            assert!(decode(bad, SALT, AT).is_err(), "{bad:?}");
        }
    }
}
