//! A disk that keeps its word and no more: what was synced stays, what was not may stay, vanish or tear.
//!
//! Everything is in memory and follows from a seed. Faults are set before an operation and happen at it.

use fastrand::Rng;
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use towline_embedded::disk::{Disk, DiskFile};

/// Writes reach the disk in pieces of this size, in any order.
const SECTOR: usize = 512;

/// What a loss of power leaves of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    Nothing,
    Everything,
    /// The first so many writes.
    Prefix,
    /// The first so many, and some sectors of the next.
    Torn,
    /// Any sectors of any writes.
    Subset,
    /// The process died, the machine did not.
    ProcessOnly,
}

impl Crash {
    pub const POWER: [Crash; 5] =
        [Crash::Nothing, Crash::Everything, Crash::Prefix, Crash::Torn, Crash::Subset];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails and does nothing.
    Io,
    /// There is no room.
    Full,
    /// A write stops half way; the rest fails.
    Short,
    /// Power goes at this operation: it happens, and nothing after it does.
    PowerOff,
}

#[derive(Debug, Clone)]
enum Pending {
    Write { offset: u64, bytes: Vec<u8> },
    Resize { size: u64 },
}

#[derive(Debug, Default)]
struct Inode {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: Vec<Pending>,
}

#[derive(Debug, Clone)]
enum Entry {
    Create { name: String, inode: usize },
    Rename { from: String, to: String },
    Remove { name: String },
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    durable: BTreeMap<String, usize>,
    current: BTreeMap<String, usize>,
    pending: Vec<Entry>,
    operations: u64,
    fault: Option<(u64, Fault)>,
    off: bool,
    /// Bytes all files may take together.
    capacity: Option<u64>,
    no_directory_sync: bool,
    generation: u64,
}

/// Clones share the disk. Files opened before a crash are dead after it.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: usize,
    generation: u64,
}

fn apply(content: &mut Vec<u8>, change: &Pending) {
    match change {
        Pending::Write { offset, bytes } => {
            let start = *offset as usize;
            if content.len() < start + bytes.len() {
                content.resize(start + bytes.len(), 0);
            }
            content[start..start + bytes.len()].copy_from_slice(bytes);
        }
        Pending::Resize { size } => {
            if content.len() < *size as usize {
                content.resize(*size as usize, 0);
            }
        }
    }
}

/// A write in its sectors.
fn sectors(change: &Pending) -> Vec<Pending> {
    match change {
        Pending::Resize { .. } => vec![change.clone()],
        Pending::Write { offset, bytes } => {
            let mut pieces = Vec::new();
            let mut at = 0;
            while at < bytes.len() {
                let position = *offset as usize + at;
                let length = (SECTOR - position % SECTOR).min(bytes.len() - at);
                pieces
                    .push(Pending::Write { offset: position as u64, bytes: bytes[at..at + length].to_vec() });
                at += length;
            }
            pieces
        }
    }
}

impl SimDisk {
    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many operations that change something were done.
    pub fn operations(&self) -> u64 {
        self.lock_state().operations
    }

    /// Makes the operation with this number (counted from the beginning) fail.
    pub fn set_fault(&self, at: u64, fault: Fault) {
        self.lock_state().fault = Some((at, fault));
    }

