//! The reference store keeps the contract.

use std::sync::Arc;
use towline_conformance::ReferenceStore;
use towline_conformance::suite::Harness;
use towline_store::{ManualClock, Store};

struct InMemory;

impl Harness for InMemory {
    fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        Arc::new(ReferenceStore::new(clock, 0x5a17))
    }

    fn reopen(&self, _: Arc<dyn Store>, _: Arc<ManualClock>) -> Option<Arc<dyn Store>> {
        None
    }
}

towline_conformance::conformance_tests!(InMemory);

/// Hands the same store back: whatever a reopening must keep is still there, so the cases about it must hold.
struct Kept;

impl Harness for Kept {
    fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        InMemory.open(clock)
    }

    fn reopen(&self, store: Arc<dyn Store>, _: Arc<ManualClock>) -> Option<Arc<dyn Store>> {
        Some(store)
    }
}

#[test]
fn what_is_merely_kept_passes_every_case_about_reopening() {
    towline_conformance::suite::exercise(&Kept);
}
