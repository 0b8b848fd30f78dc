//! Damage that reads met: counted, and written to the log once for each place.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_store::StoreError;

/// Places remembered. Beyond that, a place may be logged again.
const LOGGED_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct MetDamage {
    places: Mutex<Places>,
    count: AtomicU64,
}

#[derive(Debug, Default)]
struct Places {
    first: Option<String>,
    logged: HashSet<String>,
}

impl MetDamage {
    /// Notes a fault if it is damage. Returns whether it was written to the log.
    pub(crate) fn note(&self, fault: &StoreError) -> bool {
        if !matches!(fault, StoreError::Corrupt { .. }) {
            return false;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let what = fault.to_string();
        let mut places = self.places.lock();
        places.first.get_or_insert_with(|| what.clone());
        if places.logged.len() >= LOGGED_MAX {
            places.logged.clear();
        }
        let is_new = places.logged.insert(what);
        drop(places);
        if is_new {
            tracing::error!("a read met damage: {fault}");
        }
        is_new
    }

    /// The first damage that was met.
    pub(crate) fn first(&self) -> Option<String> {
        self.places.lock().first.clone()
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_counted_each_time_and_logged_once_and_other_faults_are_not() {
        let damage = MetDamage::default();
        let corrupt = |what: &str| StoreError::Corrupt { file: "segment".to_owned(), what: what.to_owned() };
        let noted = [corrupt("one"), corrupt("one"), StoreError::Closed, corrupt("two"), corrupt("one")]
            .map(|fault| damage.note(&fault));
        assert_eq!(noted, [true, false, false, true, false]);
        assert_eq!((damage.count(), damage.first()), (4, Some(corrupt("one").to_string())));
    }
}
