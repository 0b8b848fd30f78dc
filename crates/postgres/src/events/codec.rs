//! What a batch tells, packed into the few rows that it leaves, and unpacked again.
//!
//! Items that were changed together differ in little: each is a difference to the one before it, and those that differ in
//! their numbers alone, one after the other, are counted.

use crate::encoding::code;
use crate::encoding::varint::{Source, put_signed, put_unsigned};
use std::num::NonZeroU64;
use towline_domain::{
    EventKind, EventPayload, GroupTag, ItemEvent, ItemEventState, ItemId, QueueId, QueueName, Timestamp,
};
use uuid::Uuid;

const VERSION: u8 = 1;
/// In place of a kind: so many more like the one before, each with the next number.
const MORE: u8 = 0;
/// In place of a kind: those before, as many as were counted together, are of this group. It has the form of an event, with
/// the group in place of an id, so that servers before there were groups leave it out as they do with any that they do not know.
const GROUP: u8 = 250;
/// A row takes no more than fits into a page of the table with others: what does not is kept elsewhere, at a price.
const ROW_BYTES: usize = 6 << 10;
/// More than any batch tells.
const MORE_MAX: u64 = 1 << 20;

// What follows of an item.
const ITEM: u8 = 1;
const CHOSEN_ID: u8 = 1 << 1;
const AFTER: u8 = 1 << 2;
const DEADLINE: u8 = 1 << 3;
const FAILURE: u8 = 1 << 4;
const REASON: u8 = 1 << 5;
const ORIGIN: u8 = 1 << 6;

/// An event without its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unpacked {
    pub(crate) kind: EventKind,
    pub(crate) queue: Option<QueueName>,
    pub(crate) item: Option<ItemEvent>,
}

/// Numbers that the next item is told by its difference to.
#[derive(Default)]
struct Before {
    seq: i64,
    made_at: i64,
}

impl Before {
    fn id(&self, salt: u64) -> ItemId {
        ItemId::derive(salt, Timestamp(self.made_at.cast_unsigned()), self.seq.cast_unsigned())
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_unsigned(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// A row for each; `name`: of a queue, as it is or was.
pub(crate) fn pack<'a>(
    told: &[EventPayload],
    salt: u64,
    at: Timestamp,
    name: impl Fn(QueueId) -> Option<&'a QueueName>,
) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    let mut out = vec![VERSION];
    let mut before = Before::default();
    let (mut last, mut more): (Option<&EventPayload>, u64) = (None, 0);
    for event in told {
        if last.is_some_and(|last| follows(last, event, &before, salt)) {
            more += 1;
            before.seq += 1;
            last = Some(event);
            continue;
        }
        end_run(&mut out, &mut more, last);
        if out.len() >= ROW_BYTES {
            rows.push(std::mem::replace(&mut out, vec![VERSION]));
            (before, last) = (Before::default(), None);
        }
        out.push(event.kind as u8);
        // A batch is mostly about one queue, named once.
        let same = last.is_some_and(|last| last.queue == event.queue);
        out.push(u8::from(!same));
        if !same {
            put_text(&mut out, name(event.queue).map_or("", QueueName::as_str));
        }
        pack_item(&mut out, event.item.as_ref(), salt, at, &mut before);
        last = Some(event);
    }
    end_run(&mut out, &mut more, last);
    if out.len() > 1 {
        rows.push(out);
    }
    rows
}

fn end_run(out: &mut Vec<u8>, more: &mut u64, last: Option<&EventPayload>) {
    if *more > 0 {
        out.push(MORE);
        put_unsigned(out, std::mem::take(more));
    }
    if let Some(group) = last.and_then(|told| told.item.as_ref()).and_then(|item| item.group) {
        out.extend([GROUP, 0, ITEM | CHOSEN_ID]);
        out.extend_from_slice(&group.0.get().to_le_bytes());
        out.extend([0; 8]);
    }
}

/// Whether an event differs from the one before in nothing but the number of its item, which is the next.
fn follows(last: &EventPayload, event: &EventPayload, before: &Before, salt: u64) -> bool {
    let (Some(one), Some(other)) = (&last.item, &event.item) else { return false };
    (last.kind, last.queue) == (event.kind, event.queue)
        && one.after == other.after
        && one.group == other.group
        && one.id.made_at() == other.id.made_at()
        && other.id.sequence(salt) == Some((before.seq + 1).cast_unsigned())
        && one.id.sequence(salt).is_some()
}

fn pack_item(out: &mut Vec<u8>, item: Option<&ItemEvent>, salt: u64, at: Timestamp, before: &mut Before) {
    let Some(ItemEvent { id, after, .. }) = item else {
        out.push(0);
        return;
    };
    let seq = id.sequence(salt);
    let mut flags = ITEM;
    let mut set = |flag: u8, on: bool| flags |= if on { flag } else { 0 };
    set(CHOSEN_ID, seq.is_none());
    set(AFTER, after.is_some());
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
            put_signed(out, seq - before.seq);
            put_signed(out, made_at - before.made_at);
            *before = Before { seq, made_at };
        }
        None => out.extend_from_slice(id.0.as_bytes()),
    }
    let Some(after) = after else { return };
    let state = ItemEventState::STATES.iter().position(|state| *state == after.state);
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

