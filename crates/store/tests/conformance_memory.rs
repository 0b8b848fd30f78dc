//! The reference store keeps the contract.

use std::sync::Arc;
use towline_store::conformance::Harness;
use towline_store::{ManualClock, Memory, Store};

struct InMemory;

impl Harness for InMemory {
    fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        Arc::new(Memory::new(clock, 0x5a17))
    }

    fn reopen(&self, _: Arc<dyn Store>, _: Arc<ManualClock>) -> Option<Arc<dyn Store>> {
        None
    }
}

towline_store::conformance_tests!(InMemory);