    pub fn clear_faults(&self) {
        let mut state = self.lock_state();
        state.fault = None;
        state.capacity = None;
    }

    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock_state().capacity = bytes;
    }

    pub fn used(&self) -> u64 {
        let state = self.lock_state();
        state.current.values().map(|&inode| state.inodes[inode].current.len() as u64).sum()
    }

    pub fn is_off(&self) -> bool {
        self.lock_state().off
    }

    /// Turns the power off and on again.
    pub fn crash(&self, how: Crash, rng: &mut Rng) {
        let mut state = self.lock_state();
        state.off = false;
        state.fault = None;
        state.capacity = None;
        state.generation += 1;
        if how == Crash::ProcessOnly {
            return;
        }
        let entries = std::mem::take(&mut state.pending);
        let kept = match how {
            Crash::Nothing => 0,
            Crash::Everything => entries.len(),
            _ => rng.usize(0..=entries.len()),
        };
        for entry in &entries[..kept] {
            let state = &mut *state;
            apply_entry(&mut state.durable, entry);
        }
        for inode in &mut state.inodes {
            let pending = std::mem::take(&mut inode.pending);
            let whole = match how {
                Crash::Nothing | Crash::Subset => 0,
                Crash::Everything => pending.len(),
                _ => rng.usize(0..=pending.len()),
            };
            for change in &pending[..whole] {
                apply(&mut inode.durable, change);
            }
            let torn = match how {
                Crash::Torn => pending.get(whole..(whole + 1).min(pending.len())).unwrap_or_default(),
                Crash::Subset => &pending[..],
                _ => &[],
            };
            for change in torn {
                for piece in sectors(change) {
                    if rng.bool() {
                        apply(&mut inode.durable, &piece);
                    }
                }
            }
            inode.current = inode.durable.clone();
        }
        state.current = state.durable.clone();
    }

    /// Names and sizes of the files.
    pub fn files(&self) -> Vec<(String, u64)> {
        let state = self.lock_state();
        let size = |inode: &usize| state.inodes[*inode].current.len() as u64;
        state.current.iter().map(|(name, inode)| (name.clone(), size(inode))).collect()
    }

    pub fn flip(&self, name: &str, bit: u64) {
        let mut state = self.lock_state();
        let Some(&inode) = state.current.get(name) else { return };
        let (byte, mask) = ((bit / 8) as usize, 1u8 << (bit % 8));
        let inode = &mut state.inodes[inode];
        for content in [&mut inode.durable, &mut inode.current] {
            if let Some(at) = content.get_mut(byte) {
                *at ^= mask;
            }
        }
    }

    /// A disk of its own with the same durable content.
    pub fn copy(&self) -> SimDisk {
        let state = self.lock_state();
        let copied = State {
            inodes: state
                .inodes
                .iter()
                .map(|inode| Inode {
                    durable: inode.durable.clone(),
                    current: inode.durable.clone(),
                    pending: Vec::new(),
                })
                .collect(),
            durable: state.durable.clone(),
            current: state.durable.clone(),
            ..State::default()
        };
        SimDisk(Arc::new(Mutex::new(copied)))
    }

    pub fn set_no_directory_sync(&self) {
        self.lock_state().no_directory_sync = true;
    }
}

fn apply_entry(names: &mut BTreeMap<String, usize>, entry: &Entry) {
    match entry {
        Entry::Create { name, inode } => drop(names.insert(name.clone(), *inode)),
        Entry::Rename { from, to } => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
        Entry::Remove { name } => drop(names.remove(name)),
    }
}

impl State {
    /// Counts an operation; the fault that is due at it, if any. Power off is told after the operation took effect.
    fn step(&mut self) -> io::Result<Option<Fault>> {
        if self.off {
            return Err(io::Error::other("the power is off"));
        }
        self.operations += 1;
        match self.fault {
            Some((at, fault)) if at == self.operations => {
                self.fault = None;
                match fault {
                    Fault::Io => Err(io::Error::other("simulated I/O error")),
                    Fault::Full => Err(io::ErrorKind::StorageFull.into()),
                    Fault::Short => Ok(Some(Fault::Short)),
                    Fault::PowerOff => {
                        self.off = true;
                        Ok(Some(Fault::PowerOff))
                    }
                }
            }
            _ => Ok(None),
        }
    }

    fn entry(&mut self, entry: Entry) {
        apply_entry(&mut self.current, &entry);
        self.pending.push(entry);
    }
}

fn off() -> io::Error {
    io::Error::other("the power went off")
}

