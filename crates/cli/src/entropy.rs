//! The randomness of the command line: the only place that asks the system for it.

use crate::exit::Failure;

#[expect(clippy::disallowed_methods, reason = "the edge: nothing above passes entropy in")]
pub fn bytes() -> Result<[u8; 16], Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::Refused(format!("the system provides no randomness: {error}")))?;
    Ok(bytes)
}
