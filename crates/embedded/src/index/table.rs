//! The table of items by sequence number: chunks of small slots, and a slab of [`Extra`]s.
//!
//! A plain item (pending since its submit, without group, key or expiry) has only a slot. Every other item also has an [`Extra`]
//! with its complete head.

use crate::log::record::{BODY, FIELDS, HEAD, Indexed, Parts, RecordPlace};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use towline_domain::{CountKind, Head, ItemId, KeyTag, QueueId, State, Timestamp};

/// Slots of a chunk. Small, because one remaining item keeps the memory of a whole chunk.
const CHUNK: usize = 512;
const NO_EXTRA: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
pub struct Slot {
    /// The record of the submit, or the record that collection carried it to.
    pub place: RecordPlace,
    extra: u32,
    pub queue: QueueId,
    pub ready_at: Timestamp,
    pub priority: i16,
    pub flags: u8,
    /// The parts of a plain item's record without the head: body and fields, shifted right by one.
    plain_parts: u8,
}

/// The slot has an item.
const USED: u8 = 1;
/// Pending, but not ready yet: counted as scheduled, and in the schedule.
pub const SCHEDULED: u8 = 2;
/// Pending and in the ready queue.
pub const READY: u8 = 4;
/// The bits above say what an item is that is neither scheduled nor ready.
const REST_SHIFT: u8 = 3;
const REST: [CountKind; 4] =
    [CountKind::Processing, CountKind::Paused, CountKind::Completed, CountKind::Failed];

impl Slot {
    fn used(&self) -> bool {
        self.flags & USED != 0
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// How the item counts. Does not need the head.
    pub fn kind(&self) -> CountKind {
        match self.flags {
            flags if flags & SCHEDULED != 0 => CountKind::Scheduled,
            flags if flags & READY != 0 => CountKind::Pending,
            flags => REST[usize::from(flags >> REST_SHIFT & 3)],
        }
    }

    pub fn set_kind(&mut self, kind: CountKind) {
        self.flags &= USED;
        self.flags |= match kind {
            CountKind::Scheduled => SCHEDULED,
            CountKind::Pending => READY,
            CountKind::Processing => 0,
            CountKind::Paused => 1 << REST_SHIFT,
            CountKind::Completed => 2 << REST_SHIFT,
            CountKind::Failed => 3 << REST_SHIFT,
        };
    }

    /// The parts of a plain item's record.
    pub fn plain_parts(&self) -> Parts {
        HEAD | Parts::from(self.plain_parts) << 1
    }

    pub fn is_plain(&self) -> bool {
        self.extra == NO_EXTRA
    }
}

/// A record with current parts of an item.
#[derive(Debug, Clone, Copy)]
pub struct PartsAt {
    pub place: RecordPlace,
    pub parts: Parts,
}

#[derive(Debug)]
pub struct Extra {
    pub head: Head,
    /// The current parts of the record at the slot's place.
    pub base_parts: Parts,
    /// Other records with current parts, except errors.
    pub other_places: SmallVec<[PartsAt; 1]>,
    /// Errors by ordinal. A record may be listed here and also in `other_places` or as the base.
    pub errors: Vec<(u32, RecordPlace)>,
    pub indexed: Option<Box<Indexed>>,
}

struct Chunk {
    slots: Box<[Slot]>,
    used: u32,
}

impl Chunk {
    fn new() -> Chunk {
        let empty = Slot {
            place: RecordPlace { segment: 0, offset: 0, length: 0 },
            extra: NO_EXTRA,
            queue: QueueId(0),
            ready_at: Timestamp(0),
            priority: 0,
            flags: 0,
            plain_parts: 0,
        };
        Chunk { slots: vec![empty; CHUNK].into_boxed_slice(), used: 0 }
    }
}

/// More missing chunks than this between two others, or three in four missing, and the older ones become stragglers.
const GAP_MAX: u64 = 1024;

#[derive(Default)]
pub struct Table {
    /// The number of the first chunk in `chunks`.
    base: u64,
    chunks: VecDeque<Option<Chunk>>,
    /// How many of `chunks` there are.
    present: u64,
    /// Chunks before `base`, so that one old item does not need an entry for every chunk since.
    stragglers: BTreeMap<u64, Chunk>,
    extras: Slab,
    pub salt: u64,
    len: u64,
}

impl Table {
    pub fn len(&self) -> u64 {
        self.len
    }

