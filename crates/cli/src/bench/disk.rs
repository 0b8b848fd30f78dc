//! The disk without a queue: what one durable write costs.

use super::clock;
use anyhow::Context;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const WRITES: usize = 60;
const WRITE_BYTES: usize = 4096;

/// Median time of fdatasync after appending 4 KiB.
pub fn sync_time(directory: &Path) -> anyhow::Result<Duration> {
    let path = directory.join("sync-probe");
    let times = times(&path).with_context(|| format!("cannot measure the disk with {}", path.display()));
    let _ = std::fs::remove_file(&path);
    let mut times = times?;
    times.sort_unstable();
    Ok(times[WRITES / 2])
}

fn times(path: &Path) -> std::io::Result<Vec<Duration>> {
    let mut file = File::create(path)?;
    let block = super::payload::text(WRITE_BYTES);
    let mut time = || {
        file.write_all(&block)?;
        let start = clock::now();
        file.sync_data()?;
        Ok(clock::since(start))
    };
    (0..WRITES).map(|_| time()).collect()
}
