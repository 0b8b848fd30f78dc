//! Runs one workload many times, each time with a power loss at another disk operation and of another kind.

use crate::disk::{Crash, Fault, SimDisk};
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

/// Crashes the creation of a store at every disk operation. Returns the number of runs.
pub fn run_creation(seed: u64) -> Result<u64, Failure> {
    let operations = World::new(seed, None)?.disk.operations();
    let mut runs = 0;
    for at in 1..=operations {
        for how in Crash::POWER {
            let disk = SimDisk::default();
            disk.set_fault(at, Fault::PowerOff);
            let mut world = World::on_disk(disk, seed, None);
            // It fails, unless the power goes off after the creation.
            let _ = world.try_open();
            let describe = |failure: Failure| {
                Failure(format!("power off at operation {at} of the creation, {how:?}: {}", failure.0))
            };
            world.restart(how).map_err(describe)?;
            world.call(0, crate::workload::create_queues()).map_err(describe)?;
            world.observe().map_err(describe)?;
            world.drain().map_err(describe)?;
            runs += 1;
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_embedded::plant::Bug;

    #[test]
    fn a_crash_during_the_creation_leaves_a_directory_that_opens() {
        for seed in 0..5 {
            if let Err(failure) = run_creation(seed) {
                panic!("seed {seed}: {}", failure.0);
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_back_across_a_restart_does_not_stop_the_time() {
        for seed in 0..20 {
            if let Err(failure) = crate::trial::run(seed, 400, None) {
                panic!("seed {seed}: {}", failure.0);
            }
        }
        let caught = crate::trial::catch(Bug::TimeStandsStill, 0..50, 400);
        assert!(caught.is_some(), "the checker does not see a store whose time stands still");
    }
}