    fn chunk_of(sequence: u64) -> (u64, usize) {
        (sequence / CHUNK as u64, usize::try_from(sequence % CHUNK as u64).unwrap_or(0))
    }

    pub fn slot(&self, sequence: u64) -> Option<&Slot> {
        let (number, at) = Table::chunk_of(sequence);
        let chunk = match number.checked_sub(self.base) {
            Some(index) => self.chunks.get(usize::try_from(index).ok()?)?.as_ref()?,
            None => self.stragglers.get(&number)?,
        };
        chunk.slots.get(at).filter(|slot| slot.used())
    }

    pub fn slot_mut(&mut self, sequence: u64) -> Option<&mut Slot> {
        let (number, at) = Table::chunk_of(sequence);
        self.chunk_mut(number)?.slots.get_mut(at).filter(|slot| slot.used())
    }

    fn chunk_mut(&mut self, number: u64) -> Option<&mut Chunk> {
        match number.checked_sub(self.base) {
            Some(index) => self.chunks.get_mut(usize::try_from(index).ok()?)?.as_mut(),
            None => self.stragglers.get_mut(&number),
        }
    }

    /// The chunk with this number. Makes one if there is none.
    fn make_chunk(&mut self, number: u64) -> &mut Chunk {
        let gap = number.saturating_sub(self.base + self.chunks.len() as u64);
        while gap > GAP_MAX && !self.chunks.is_empty() {
            self.drop_first();
        }
        if self.chunks.is_empty() && number >= self.base {
            self.base = number;
        }
        // At a replay, a carried record comes behind records of later items.
        let Some(index) = number.checked_sub(self.base) else {
            return self.stragglers.entry(number).or_insert_with(Chunk::new);
        };
        let index = usize::try_from(index).unwrap_or(0);
        while self.chunks.len() <= index {
            self.chunks.push_back(None);
        }
        let place = &mut self.chunks[index];
        self.present += u64::from(place.is_none());
        place.get_or_insert_with(Chunk::new)
    }

    /// Makes the first chunk a straggler, unless it is missing.
    fn drop_first(&mut self) {
        if let Some(first) = self.chunks.pop_front() {
            if let Some(chunk) = first {
                self.present -= 1;
                self.stragglers.insert(self.base, chunk);
            }
            self.base += 1;
        }
    }

    fn remove_chunk(&mut self, number: u64) {
        let Some(index) = number.checked_sub(self.base) else {
            self.stragglers.remove(&number);
            return;
        };
        if let Some(place) = usize::try_from(index).ok().and_then(|index| self.chunks.get_mut(index)) {
            *place = None;
            self.present -= 1;
        }
        while let Some(None) = self.chunks.front() {
            self.drop_first();
        }
        while self.chunks.len() as u64 > GAP_MAX.max(4 * self.present) {
            self.drop_first();
        }
    }

    /// Adds a plain item.
    pub fn insert(&mut self, sequence: u64, place: RecordPlace, parts: Parts, head: &Head) {
        let (number, at) = Table::chunk_of(sequence);
        let chunk = self.make_chunk(number);
        chunk.used += 1;
        chunk.slots[at] = Slot {
            place,
            extra: NO_EXTRA,
            queue: head.queue,
            ready_at: head.ready_at,
            priority: head.priority,
            flags: USED,
            plain_parts: u8::try_from((parts & (BODY | FIELDS)) >> 1).unwrap_or(0),
        };
        self.len += 1;
    }

    pub fn remove(&mut self, sequence: u64) -> Option<(Slot, Option<Box<Extra>>)> {
        let (number, at) = Table::chunk_of(sequence);
        let chunk = self.chunk_mut(number)?;
        let slot = chunk.slots[at];
        if !slot.used() {
            return None;
        }
        chunk.slots[at].flags = 0;
        chunk.used -= 1;
        let is_empty = chunk.used == 0;
        self.len -= 1;
        if is_empty {
            self.remove_chunk(number);
        }
        Some((slot, self.extras.take(slot.extra)))
    }