/// What [`pack`] packed. An event whose kind is not known is of a later version, and left out; the number of each is its
/// place.
pub(crate) fn unpack(bytes: &[u8], salt: u64, at: Timestamp) -> Result<Vec<Option<Unpacked>>, &'static str> {
    let mut source = Source::new(bytes);
    if source.byte()? != VERSION {
        return Err("a version that is not known");
    }
    let mut events: Vec<Option<Unpacked>> = Vec::new();
    let mut before = Before::default();
    let mut queue = None;
    // Where those begin that were counted together.
    let mut run = 0;
    while !source.is_empty() {
        let code = source.byte()?;
        if code == MORE {
            let count = source.unsigned()?;
            let last = events.last().cloned().ok_or("nothing to be repeated")?;
            if count > MORE_MAX {
                return Err("more events than any batch tells");
            }
            for _ in 0..count {
                before.seq = before.seq.wrapping_add(1);
                let id = before.id(salt);
                let with_id = |item: ItemEvent| ItemEvent { id, ..item };
                events.push(last.clone().map(|event| Unpacked { item: event.item.map(with_id), ..event }));
            }
            continue;
        }
        if source.byte()? == 1 {
            queue = name(&mut source)?;
        }
        let item = unpack_item(&mut source, salt, at, &mut before)?;
        if code == GROUP {
            let group = Some(group(item.as_ref())?);
            for told in events[run..].iter_mut().flatten().filter_map(|event| event.item.as_mut()) {
                told.group = group;
            }
            // It has a place, as it has where nobody knows what it is.
            events.push(None);
            continue;
        }
        run = events.len();
        let kind = EventKind::from_code(code);
        events.push(kind.map(|kind| Unpacked { kind, queue: queue.clone(), item }));
    }
    Ok(events)
}

fn text<'a>(source: &mut Source<'a>) -> Result<&'a str, &'static str> {
    let length = usize::try_from(source.unsigned()?).map_err(|_| "a text that is too long")?;
    std::str::from_utf8(source.take(length)?).map_err(|_| "a text that is none")
}

fn name(source: &mut Source<'_>) -> Result<Option<QueueName>, &'static str> {
    match text(source)? {
        "" => Ok(None),
        name => name.parse().map(Some).map_err(|_| "a queue's name that is none"),
    }
}

/// Where an id would be.
fn group(item: Option<&ItemEvent>) -> Result<GroupTag, &'static str> {
    let (bytes, _) =
        item.and_then(|item| item.id.0.as_bytes().split_first_chunk()).ok_or("a group that is none")?;
    NonZeroU64::new(u64::from_le_bytes(*bytes)).map(GroupTag).ok_or("a group that is none")
}

