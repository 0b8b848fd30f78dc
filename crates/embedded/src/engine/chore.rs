//! Chores: work on files that the writer thread leaves to the chore thread.

use crate::log::disk::{Disk, write_full};
use crate::log::segment::{self, Segment};
use std::io;
use std::sync::{Arc, Weak};

#[derive(Debug)]
pub enum Chore {
    /// Write the sidecar of a sealed segment.
    Sidecar { number: u32, bytes: Vec<u8> },
    /// Write zeros into a segment ahead of the log.
    Fill { segment: Weak<Segment>, size: u64 },
    /// Remove a segment and its sidecar.
    Remove { segment: Arc<Segment> },
}

impl Chore {
    /// Does the work. A failure does not harm the store: a sidecar is a cache, and opening removes files left over.
    pub fn run(self, disk: &dyn Disk) -> io::Result<()> {
        match self {
            Chore::Sidecar { number, bytes } => {
                let name = segment::sidecar_name(number);
                let temporary = format!("{name}.new");
                let file = disk.create(&temporary)?;
                write_full(&*file, &bytes, 0)?;
                file.sync()?;
                disk.rename(&temporary, &name)
            }
            Chore::Fill { segment, size } => Segment::fill(&segment, size),
            Chore::Remove { segment } => {
                let sidecar = segment::sidecar_name(segment.number);
                disk.remove(&segment::file_name(segment.number))?;
                match disk.remove(&sidecar) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    result => result,
                }
            }
        }
    }
}
