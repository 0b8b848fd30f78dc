//! Refusals of values that are well-formed but not allowed.

use towline_domain::Refusal;

/// How many characters of a bad value an error message repeats.
const SHOWN_CHARS_MAX: usize = 64;

pub(crate) fn invalid(what: &'static str, message: impl Into<String>) -> Refusal {
    Refusal::Invalid { what, message: message.into() }
}

/// The refusal of a name that is not in a fixed list.
pub(crate) fn not_one_of(what: &'static str, given: &str, names: &str) -> Refusal {
    let shown: String = given.chars().take(SHOWN_CHARS_MAX).collect();
    invalid(what, format!("{shown:?} is not one of {names}"))
}
