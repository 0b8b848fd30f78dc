//! Runs one workload many times, each time with a power loss at another disk operation and of another kind.

use crate::disk::{Crash, Fault};
use crate::world::{Failure, World};

/// Runs a workload that syncs, rotates segments, collects and closes, up to a number of disk operations.
fn workload(world: &mut World, operations: u64) -> Result<(), Failure> {
    let start = world.disk.operations();
    let before = world.restarts;
    while world.disk.operations() - start < operations && world.restarts == before {
        world.step_without_faults()?;
    }
    Ok(())
}

/// Crashes the workload at every disk operation. Returns the number of runs.
pub fn run(seed: u64, operations: u64) -> Result<u64, Failure> {
    let mut runs = 0;
    for at in 1..=operations {
        for how in Crash::POWER {
            let mut world = World::new(seed, None)?;
            let start = world.disk.operations();
            world.disk.set_fault(start + at, Fault::PowerOff);
            let describe =
                |failure: Failure| Failure(format!("power off at operation {at}, {how:?}: {}", failure.0));
            world.set_power_off_crash(how);
            workload(&mut world, operations).map_err(describe)?;
            world.restart(how).map_err(describe)?;
            world.observe().map_err(describe)?;
            world.drain().map_err(describe)?;
            runs += 1;
        }
    }
    Ok(runs)
}
