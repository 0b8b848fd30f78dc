//! Many worlds, and planted bugs.

use crate::world::{Broken, World};
use towline_embedded::plant::Bug;

/// Runs one world from a seed. The error says what was broken and at which step.
pub fn run(seed: u64, steps: u64, bug: Option<Bug>) -> Result<(), Broken> {
    let mut world = World::new(seed, bug)?;
    for step in 0..steps {
        world.step().map_err(|broken| Broken(format!("at step {step}: {}", broken.0)))?;
    }
    world.observe()?;
    world.drain()
}

/// The first seed that catches a planted bug, and how.
pub fn catch(bug: Bug, seeds: impl Iterator<Item = u64>, steps: u64) -> Option<(u64, Broken)> {
    for seed in seeds {
        // A planted bug may well run into an assertion of the store; that is being caught too.
        let outcome = std::panic::catch_unwind(|| run(seed, steps, Some(bug)));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(broken)) => return Some((seed, broken)),
            Err(_) => return Some((seed, Broken("the store panicked".to_owned()))),
        }
        if let Some(broken) = crate::flips::catch(bug, seed) {
            return Some((seed, broken));
        }
    }
    None
}