    pub fn extra(&self, sequence: u64) -> Option<&Extra> {
        self.extras.get(self.slot(sequence)?.extra)
    }

    pub fn extra_mut(&mut self, sequence: u64) -> Option<&mut Extra> {
        let extra = self.slot(sequence)?.extra;
        self.extras.get_mut(extra)
    }

    /// The extra of an item. Makes one from the slot if the item has none.
    pub fn make_extra(&mut self, sequence: u64) -> Option<&mut Extra> {
        let slot = *self.slot(sequence)?;
        let mut at = slot.extra;
        if at == NO_EXTRA {
            let head = self.plain_head(sequence, &slot);
            at = self.extras.put(Extra {
                head,
                base_parts: slot.plain_parts(),
                other_places: SmallVec::new(),
                errors: Vec::new(),
                indexed: None,
            });
            self.slot_mut(sequence)?.extra = at;
        }
        self.extras.get_mut(at)
    }

    fn plain_head(&self, sequence: u64, slot: &Slot) -> Head {
        Head {
            id: ItemId::derive(self.salt, slot.ready_at, sequence),
            queue: slot.queue,
            state: State::Pending,
            priority: slot.priority,
            created_at: slot.ready_at,
            ready_at: slot.ready_at,
            retries: 0,
            deliveries: 0,
            revision: 1,
            transitions: 0,
            expires_at: None,
            last_settle: None,
            group: None,
            fairness_key: KeyTag::NONE,
            changed_at: None,
            heartbeat_at: None,
            extras: None,
        }
    }

    /// Whether the slot alone can represent an item with this head.
    pub fn is_plain(&self, sequence: u64, head: &Head) -> bool {
        head.revision == 1
            && head.state == State::Pending
            && head.ready_at == head.created_at
            && head.expires_at.is_none()
            && head.extras.is_none()
            && head.group.is_none()
            && head.fairness_key.is_none()
            && head.changed_at.is_none()
            && head.heartbeat_at.is_none()
            && head.id == ItemId::derive(self.salt, head.created_at, sequence)
    }

    pub fn head(&self, sequence: u64) -> Option<Head> {
        let slot = self.slot(sequence)?;
        Some(match self.extras.get(slot.extra) {
            Some(extra) => extra.head.clone(),
            None => self.plain_head(sequence, slot),
        })
    }

    /// Visits all items in order.
    pub fn for_each_mut(&mut self, mut visit: impl FnMut(u64, &mut Slot, Option<&Extra>)) {
        let Table { base, chunks, stragglers, extras, .. } = self;
        let stragglers = stragglers.iter_mut().map(|(number, chunk)| (*number, chunk));
        let chunks = (*base..).zip(chunks).filter_map(|(number, chunk)| Some((number, chunk.as_mut()?)));
        for (number, chunk) in stragglers.chain(chunks) {
            for (at, slot) in chunk.slots.iter_mut().enumerate() {
                if slot.used() {
                    let extra = extras.get(slot.extra);
                    visit(number * CHUNK as u64 + at as u64, slot, extra);
                }
            }
        }
    }