fn number(source: &mut Source<'_>) -> Result<u32, &'static str> {
    u32::try_from(source.unsigned()?).map_err(|_| "a number that is too large")
}

fn unpack_item(
    source: &mut Source<'_>,
    salt: u64,
    at: Timestamp,
    before: &mut Before,
) -> Result<Option<ItemEvent>, &'static str> {
    let flags = source.byte()?;
    let has = |flag: u8| flags & flag != 0;
    if !has(ITEM) {
        return Ok(None);
    }
    let id = if has(CHOSEN_ID) {
        ItemId(Uuid::from_slice(source.take(16)?).map_err(|_| "an id that is none")?)
    } else {
        before.seq = before.seq.wrapping_add(source.signed()?);
        before.made_at = before.made_at.wrapping_add(source.signed()?);
        before.id(salt)
    };
    if !has(AFTER) {
        return Ok(Some(ItemEvent { id, group: None, after: None }));
    }
    let state = source.byte()?;
    let state = ItemEventState::STATES.get(usize::from(state)).ok_or("a state that is none")?;
    let (attempt, deliveries) = (number(source)?, number(source)?);
    let mut after = ItemEventState {
        state,
        attempt,
        deliveries,
        deadline: None,
        failure: None,
        reason: None,
        origin: None,
    };
    if has(DEADLINE) {
        let deadline = at.0.cast_signed().wrapping_add(source.signed()?);
        after.deadline = Some(Timestamp(deadline.cast_unsigned()));
    }
    if has(FAILURE) {
        after.failure = Some(code::failure(source.byte()?).ok_or("a failure that is none")?);
    }
    if has(REASON) {
        after.reason = Some(text(source)?.to_owned());
    }
    if has(ORIGIN) {
        after.origin = name(source)?;
    }
    Ok(Some(ItemEvent { id, group: None, after: Some(after) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_domain::FailureKind;

    const SALT: u64 = 17;
    const AT: Timestamp = Timestamp(1_000_000);

    fn events() -> Vec<EventPayload> {
        let id = |seq| ItemId::derive(SALT, Timestamp(900_000 + seq), seq);
        let plain = ItemEventState {
            state: "processing",
            attempt: 1,
            deliveries: 1,
            deadline: Some(Timestamp(1_300_000)),
            failure: None,
            reason: None,
            origin: None,
        };
        let failed = ItemEventState {
            state: "failed",
            attempt: 4,
            deliveries: 9,
            deadline: None,
            failure: Some(FailureKind::RetriesExhausted),
            reason: Some("out of héap".to_owned()),
            origin: Some("jobs".parse().unwrap()),
        };
        let told = |kind, queue, id, group: Option<&str>, after| EventPayload {
            kind,
            queue: QueueId(queue),
            item: Some(ItemEvent { id, group: group.map(GroupTag::of), after }),
        };
        vec![
            EventPayload { kind: EventKind::QueueCreated, queue: QueueId(1), item: None },
            told(EventKind::Received, 1, id(7), None, Some(plain.clone())),
            told(EventKind::Received, 1, id(8), None, Some(plain)),
            told(EventKind::Failed, 2, ItemId(Uuid::from_u128(99)), Some("g"), Some(failed)),
            told(EventKind::Removed, 3, id(2), Some("h"), None),
        ]
    }

    fn packed() -> Vec<u8> {
        let names: Vec<QueueName> = ["jobs", "dead"].map(|name| name.parse().unwrap()).into();
        pack(&events(), SALT, AT, |id| names.get(id.0 as usize - 1)).remove(0)
    }

    fn unpacked(rows: &[Vec<u8>]) -> Vec<Unpacked> {
        rows.iter().flat_map(|row| unpack(row, SALT, AT).unwrap()).flatten().collect()
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        let names = [Some("jobs"), Some("jobs"), Some("jobs"), Some("dead"), None];
        let expected = events().into_iter().zip(names).map(|(told, queue)| {
            let queue = queue.map(|name| name.parse().unwrap());
            Unpacked { kind: told.kind, queue, item: told.item }
        });
        assert_eq!(unpacked(&[packed()]), expected.collect::<Vec<_>>());
    }

    /// Like the second, with these numbers.
    fn received(seqs: impl IntoIterator<Item = u64>) -> Vec<EventPayload> {
        let one = |seq| {
            let mut told = events()[1].clone();
            if let Some(item) = &mut told.item {
                item.id = ItemId::derive(SALT, AT, seq);
            }
            told
        };
        seqs.into_iter().map(one).collect()
    }

    fn ids(events: &[Unpacked]) -> Vec<ItemId> {
        events.iter().map(|event| event.item.as_ref().unwrap().id).collect()
    }

    #[test]
    fn items_that_changed_together_take_no_room() {
        let told = received(5000..6000);
        let rows = pack(&told, SALT, AT, |_| None);
        assert!(rows.len() == 1 && rows[0].len() < 40, "{} {}", rows.len(), rows[0].len());
        assert_eq!(
            ids(&unpacked(&rows)),
            told.iter().map(|told| told.item.as_ref().unwrap().id).collect::<Vec<_>>()
        );
    }

    #[test]
    fn members_of_a_group_that_changed_together_say_it_once() {
        let mut told = received(5000..6000);
        told.extend(received(7000..7002));
        for told in told[..1000].iter_mut() {
            told.item.as_mut().unwrap().group = Some(GroupTag::of("g"));
        }
        let rows = pack(&told, SALT, AT, |_| None);
        assert!(rows.len() == 1 && rows[0].len() < 80, "{} {}", rows.len(), rows[0].len());
        let groups: Vec<_> = unpacked(&rows).iter().map(|event| event.item.as_ref().unwrap().group).collect();
        assert!(groups[..1000].iter().all(|group| *group == Some(GroupTag::of("g"))));
        assert_eq!(groups[1000..], [None, None]);
        // As one reads it who knows of no groups: nothing is where something else was.
        let all = unpack(&rows[0], SALT, AT).unwrap();
        assert_eq!((all.len(), all[1000].is_none(), all[1001].is_some()), (1003, true, true));
    }

    #[test]
    fn what_does_not_fit_into_a_row_goes_into_the_next() {
        let told = received((0..5000).map(|n| n * 3 % 5000));
        let rows = pack(&told, SALT, AT, |_| None);
        assert!(rows.len() > 3 && rows.iter().all(|row| row.len() < ROW_BYTES + 64), "{}", rows.len());
        assert_eq!(
            ids(&unpacked(&rows)),
            told.iter().map(|told| told.item.as_ref().unwrap().id).collect::<Vec<_>>()
        );
        assert!(pack(&[], SALT, AT, |_| None).is_empty());
    }

    #[test]
    fn every_cut_is_noticed_or_leaves_whole_events() {
        let bytes = packed();
        for length in 0..bytes.len() {
            if let Ok(events) = unpack(&bytes[..length], SALT, AT) {
                assert!(events.len() < 7, "{length}");
            }
        }
        for bad in [&[2][..], &[VERSION, MORE, 5], &[VERSION, 16, 0, 0, MORE, 0xff, 0xff, 0xff, 0xff, 0x7f]] {
            assert!(unpack(bad, SALT, AT).is_err(), "{bad:?}");
        }
    }
}
