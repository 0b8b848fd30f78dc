//! The contract of a store, kept by the embedded one: with segments of the usual size, and with the smallest that
//! hold the largest item.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use tempfile::TempDir;
use towline_embedded::{Embedded, Options};
use towline_store::conformance::Harness;
use towline_store::{ManualClock, Store};

struct Directories {
    segment_bytes: u64,
    open: Mutex<HashMap<usize, TempDir>>,
}

impl Directories {
    fn new(segment_bytes: u64) -> Directories {
        Directories {
            segment_bytes,
            open: Mutex::default(),
        }
    }

    fn start(&self, directory: TempDir, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        let options = Options {
            segment_bytes: self.segment_bytes,
            salt: 7,
            ..Options::default()
        };
        let store: Arc<dyn Store> = Arc::new(Embedded::open(directory.path(), options, clock).unwrap());
        self.open.lock().unwrap().insert(address(&store), directory);
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

    fn reopen(&self, store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Option<Arc<dyn Store>> {
        let directory = self.open.lock().unwrap().remove(&address(&store)).unwrap();
        assert_eq!(Arc::strong_count(&store), 1, "somebody still holds the store");
        drop(store);
        Some(self.start(directory, clock))
    }
}

mod usual_segments {
    use super::*;
    static HARNESS: LazyLock<Directories> = LazyLock::new(|| Directories::new(64 << 20));
    towline_store::conformance_tests!(*HARNESS);
}

mod small_segments {
    use super::*;
    static HARNESS: LazyLock<Directories> = LazyLock::new(|| Directories::new(9 << 20));
    towline_store::conformance_tests!(*HARNESS);
}
