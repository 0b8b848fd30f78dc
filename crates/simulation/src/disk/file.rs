//! A file on the simulated disk: its durable content, its current content, and the changes between the two.

use super::{Fault, SimDisk, power_went_off};
use std::io;
use towline_embedded::disk::DiskFile;

/// Sectors of one write reach the disk in any order.
pub(super) const SECTOR_BYTES: usize = 512;

#[derive(Debug, Clone)]
pub(super) enum FileChange {
    Write { offset: u64, bytes: Vec<u8> },
    Resize { size: u64 },
}

#[derive(Debug, Default)]
pub(super) struct Inode {
    pub durable: Vec<u8>,
    pub current: Vec<u8>,
    pub pending: Vec<FileChange>,
}

#[derive(Debug)]
pub(super) struct SimFile {
    pub disk: SimDisk,
    pub inode: usize,
    pub generation: u64,
}

pub(super) fn apply(content: &mut Vec<u8>, change: &FileChange) {
    match change {
        FileChange::Write { offset, bytes } => {
            let start = *offset as usize;
            if content.len() < start + bytes.len() {
                content.resize(start + bytes.len(), 0);
            }
            content[start..start + bytes.len()].copy_from_slice(bytes);
        }
        FileChange::Resize { size } => {
            if content.len() < *size as usize {
                content.resize(*size as usize, 0);
            }
        }
    }
}

/// Splits a write into sectors.
pub(super) fn sectors(change: &FileChange) -> Vec<FileChange> {
    match change {
        FileChange::Resize { .. } => vec![change.clone()],
        FileChange::Write { offset, bytes } => {
            let mut pieces = Vec::new();
            let mut at = 0;
            while at < bytes.len() {
                let position = *offset as usize + at;
                let length = (SECTOR_BYTES - position % SECTOR_BYTES).min(bytes.len() - at);
                pieces.push(FileChange::Write {
                    offset: position as u64,
                    bytes: bytes[at..at + length].to_vec(),
                });
                at += length;
            }
            pieces
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.lock_state();
        if state.generation != self.generation || state.off {
            return Err(io::Error::other("this file handle is from before the crash"));
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
            return Err(io::Error::other("this file handle is from before the crash"));
        }
        let fault = state.step()?;
        let length = if fault == Some(Fault::Short) { (buffer.len() / 2).max(1) } else { buffer.len() };
        if fault == Some(Fault::Short) {
            // The next write fails too, because a short write that the store can complete is no fault.
            let next = state.operations + 1;
            state.fault = Some((next, Fault::Full));
        }
        let change = FileChange::Write { offset, bytes: buffer[..length].to_vec() };
        let inode = &mut state.inodes[self.inode];
        apply(&mut inode.current, &change);
        inode.pending.push(change);
        if fault == Some(Fault::PowerOff) {
            return Err(power_went_off());
        }
        Ok(length)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock_state();
        if state.generation != self.generation {
            return Err(io::Error::other("this file handle is from before the crash"));
        }
        let fault = match state.step() {
            Ok(fault) => fault,
            Err(error) => {
                // As on Linux: after a failed sync the pages count as clean and are never written again.
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
        if fault == Some(Fault::PowerOff) { Err(power_went_off()) } else { Ok(()) }
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
        let change = FileChange::Resize { size };
        let inode = &mut state.inodes[self.inode];
        apply(&mut inode.current, &change);
        inode.pending.push(change);
        if fault.is_some() { Err(power_went_off()) } else { Ok(()) }
    }
}
