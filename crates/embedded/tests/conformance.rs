//! The conformance suite, run on the embedded store.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use tempfile::TempDir;
use towline_conformance::suite::Harness;
use towline_embedded::{Embedded, Options};
use towline_store::{ManualClock, Store};

type Opened = (Weak<dyn Store>, TempDir);

struct Directories {
    segment_bytes: u64,
    /// The directory of each open store, by the store's address.
    open: Mutex<HashMap<usize, Opened>>,
}

impl Directories {
    fn new(segment_bytes: u64) -> Directories {
        Directories { segment_bytes, open: Mutex::default() }
    }

    fn options(&self) -> Options {
        Options { segment_bytes: self.segment_bytes, salt: 7, ..Options::default() }
    }

    fn start(&self, directory: TempDir, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        self.start_with(self.options(), directory, clock)
    }

    fn start_with(&self, options: Options, directory: TempDir, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        let store: Arc<dyn Store> = Arc::new(Embedded::open(directory.path(), options, clock).unwrap());
        let mut open = self.open.lock().unwrap();
        open.retain(|_, (store, _)| store.strong_count() > 0);
        open.insert(address(&store), (Arc::downgrade(&store), directory));
        store
    }
}

fn address(store: &Arc<dyn Store>) -> usize {
    Arc::as_ptr(store).cast::<()>() as usize
}

impl Harness for Directories {
    fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        self.start(tempfile::tempdir().unwrap(), clock)
    }

    fn open_with_room_for_records(
        &self,
        clock: Arc<ManualClock>,
        bytes_max: usize,
    ) -> Option<Arc<dyn Store>> {
        let options = Options { kv_bytes_max: bytes_max, ..self.options() };
        Some(self.start_with(options, tempfile::tempdir().unwrap(), clock))
    }

    fn reopen(&self, store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Option<Arc<dyn Store>> {
        let (weak, directory) = self.open.lock().unwrap().remove(&address(&store)).unwrap();
        drop(weak);
        assert_eq!(Arc::strong_count(&store), 1, "a test still holds the store");
        drop(store);
        Some(self.start(directory, clock))
    }
}

mod smallest_segments_for_the_largest_item {
    use super::*;
    // One harness for each case: a static harness would never remove its directories.
    towline_conformance::conformance_tests!(Directories::new(9 << 20));
}

/// Segments are so small that nearly every step rotates and collects.
#[test]
fn random_histories_in_tiny_segments() {
    let harness = Directories::new(64 << 10);
    towline_conformance::suite::run("model::random_histories_agree_with_the_reference_store", &harness);
}
