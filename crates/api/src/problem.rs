//! Errors: a whole answer (RFC 9457), or one element of a batch.

use crate::code::Code;
use serde::{Deserialize, Serialize};
use towline_domain::Refusal;
use utoipa::ToSchema;

pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why the call failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A URN of the kind of problem: `urn:towline:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// A short description of the code.
    pub title: String,
    pub status: u16,
    /// The error code. Match on this; it never changes.
    pub code: String,
    /// What was wrong, with the value, and what to do.
    pub detail: String,
}

impl Problem {
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("urn:towline:{}", code.name()),
            title: code.title().to_owned(),
            status: code.status(),
            code: code.name().to_owned(),
            detail: detail.into(),
        }
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Problem {
        Problem::new(Code::of(refusal), refusal.to_string())
    }
}

/// Why one element of a batch was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error code. Match on this; it never changes.
    pub code: String,
    pub message: String,
}

/// The result of an element of a batch that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedElement {
    pub error: ErrorBody,
}

impl From<&Refusal> for ErrorBody {
    fn from(refusal: &Refusal) -> ErrorBody {
        ErrorBody { code: Code::of(refusal).name().to_owned(), message: refusal.to_string() }
    }
}
