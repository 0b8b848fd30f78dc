//! The sweep of a batch: carries out what is due, before the operations.

use super::operations::BY_TIME;
use super::{NeedsLock, Overlay};
use std::collections::BTreeSet;
use towline_domain::CountKind;
use towline_store::transaction;

impl Overlay {
    /// Makes scheduled items ready, then elapses due timers, earliest first. Looks at fetched items only.
    pub(crate) fn sweep(&mut self) -> Result<(), NeedsLock> {
        let now = self.now;
        self.touch = BY_TIME;
        let ready_by_now = |counted, ready_at| counted == CountKind::Scheduled && ready_at <= now;
        let promoted: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| ready_by_now(entry.counted, entry.head.ready_at))
            .map(|(&seq, _)| seq)
            .collect();
        for seq in promoted {
            self.promote(seq);
        }
        let mut due: BTreeSet<_> = self
            .entries
            .iter()
            .filter_map(|(&seq, entry)| Some((entry.head.timer().filter(|&at| at <= now)?, seq)))
            .collect();
        while let Some((_, seq)) = due.pop_first() {
            if transaction::elapse(self, seq)?.is_ok() {
                self.swept += 1;
            }
            // An item that expired may be due for removal at once.
            let again =
                self.entries.get(&seq).filter(|entry| entry.changed).and_then(|entry| entry.head.timer());
            due.extend(again.filter(|&at| at <= now).map(|at| (at, seq)));
        }
        Ok(())
    }
}
