//! Which records contain the current parts of items, queues and key-value records, and how many live bytes each segment has.

use super::Index;
use crate::index::table::PartsAt;
use crate::log::record::{ERROR, Indexed, Parts, RecordPlace};
use smallvec::SmallVec;
use towline_domain::{QueueId, limits};

impl Index {
    /// The records with the current parts of an item.
    pub fn places(&self, sequence: u64) -> Option<SmallVec<[PartsAt; 2]>> {
        let slot = self.table.slot(sequence)?;
        let mut places = SmallVec::new();
        let Some(extra) = self.table.extra(sequence) else {
            places.push(PartsAt { place: slot.place, parts: slot.plain_parts() });
            return Some(places);
        };
        if extra.base_parts != 0 {
            places.push(PartsAt { place: slot.place, parts: extra.base_parts });
        }
        places.extend(extra.other_places.iter().copied());
        for &(_, place) in &extra.errors {
            match places.iter_mut().find(|at| at.place == place) {
                Some(at) => at.parts |= ERROR,
                None => places.push(PartsAt { place, parts: ERROR }),
            }
        }
        Some(places)
    }

    /// The total length of the records of an item with these parts.
    pub fn bytes_of(&self, sequence: u64, parts: Parts) -> u64 {
        let Some(slot) = self.table.slot(sequence) else { return 0 };
        let length = |has: Parts, place: RecordPlace| match has & parts {
            0 => 0,
            _ => u64::from(place.length),
        };
        let Some(extra) = self.table.extra(sequence) else { return length(slot.plain_parts(), slot.place) };
        let others = extra.other_places.iter().map(|at| length(at.parts, at.place));
        let errors = extra.errors.iter().map(|error| length(ERROR, error.1));
        length(extra.base_parts, slot.place) + others.chain(errors).sum::<u64>()
    }

    /// Which parts of the record at `place` are current parts of the item.
    pub fn current_parts(&self, sequence: u64, place: RecordPlace) -> Parts {
        let places = self.places(sequence).unwrap_or_default();
        places.iter().filter(|at| at.place == place).fold(0, |parts, at| parts | at.parts)
    }

    pub fn queue_is_at(&self, id: QueueId, place: RecordPlace) -> bool {
        self.queues.get(&id).is_some_and(|queue| queue.place == place)
    }

    pub fn kv_is_at(&self, key: &str, place: RecordPlace) -> bool {
        self.kv.get(key).is_some_and(|slot| slot.place == place)
    }

    pub fn live_bytes(&self) -> u64 {
        self.live_total
    }

    pub fn live_bytes_of(&self, segment: u32) -> u64 {
        self.live.get(segment as usize).copied().unwrap_or(0)
    }

    /// The record at `place` now has the current version of these parts.
    pub(super) fn set_parts(
        &mut self,
        sequence: u64,
        place: RecordPlace,
        parts: Parts,
        ordinal: u32,
        indexed: Option<Box<Indexed>>,
    ) {
        self.add_live(place);
        let Some(slot) = self.table.slot(sequence) else {
            return;
        };
        let mut base = slot.place;
        let mut dropped: SmallVec<[RecordPlace; 4]> = SmallVec::new();
        let Some(extra) = self.table.make_extra(sequence) else {
            return;
        };
        if extra.base_parts != 0 && extra.base_parts & parts != 0 {
            extra.base_parts &= !parts;
            if extra.base_parts == 0 {
                dropped.push(base);
            }
        }
        extra.other_places.retain(|at| {
            at.parts &= !parts;
            if at.parts == 0 {
                dropped.push(at.place);
            }
            at.parts != 0
        });
        if parts & ERROR != 0 {
            match extra.errors.binary_search_by_key(&ordinal, |error| error.0) {
                Ok(at) => dropped.push(std::mem::replace(&mut extra.errors[at].1, place)),
                Err(at) => extra.errors.insert(at, (ordinal, place)),
            }
            if extra.errors.len() > limits::ERRORS_KEPT_MAX {
                dropped.push(extra.errors.remove(1).1);
            }
        }
        let kept = parts & !ERROR;
        if kept != 0 {
            if extra.base_parts == 0 {
                base = place;
                extra.base_parts = kept;
            } else {
                extra.other_places.push(PartsAt { place, parts: kept });
            }
        }
        // A record with a head and an error stays live while one of them is current.
        let is_live = |gone: &RecordPlace| {
            (extra.base_parts != 0 && base == *gone)
                || extra.other_places.iter().any(|at| at.place == *gone)
                || extra.errors.iter().any(|error| error.1 == *gone)
        };
        dropped.retain(|gone| !is_live(gone));
        if kept == 0 && !is_live(&place) {
            dropped.push(place);
        }
        if let Some(slot) = self.table.slot_mut(sequence) {
            slot.place = base;
        }
        dropped.sort_unstable_by_key(|place| (place.segment, place.offset));
        dropped.dedup();
        for place in dropped {
            self.drop_live(place);
        }
        self.add_indexed(sequence, indexed);
    }

    pub(super) fn add_live(&mut self, place: RecordPlace) {
        let segment = place.segment as usize;
        if self.live.len() <= segment {
            self.live.resize(segment + 1, 0);
        }
        self.live[segment] += u64::from(place.length);
        self.live_total += u64::from(place.length);
    }

    /// Makes the live bytes of a segment wrong.
    #[cfg(test)]
    pub(crate) fn miscount(&mut self, segment: u32, by: i64) {
        let live = &mut self.live[segment as usize];
        *live = live.saturating_add_signed(by);
    }

    pub(super) fn drop_live(&mut self, place: RecordPlace) {
        if let Some(live) = self.live.get_mut(place.segment as usize) {
            self.is_miscounted |= *live < u64::from(place.length);
            *live = live.saturating_sub(u64::from(place.length));
            self.live_total = self.live_total.saturating_sub(u64::from(place.length));
        }
    }
}
