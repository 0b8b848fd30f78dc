//! The rows of `pages`, `terminal_pages` and `payloads` that a batch writes and deletes.

use crate::batch::overlay::{Entry, Overlay};
use crate::pages::codec::ItemSnapshotRef;
use crate::pages::columns::{PageColumns, TerminalPageColumns};
use crate::pages::payloads::PayloadChunks;
use crate::pages::snapshot::{PageRow, PageTable, PayloadRef};
use crate::pages::split::{PageItem, UNTOUCHED, split};

#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) new: PageColumns,
    pub(crate) changed: PageColumns,
    pub(crate) terminal: TerminalPageColumns,
    /// `first_seq` of pages to delete.
    pub(crate) deleted: Vec<i64>,
    /// Partition and `first_seq` of terminal pages to delete.
    pub(crate) deleted_terminal: (Vec<i16>, Vec<i64>),
    pub(crate) payloads: PayloadChunks,
    /// The partition of each of `payloads`.
    pub(crate) payload_partitions: Vec<i16>,
}

impl Layout {
    pub(crate) fn of(overlay: &Overlay) -> Layout {
        let mut layout = Layout::default();
        for (page, numbers) in overlay.pages.values() {
            let present = || numbers.iter().filter_map(|seq| Some((*seq, overlay.entries.get(seq)?)));
            let removed = !overlay.removed.is_empty() && present().count() < numbers.len();
            let rewritten = overlay.rewritten.contains(&page.first);
            if removed || rewritten || present().any(|(_, entry)| entry.changed) {
                let items: Vec<PageItem<'_>> = present()
                    .map(|(seq, entry)| page_item(overlay, seq, entry, payload_ref(entry)))
                    .collect();
                layout.replace(overlay, page, &items);
            }
        }
        layout.add(overlay);
        layout
    }

    /// Replaces a stored page by pages with the items that are left of it.
    fn replace(&mut self, overlay: &Overlay, page: &PageRow, items: &[PageItem<'_>]) {
        let mut reused = false;
        for new in split(items, overlay.salt) {
            match new.terminal {
                Some(terminal) => self.terminal.push(new, terminal, overlay.now),
                None if new.first == page.first && page.table == PageTable::Live => {
                    reused = true;
                    self.changed.push(new);
                }
                None => self.new.push(new),
            }
        }
        match page.table {
            PageTable::Live if reused => {}
            PageTable::Live => self.deleted.push(page.first.cast_signed()),
            PageTable::Terminal { partition } => {
                self.deleted_terminal.0.push(partition);
                self.deleted_terminal.1.push(page.first.cast_signed());
            }
        }
    }

    /// Adds the new items, in order of submission.
    fn add(&mut self, overlay: &Overlay) {
        let mut new: Vec<(u64, &Entry)> = overlay
            .entries
            .iter()
            .filter(|(_, entry)| !entry.stored)
            .map(|(&seq, entry)| (seq, &**entry))
            .collect();
        new.sort_unstable_by_key(|(seq, _)| *seq);
        let mut items = Vec::with_capacity(new.len());
        for (seq, entry) in new {
            let Some(submitted) = &entry.submitted else { continue };
            let (body, fields) = &**submitted;
            let at = self.payloads.push(overlay.body_slot, seq, body, fields);
            let side = entry.chosen_id
                || body.idempotency_key.is_some()
                || body.replace_key.is_some()
                || body.group.is_some()
                || !body.tags.is_empty();
            let payload = PayloadRef { at, edited: None, side: side || adds_side_rows(entry) };
            items.push(page_item(overlay, seq, entry, payload));
        }
        for new in split(&items, overlay.salt) {
            match new.terminal {
                Some(terminal) => self.terminal.push(new, terminal, overlay.now),
                None => self.new.push(new),
            }
        }
        self.payload_partitions = self.payloads.partitions(overlay.body_slot);
    }
}

fn adds_side_rows(entry: &Entry) -> bool {
    !entry.edits.is_empty() || !entry.errors.is_empty() || entry.outcome.is_some()
}

fn payload_ref(entry: &Entry) -> PayloadRef {
    PayloadRef { side: entry.kept.side || adds_side_rows(entry), ..entry.kept }
}

fn page_item<'a>(overlay: &Overlay, seq: u64, entry: &'a Entry, kept: PayloadRef) -> PageItem<'a> {
    PageItem {
        snapshot: ItemSnapshotRef { seq, head: &entry.head, counted: entry.counted, kept },
        index: overlay.index_keys(&entry.head, entry.counted),
        order: overlay.key(&entry.head),
        fairness_key: overlay.fairness_key(&entry.head),
        counts_leases: overlay.limits_keys(entry.head.queue),
        touched_by: if entry.changed { entry.touch } else { UNTOUCHED },
    }
}