    /// Visits items from `first` on in order, for at most `scan` slots or until `visit` returns false. Returns where to continue;
    /// `None`: at the end.
    pub fn scan(&self, first: u64, scan: usize, mut visit: impl FnMut(u64, &Slot) -> bool) -> Option<u64> {
        let (first, at) = Table::chunk_of(first);
        let skipped = usize::try_from(first.saturating_sub(self.base)).unwrap_or(usize::MAX);
        let stragglers = self.stragglers.range(first..).map(|(number, chunk)| (*number, chunk));
        let chunks = (self.base..).zip(&self.chunks).skip(skipped);
        let chunks = chunks.filter_map(|(number, chunk)| Some((number, chunk.as_ref()?)));
        let mut looked = 0;
        for (number, chunk) in stragglers.chain(chunks) {
            let skipped = if number == first { at } else { 0 };
            for (at, slot) in chunk.slots.iter().enumerate().skip(skipped) {
                let sequence = number * CHUNK as u64 + at as u64;
                if looked == scan {
                    return Some(sequence);
                }
                looked += 1;
                if slot.used() && !visit(sequence, slot) {
                    return Some(sequence + 1);
                }
            }
        }
        None
    }
}

/// Extras in chunks, so that growth does not copy existing ones.
#[derive(Default)]
struct Slab {
    chunks: Vec<Vec<Option<Box<Extra>>>>,
    free: Vec<u32>,
}

impl Slab {
    fn put(&mut self, extra: Extra) -> u32 {
        if let Some(at) = self.free.pop() {
            let index = at as usize;
            self.chunks[index / CHUNK][index % CHUNK] = Some(Box::new(extra));
            return at;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunk = self.chunks.len() - 1;
        self.chunks[chunk].push(Some(Box::new(extra)));
        u32::try_from(chunk * CHUNK + self.chunks[chunk].len() - 1).unwrap_or(NO_EXTRA)
    }

    fn get(&self, at: u32) -> Option<&Extra> {
        self.chunks.get(at as usize / CHUNK)?.get(at as usize % CHUNK)?.as_deref()
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut Extra> {
        self.chunks.get_mut(at as usize / CHUNK)?.get_mut(at as usize % CHUNK)?.as_deref_mut()
    }

    fn take(&mut self, at: u32) -> Option<Box<Extra>> {
        let extra = self.chunks.get_mut(at as usize / CHUNK)?.get_mut(at as usize % CHUNK)?.take();
        if extra.is_some() {
            self.free.push(at);
        }
        extra
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(table: &mut Table, sequence: u64) {
        let place = RecordPlace { segment: 1, offset: 0, length: 1 };
        let slot = Slot {
            place,
            extra: NO_EXTRA,
            queue: QueueId(1),
            ready_at: Timestamp(5),
            priority: 0,
            flags: USED,
            plain_parts: 0,
        };
        let head = table.plain_head(sequence, &slot);
        table.insert(sequence, place, HEAD, &head);
    }

    fn all(table: &Table) -> Vec<u64> {
        let mut seen = Vec::new();
        table.scan(0, usize::MAX, |sequence, _| {
            seen.push(sequence);
            true
        });
        seen
    }

    #[test]
    fn one_old_item_keeps_one_chunk() {
        const MANY: u64 = 2_000_000;
        let mut table = Table::default();
        put(&mut table, 7);
        for sequence in 8..MANY {
            put(&mut table, sequence);
            if sequence > 1000 {
                assert!(table.remove(sequence - 900).is_some());
            }
        }
        assert!(table.chunks.len() as u64 <= GAP_MAX + 4, "{} chunks", table.chunks.len());
        let expected: Vec<u64> = (7..=100).chain(MANY - 900..MANY).collect();
        assert_eq!(all(&table), expected);
        assert_eq!(table.len(), expected.len() as u64);
        let mut visited = 0;
        table.for_each_mut(|_, _, _| visited += 1);
        assert_eq!(visited, expected.len());
        // A scan continues at any item, in the stragglers and behind them.
        let mut seen = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            next = table.scan(from, 300, |sequence, _| {
                seen.push(sequence);
                true
            });
        }
        assert_eq!(seen, expected);
        for sequence in expected {
            assert!(table.slot(sequence).is_some() && table.slot_mut(sequence).is_some());
            assert!(table.remove(sequence).is_some() && table.remove(sequence).is_none());
        }
        assert!(table.stragglers.is_empty() && all(&table).is_empty());
    }

    #[test]
    fn items_may_be_added_in_any_order_and_far_apart() {
        let mut table = Table::default();
        let sequences = [1 << 20, 3, 1 << 39, 600_000, (1 << 39) + 1, 1 << 30, 4];
        for sequence in sequences {
            put(&mut table, sequence);
        }
        let mut sorted = sequences.to_vec();
        sorted.sort_unstable();
        assert_eq!(all(&table), sorted);
        assert!(table.chunks.len() as u64 <= GAP_MAX);
        for sequence in sequences {
            assert!(table.remove(sequence).is_some());
        }
        put(&mut table, 5);
        assert_eq!(all(&table), [5]);
    }
}
