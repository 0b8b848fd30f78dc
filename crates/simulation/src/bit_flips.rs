//! Flips single bits in stores. The store must detect the damage, or the flip must not matter: it never serves it.

use crate::world::{Failure, World};
use fastrand::Rng;
use towline_conformance::invariants::Checker;
use towline_embedded::plant::Bug;

#[derive(Debug, Default, Clone, Copy)]
pub struct FlipCounts {
    /// The store reported the damage when it opened.
    pub refused: u64,
    /// The store opened, and a read reported the damage.
    pub read_refused: u64,
    /// The damage is in unused bytes or in a cache.
    pub harmless: u64,
}

/// Builds a store, then opens copies of it with one bit flipped in each.
pub fn run(seed: u64, flips: u64, bug: Option<Bug>) -> Result<FlipCounts, Failure> {
    let mut world = World::new(seed, bug)?;
    for _ in 0..600 {
        world.step_without_faults()?;
    }
    let expected = world.close_cleanly()?;
    let mut rng = Rng::with_seed(seed ^ 0xf11b);
    let mut counts = FlipCounts::default();
    for _ in 0..flips {
        let disk = world.disk.copy();
        let files = disk.files();
        let (name, size) = &files[rng.usize(0..files.len())];
        let bit = rng.u64(0..size * 8);
        disk.flip_bit(name, bit);
        let mut damaged = World::on_disk(disk, seed, bug);
        if damaged.try_open().is_err() {
            counts.refused += 1;
            continue;
        }
        match damaged.snapshot() {
            Err(_) => counts.read_refused += 1,
            Ok(found) => {
                let mut checker = Checker::new();
                checker.unchanged(&expected, &found);
                if let Some(violation) = checker.violations().first() {
                    return Err(Failure(format!("bit {bit} of {name} was served: {violation}")));
                }
                counts.harmless += 1;
            }
        }
    }
    Ok(counts)
}

/// Runs bit flips against a planted bug that they can detect. Returns the failure, if there is one.
pub fn catch(bug: Bug, seed: u64) -> Option<Failure> {
    if !matches!(bug, Bug::NoFrameCheck | Bug::NoRecordCheck | Bug::CutAtDamage) {
        return None;
    }
    match std::panic::catch_unwind(|| run(seed, 60, Some(bug))) {
        Ok(Ok(_)) => None,
        Ok(Err(failure)) => Some(failure),
        Err(_) => Some(Failure("the store panicked".to_owned())),
    }
}
