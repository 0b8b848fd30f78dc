//! A simulated disk. Synced data survives a crash. Data that was not synced may survive, vanish or tear.
//!
//! The disk is in memory, and a seed determines its behaviour. A test sets a fault before the operation that fails.

use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use towline_embedded::disk::{Disk, DiskFile};

mod file;

use file::{Inode, SimFile, apply, sectors};

/// Which changes survive a crash although they were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    Nothing,
    Everything,
    /// The first few writes.
    Prefix,
    /// The first few writes and some sectors of the next one.
    Torn,
    /// Any sectors of any writes.
    Subset,
    /// All of them: the process crashed and the machine did not.
    ProcessOnly,
}

impl Crash {
    /// Every kind of power loss.
    pub const POWER: [Crash; 5] =
        [Crash::Nothing, Crash::Everything, Crash::Prefix, Crash::Torn, Crash::Subset];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails and does nothing.
    Io,
    /// The disk is full.
    Full,
    /// A write stops half way, and writing the rest fails.
    Short,
    /// The power goes off after this operation took effect.
    PowerOff,
}

#[derive(Debug, Clone)]
enum DirectoryChange {
    Create { name: String, inode: usize },
    Rename { from: String, to: String },
    Remove { name: String },
}

#[derive(Debug, Default)]
struct DiskState {
    inodes: Vec<Inode>,
    durable: BTreeMap<String, usize>,
    current: BTreeMap<String, usize>,
    pending: Vec<DirectoryChange>,
    operations: u64,
    fault: Option<(u64, Fault)>,
    off: bool,
    /// Maximum size of all files together, in bytes.
    capacity: Option<u64>,
    no_directory_sync: bool,
    generation: u64,
}

/// Clones share the disk. A file handle from before a crash fails after it.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(Arc<Mutex<DiskState>>);

impl SimDisk {
    fn lock_state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock()
    }

    /// The number of changing operations so far.
    pub fn operations(&self) -> u64 {
        self.lock_state().operations
    }

    /// Injects a fault into the operation with this number, counted from the start.
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

    /// Crashes the machine or the process, and starts it again.
    pub fn crash(&self, how: Crash, rng: &mut Rng) {
        let mut state = self.lock_state();
        state.off = false;
        state.fault = None;
        state.capacity = None;
        state.generation += 1;
        if how == Crash::ProcessOnly {
            return;
        }
        let changes = std::mem::take(&mut state.pending);
        let survivors = match how {
            Crash::Nothing => 0,
            Crash::Everything => changes.len(),
            _ => rng.usize(0..=changes.len()),
        };
        for change in &changes[..survivors] {
            let state = &mut *state;
            apply_directory_change(&mut state.durable, change);
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

    /// The names and sizes of all files.
    pub fn files(&self) -> Vec<(String, u64)> {
        let state = self.lock_state();
        let size = |inode: &usize| state.inodes[*inode].current.len() as u64;
        state.current.iter().map(|(name, inode)| (name.clone(), size(inode))).collect()
    }

    pub fn flip_bit(&self, name: &str, bit: u64) {
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

    /// A new disk with the same durable content.
    pub fn copy(&self) -> SimDisk {
        let state = self.lock_state();
        let copied = DiskState {
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
            ..DiskState::default()
        };
        SimDisk(Arc::new(Mutex::new(copied)))
    }

    pub fn set_no_directory_sync(&self) {
        self.lock_state().no_directory_sync = true;
    }
}

fn apply_directory_change(names: &mut BTreeMap<String, usize>, change: &DirectoryChange) {
    match change {
        DirectoryChange::Create { name, inode } => drop(names.insert(name.clone(), *inode)),
        DirectoryChange::Rename { from, to } => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
        DirectoryChange::Remove { name } => drop(names.remove(name)),
    }
}

impl DiskState {
    /// Counts an operation and returns or raises its fault. For a power loss the caller fails after the change.
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

    fn change_directory(&mut self, change: DirectoryChange) {
        apply_directory_change(&mut self.current, &change);
        self.pending.push(change);
    }
}

fn power_went_off() -> io::Error {
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
        state.change_directory(DirectoryChange::Create { name: name.to_owned(), inode });
        let generation = state.generation;
        if fault.is_some() {
            return Err(power_went_off());
        }
        Ok(Arc::new(SimFile { disk: self.clone(), inode, generation }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock_state();
        let fault = state.step()?;
        state.change_directory(DirectoryChange::Rename { from: from.to_owned(), to: to.to_owned() });
        if fault.is_some() { Err(power_went_off()) } else { Ok(()) }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock_state();
        if !state.current.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let fault = state.step()?;
        state.change_directory(DirectoryChange::Remove { name: name.to_owned() });
        if fault.is_some() { Err(power_went_off()) } else { Ok(()) }
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.lock_state();
        let fault = state.step()?;
        if !state.no_directory_sync {
            for change in std::mem::take(&mut state.pending) {
                apply_directory_change(&mut state.durable, &change);
            }
        }
        if fault.is_some() { Err(power_went_off()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
