//! Which rows of `pages`, `finished` and `bodies` a batch leaves behind.

use crate::batch::overlay::{Entry, Overlay};
use crate::pages::codec::Packed;
use crate::pages::columns::{FinishedPages, Pages};
use crate::pages::payloads::Chunks;
use crate::pages::snapshot::{Home, Kept, Page};
use crate::pages::split::{Laid, Piece, UNTOUCHED, lay};

#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) new: Pages,
    pub(crate) changed: Pages,
    pub(crate) finished: FinishedPages,
    pub(crate) gone: Vec<i64>,
    pub(crate) gone_finished: (Vec<i16>, Vec<i64>),
    pub(crate) bodies: Chunks,
    pub(crate) slots: Vec<i16>,
}

impl Layout {
    pub(crate) fn of(overlay: &Overlay) -> Layout {
        let mut layout = Layout::default();
        for (page, numbers) in overlay.pages.values() {
            let there = || numbers.iter().filter_map(|seq| Some((*seq, overlay.entries.get(seq)?)));
            let removed = !overlay.removed.is_empty() && there().count() < numbers.len();
            let moved = overlay.anew.contains(&page.first);
            if removed || moved || there().any(|(_, entry)| entry.changed) {
                let pieces: Vec<Piece<'_>> =
                    there().map(|(seq, entry)| piece(overlay, seq, entry, kept(entry))).collect();
                layout.replace(overlay, page, &pieces);
            }
        }
        layout.add(overlay);
        layout
    }

    /// A page that is stored, and what is left of it.
    fn replace(&mut self, overlay: &Overlay, page: &Page, pieces: &[Piece<'_>]) {
        let mut reused = false;
        for laid in lay(pieces, overlay.salt) {
            match laid.finished {
                Some(finished) => self.finished.push(laid, finished, overlay.now),
                None if laid.first == page.first && page.home == Home::Pages => {
                    reused = true;
                    self.changed.push(laid);
                }
                None => self.new.push(laid),
            }
        }
        match page.home {
            Home::Pages if reused => {}
            Home::Pages => self.gone.push(page.first.cast_signed()),
            Home::Finished { slot } => {
                self.gone_finished.0.push(slot);
                self.gone_finished.1.push(page.first.cast_signed());
            }
        }
    }

    /// What is new, in order of submission.
    fn add(&mut self, overlay: &Overlay) {
        let mut new: Vec<(u64, &Entry)> = overlay
            .entries
            .iter()
            .filter(|(_, entry)| !entry.stored)
            .map(|(&seq, entry)| (seq, &**entry))
            .collect();
        new.sort_unstable_by_key(|(seq, _)| *seq);
        let mut pieces = Vec::with_capacity(new.len());
        for (seq, entry) in new {
            let Some(submitted) = &entry.submitted else { continue };
            let (body, fields) = &**submitted;
            let at = self.bodies.push(overlay.body_slot, seq, body, fields);
            let side = entry.chosen_id
                || body.idempotency_key.is_some()
                || body.replace_key.is_some()
                || body.group.is_some()
                || !body.tags.is_empty();
            let kept = Kept { at, edited: None, side: side || has_more(entry) };
            pieces.push(piece(overlay, seq, entry, kept));
        }
        for laid in lay(&pieces, overlay.salt) {
            self.put(laid, overlay);
        }
        self.slots = self.bodies.slots(overlay.body_slot);
    }

    fn put(&mut self, laid: Laid, overlay: &Overlay) {
        match laid.finished {
            Some(finished) => self.finished.push(laid, finished, overlay.now),
            None => self.new.push(laid),
        }
    }
}

fn has_more(entry: &Entry) -> bool {
    !entry.edits.is_empty() || !entry.errors.is_empty() || entry.outcome.is_some()
}

fn kept(entry: &Entry) -> Kept {
    Kept { side: entry.kept.side || has_more(entry), ..entry.kept }
}

fn piece<'a>(overlay: &Overlay, seq: u64, entry: &'a Entry, kept: Kept) -> Piece<'a> {
    Piece {
        packed: Packed { seq, head: &entry.head, counted: entry.counted, kept },
        standing: overlay.standing(&entry.head, entry.counted),
        key: overlay.key(&entry.head),
        whose: overlay.whose(&entry.head),
        counts_leases: overlay.limits_keys(entry.head.queue),
        touch: if entry.changed { entry.touch } else { UNTOUCHED },
    }
}
