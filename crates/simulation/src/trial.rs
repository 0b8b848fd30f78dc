//! Runs a world from a seed, with or without a planted bug.

use crate::world::{Failure, World};
use towline_embedded::plant::Bug;

/// Runs one world from a seed. The failure says what was wrong and at which step.
pub fn run(seed: u64, steps: u64, bug: Option<Bug>) -> Result<(), Failure> {
    let mut world = World::new(seed, bug)?;
    for step in 0..steps {
        world.step().map_err(|failure| Failure(format!("at step {step}: {}", failure.0)))?;
    }
    world.observe()?;
    world.drain()
}

/// The first seed that catches a planted bug, and the failure that it found.
pub fn catch(bug: Bug, seeds: impl Iterator<Item = u64>, steps: u64) -> Option<(u64, Failure)> {
    for seed in seeds {
        // A planted bug may trigger an assertion of the store. That counts as caught.
        let outcome = std::panic::catch_unwind(|| run(seed, steps, Some(bug)));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => return Some((seed, failure)),
            Err(_) => return Some((seed, Failure("the store panicked".to_owned()))),
        }
        if let Some(failure) = crate::bit_flips::catch(bug, seed) {
            return Some((seed, failure));
        }
    }
    None
}
