//! The reference store passes the conformance suite.

use std::sync::Arc;
use towline_conformance::ReferenceStore;
use towline_conformance::suite::Harness;
use towline_store::{ManualClock, Store};

struct InMemory;

impl Harness for InMemory {
    fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        Arc::new(ReferenceStore::new(clock, 0x5a17))
    }

    fn open_with_room_for_records(
        &self,
        clock: Arc<ManualClock>,
        bytes_max: usize,
    ) -> Option<Arc<dyn Store>> {
        Some(Arc::new(ReferenceStore::new(clock, 0x5a17).with_room_for_records(bytes_max)))
    }

    fn reopen(&self, _: Arc<dyn Store>, _: Arc<ManualClock>) -> Option<Arc<dyn Store>> {
        None
    }
}

towline_conformance::conformance_tests!(InMemory);

/// Returns the same store on a reopen. All data is still there, so the cases about reopening must pass.
struct SameStore;

impl Harness for SameStore {
    fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        InMemory.open(clock)
    }

    fn reopen(&self, store: Arc<dyn Store>, _: Arc<ManualClock>) -> Option<Arc<dyn Store>> {
        Some(store)
    }
}

#[test]
fn a_store_that_was_not_closed_passes_every_case_about_reopening() {
    towline_conformance::suite::exercise(&SameStore);
}
