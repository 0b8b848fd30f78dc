//! The real disk with faults: a test can delay syncs, make them fail, and make the disk full.
//!
//! A failed sync reports its failure once. The bytes are lost although they can still be read, and the next sync succeeds.
//! Operating systems behave in the same way.

use super::*;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;
use towline_embedded::disk::{Disk, DiskFile, RealDisk};

/// What happens at one sync.
#[derive(Debug, Clone, Copy)]
pub enum Sync {
    Fails,
    /// Waits until the test releases it.
    Delayed,
    DelayedThenFails,
}

/// Which bytes a power cut loses.
#[derive(Debug, Clone, Copy)]
pub enum Loss {
    Nothing,
    /// The bytes of failed syncs.
    Failed,
    /// All bytes without a successful sync.
    Unsynced,
}

/// How long a test waits for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(10);
const A_MOMENT: Duration = Duration::from_millis(150);

#[derive(Debug, Default)]
pub struct Faults {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    full: bool,
    bytes_read: u64,
    writes: u64,
    unsynced: Vec<Written>,
    lost: Vec<Written>,
    /// The file with planned syncs, and what happens at each.
    file: String,
    plan: Vec<Sync>,
    begun: usize,
    released: bool,
    released_first: bool,
}

#[derive(Debug, Clone)]
struct Written {
    nth: u64,
    file: String,
    offset: u64,
    bytes: Vec<u8>,
}

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn wait(&self, patience: Duration, holds: impl Fn(&State) -> bool) -> bool {
        let (_state, waited) =
            self.changed.wait_timeout_while(self.state(), patience, |state| !holds(state)).unwrap();
        !waited.timed_out()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Plans the next syncs of a file, in the order in which they begin.
    pub fn plan(&self, file: &str, plan: &[Sync]) {
        self.change(|state| {
            (state.file, state.plan, state.begun) = (file.to_owned(), plan.to_vec(), 0);
        });
    }

    #[track_caller]
    pub fn wait_begun(&self, count: usize) {
        assert!(self.wait(PATIENCE, |state| state.begun >= count), "sync {count} never began");
    }

    /// Gives a sync time to begin. It may also wait for a delayed sync, so this does not fail.
    pub fn let_begin(&self, count: usize) {
        self.wait(A_MOMENT, |state| state.begun >= count);
    }

    #[track_caller]
    pub fn wait_written(&self, what: &[u8]) {
        let holds = |written: &Written| written.bytes.windows(what.len()).any(|window| window == what);
        assert!(self.wait(PATIENCE, |state| state.unsynced.iter().any(holds)), "never written");
    }

    pub fn release_first(&self) {
        self.change(|state| state.released_first = true);
    }

    pub fn release(&self) {
        self.change(|state| state.released = true);
    }

    pub fn set_full(&self, full: bool) {
        self.change(|state| state.full = full);
    }

    pub fn bytes_read(&self) -> u64 {
        self.state().bytes_read
    }

    /// The number of writes so far, to all files.
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Removes lost bytes from a copy of the directory.
    pub fn lose(&self, path: &Path, loss: Loss) {
        let state = self.state();
        let lost = match loss {
            Loss::Nothing => Vec::new(),
            Loss::Failed => state.lost.clone(),
            Loss::Unsynced => [&state.lost[..], &state.unsynced].concat(),
        };
        for Written { file, offset, bytes, .. } in lost {
            // The store may have removed the file.
            if let Ok(file) = std::fs::OpenOptions::new().write(true).open(path.join(file)) {
                file.write_all_at(&vec![0; bytes.len()], offset).unwrap();
            }
        }
    }
}

/// A store with small segments and one queue named `jobs`, and the faults of its disk.
#[track_caller]
pub fn new_faulty_store(path: &Path) -> (Arc<Embedded>, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let store = open_faulty(path, 64 << 10, &faults).expect("the store opens");
    run(&store, create("jobs")).expect("the queue is created");
    (Arc::new(store), faults)
}

pub fn open_faulty(path: &Path, segment_bytes: u64, faults: &Arc<Faults>) -> Result<Embedded, OpenError> {
    open_faulty_at(path, segment_bytes, faults, clock())
}

pub fn open_faulty_at(
    path: &Path,
    segment_bytes: u64,
    faults: &Arc<Faults>,
    clock: Arc<ManualClock>,
) -> Result<Embedded, OpenError> {
    let disk = FaultyDisk { real: RealDisk::new(path).unwrap(), faults: faults.clone() };
    // Let groups overlap as under load, and avoid syncs that the test has not planned.
    let options = Options { alone_bytes: 0, fill: false, ..options(segment_bytes) };
    Embedded::open_on(Arc::new(disk), options, clock)
}

#[derive(Debug)]
struct FaultyDisk {
    real: RealDisk,
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct FaultyFile {
    real: Arc<dyn DiskFile>,
    name: String,
    faults: Arc<Faults>,
}

impl FaultyDisk {
    fn file(&self, name: &str, real: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FaultyFile { real, name: name.to_owned(), faults: self.faults.clone() })
    }
}

impl Disk for FaultyDisk {
    fn directory(&self) -> String {
        self.real.directory()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn std::any::Any + Send + std::marker::Sync>>> {
        self.real.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.real.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(name, self.real.open(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(name, self.real.create(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.real.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.real.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.real.sync_directory()
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.real.read_at(buffer, offset)?;
        self.faults.change(|state| state.bytes_read += count as u64);
        Ok(count)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        let count = self.real.write_at(buffer, offset)?;
        self.faults.change(|state| {
            let (nth, file, bytes) = (state.writes, self.name.clone(), buffer[..count].to_vec());
            state.writes += 1;
            state.unsynced.push(Written { nth, file, offset, bytes });
        });
        Ok(count)
    }

    /// Does not sync the real file: tests never cut the power.
    fn sync(&self) -> io::Result<()> {
        let mut state = self.faults.state();
        let planned = state.file == self.name;
        let plan = state.plan.get(state.begun).copied().filter(|_| planned);
        state.begun += usize::from(planned);
        let (nth, before) = (state.begun, state.writes);
        self.faults.changed.notify_all();
        if matches!(plan, Some(Sync::Delayed | Sync::DelayedThenFails)) {
            let held = |state: &mut State| !(state.released || state.released_first && nth == 1);
            state = self.faults.changed.wait_timeout_while(state, PATIENCE, held).unwrap().0;
        }
        let all = std::mem::take(&mut state.unsynced);
        let (done, left) = all.into_iter().partition(|one| one.file == self.name && one.nth < before);
        state.unsynced = left;
        if matches!(plan, Some(Sync::Fails | Sync::DelayedThenFails)) {
            state.lost.extend::<Vec<Written>>(done);
            return Err(io::Error::other("the disk is gone"));
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        self.real.size()
    }

    fn reserve(&self, size: u64) -> io::Result<()> {
        if self.faults.state().full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.real.reserve(size)
    }
}
