//! Single damaged bits: found out, or in a place that does not matter; never served.

use crate::world::{Broken, World};
use fastrand::Rng;
use towline_conformance::invariants::Checker;
use towline_embedded::plant::Bug;

#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    /// Opening refused, and said what is damaged.
    pub refused: u64,
    /// Opened, and a read was refused.
    pub read_refused: u64,
    /// The damage is in bytes that mean nothing any more, or in a cache.
    pub harmless: u64,
}

/// Builds a store, then opens copies of it with one bit flipped in each.
pub fn run(seed: u64, flips: u64, bug: Option<Bug>) -> Result<Tally, Broken> {
    let mut world = World::new(seed, bug)?;
    for _ in 0..600 {
        world.calm_step()?;
    }
    let expected = world.shut_down()?;
    let mut rng = Rng::with_seed(seed ^ 0xf11b);
    let mut tally = Tally::default();
    for _ in 0..flips {
        let disk = world.disk.copy();
        let files = disk.files();
        let (name, size) = &files[rng.usize(0..files.len())];
        let bit = rng.u64(0..size * 8);
        disk.flip(name, bit);
        let mut damaged = World::on(disk, seed, bug);
        if damaged.try_open().is_err() {
            tally.refused += 1;
            continue;
        }
        match damaged.snapshot() {
            Err(_) => tally.read_refused += 1,
            Ok(found) => {
                let mut checker = Checker::new();
                checker.unchanged(&expected, &found);
                if let Some(violation) = checker.violations().first() {
                    return Err(Broken(format!("bit {bit} of {name} was served: {violation}")));
                }
                tally.harmless += 1;
            }
        }
    }
    Ok(tally)
}

/// Whether flips show a planted bug.
pub fn catch(bug: Bug, seed: u64) -> Option<Broken> {
    if !matches!(bug, Bug::NoFrameCheck | Bug::NoRecordCheck | Bug::CutAtDamage) {
        return None;
    }
    match std::panic::catch_unwind(|| run(seed, 60, Some(bug))) {
        Ok(Ok(_)) => None,
        Ok(Err(broken)) => Some(broken),
        Err(_) => Some(Broken("the store panicked".to_owned())),
    }
}
