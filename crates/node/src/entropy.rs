//! The randomness of a node: the only place that asks the system for it.

/// 32 random hexadecimal digits: the token of a writer, or the name of an instance.
///
/// Panics if the system has no randomness: a guessable token of a writer would be unsafe.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "the edge: nothing above passes entropy in"
)]
pub fn digits() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system has randomness");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