impl Disk for SimDisk {
    fn directory(&self) -> String {
        "simulated".to_owned()
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        Ok(Some(Box::new(())))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock_state().current.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.lock_state();
        let inode = *state.current.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { disk: self.clone(), inode, generation: state.generation }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock_state();
        let fault = state.step()?;
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.entry(Entry::Create { name: name.to_owned(), inode });
        let generation = state.generation;
        if fault.is_some() {
            return Err(off());
        }
        Ok(Arc::new(SimFile { disk: self.clone(), inode, generation }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock_state();
        let fault = state.step()?;
        state.entry(Entry::Rename { from: from.to_owned(), to: to.to_owned() });
        if fault.is_some() { Err(off()) } else { Ok(()) }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock_state();
        if !state.current.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let fault = state.step()?;
        state.entry(Entry::Remove { name: name.to_owned() });
        if fault.is_some() { Err(off()) } else { Ok(()) }
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.lock_state();
        let fault = state.step()?;
        if !state.no_directory_sync {
            for entry in std::mem::take(&mut state.pending) {
                apply_entry(&mut state.durable, &entry);
            }
        }
        if fault.is_some() { Err(off()) } else { Ok(()) }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.lock_state();
        if state.generation != self.generation || state.off {
            return Err(io::Error::other("a file of before the crash"));
        }
        let content = &state.inodes[self.inode].current;
        let start = (offset as usize).min(content.len());
        let length = buffer.len().min(content.len() - start);
        buffer[..length].copy_from_slice(&content[start..start + length]);
        Ok(length)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.lock_state();
        if state.generation != self.generation {
            return Err(io::Error::other("a file of before the crash"));
        }
        let fault = state.step()?;
        let length = if fault == Some(Fault::Short) { (buffer.len() / 2).max(1) } else { buffer.len() };
        if fault == Some(Fault::Short) {
            // What is left of it fails: a short write that can be completed is no fault.
            let next = state.operations + 1;
            state.fault = Some((next, Fault::Full));
        }
        let change = Pending::Write { offset, bytes: buffer[..length].to_vec() };
        let inode = &mut state.inodes[self.inode];
        apply(&mut inode.current, &change);
        inode.pending.push(change);
        if fault == Some(Fault::PowerOff) {
            return Err(off());
        }
        Ok(length)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock_state();
        if state.generation != self.generation {
            return Err(io::Error::other("a file of before the crash"));
        }
        let fault = match state.step() {
            Ok(fault) => fault,
            Err(error) => {
                // As on a real system: pages that could not be written are called clean and never tried again.
                if !state.off {
                    state.inodes[self.inode].pending.clear();
                }
                return Err(error);
            }
        };
        let inode = &mut state.inodes[self.inode];
        for change in std::mem::take(&mut inode.pending) {
            apply(&mut inode.durable, &change);
        }
        if fault == Some(Fault::PowerOff) { Err(off()) } else { Ok(()) }
    }

    fn size(&self) -> io::Result<u64> {
        let state = self.disk.lock_state();
        Ok(state.inodes[self.inode].current.len() as u64)
    }

    fn reserve(&self, size: u64) -> io::Result<()> {
        let used = self.disk.used();
        let mut state = self.disk.lock_state();
        let fault = state.step()?;
        if state.capacity.is_some_and(|capacity| used + size > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let change = Pending::Resize { size };
        let inode = &mut state.inodes[self.inode];
        apply(&mut inode.current, &change);
        inode.pending.push(change);
        if fault.is_some() { Err(off()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
        let file = disk.open(name).ok()?;
        let mut bytes = vec![0; file.size().ok()? as usize];
        file.read_at(&mut bytes, 0).ok()?;
        Some(bytes)
    }

    #[test]
    fn a_crash_takes_what_was_not_synced() {
        let (disk, mut rng) = (SimDisk::default(), Rng::with_seed(1));
        let file = disk.create("a").unwrap();
        file.write_at(b"kept", 0).unwrap();
        file.sync().unwrap();
        disk.sync_directory().unwrap();
        file.write_at(b"lost", 0).unwrap();
        assert_eq!(content(&disk, "a").unwrap(), b"lost");
        disk.crash(Crash::Nothing, &mut rng);
        assert_eq!(content(&disk, "a").unwrap(), b"kept");
        assert!(file.write_at(b"late", 0).is_err(), "a file of before the crash is dead");
    }

    #[test]
    fn a_file_whose_directory_was_not_synced_is_gone() {
        let (disk, mut rng) = (SimDisk::default(), Rng::with_seed(1));
        let file = disk.create("a").unwrap();
        file.write_at(b"x", 0).unwrap();
        file.sync().unwrap();
        disk.crash(Crash::Nothing, &mut rng);
        assert!(disk.open("a").is_err());
    }

    #[test]
    fn a_torn_write_leaves_whole_sectors() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let (disk, mut rng) = (SimDisk::default(), Rng::with_seed(seed));
            let file = disk.create("a").unwrap();
            file.reserve(2048).unwrap();
            file.sync().unwrap();
            disk.sync_directory().unwrap();
            file.write_at(&[1; 2048], 0).unwrap();
            disk.crash(Crash::Subset, &mut rng);
            let bytes = content(&disk, "a").unwrap();
            for sector in bytes.chunks(SECTOR) {
                assert!(sector.iter().all(|&byte| byte == sector[0]));
            }
            seen.insert(bytes.iter().map(|&byte| usize::from(byte)).sum::<usize>());
        }
        assert!(seen.len() > 3, "{seen:?}");
    }

    #[test]
    fn a_failed_sync_is_not_made_good_by_another() {
        let (disk, mut rng) = (SimDisk::default(), Rng::with_seed(1));
        let file = disk.create("a").unwrap();
        disk.sync_directory().unwrap();
        file.write_at(b"x", 0).unwrap();
        disk.set_fault(disk.operations() + 1, Fault::Io);
        assert!(file.sync().is_err());
        file.sync().unwrap();
        disk.crash(Crash::Everything, &mut rng);
        assert_eq!(content(&disk, "a").unwrap(), b"");
    }
}
