//! One workload, with the power going at each of its disk operations, in each way it can go.

use crate::disk::{Crash, Fault};
use crate::world::{Broken, World};

/// A fixed workload that syncs, rotates, collects and closes.
fn workload(world: &mut World, operations: u64) -> Result<(), Broken> {
    let start = world.disk.operations();
    let before = world.restarts;
    while world.disk.operations() - start < operations && world.restarts == before {
        world.calm_step()?;
    }
    Ok(())
}

/// Crashes at every disk operation; how many runs there were.
pub fn run(seed: u64, operations: u64) -> Result<u64, Broken> {
    let mut runs = 0;
    for at in 1..=operations {
        for how in Crash::POWER {
            let mut world = World::new(seed, None)?;
            let start = world.disk.operations();
            world.disk.set_fault(start + at, Fault::PowerOff);
            let tell = |broken: Broken| Broken(format!("power off at operation {at}, {how:?}: {}", broken.0));
            world.power_off_mode(how);
            workload(&mut world, operations).map_err(tell)?;
            world.restart(how).map_err(tell)?;
            world.observe().map_err(tell)?;
            world.drain().map_err(tell)?;
            runs += 1;
        }
    }
    Ok(runs)
}
