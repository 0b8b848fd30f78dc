//! What an error looks like: a whole answer (RFC 9457), or one element of an answer to many.

use crate::code::Code;
use serde::{Deserialize, Serialize};
use towline_domain::Refusal;
use utoipa::ToSchema;

pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a call was refused or could not be answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A name for the kind of problem: `urn:towline:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in words.
    pub title: String,
    pub status: u16,
    /// What to match on; never changes its meaning.
    pub code: String,
    /// What was wrong this time, with the value, and what to do.
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

/// Why one element of a call was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What to match on; never changes its meaning.
    pub code: String,
    pub message: String,
}

impl From<&Refusal> for ErrorBody {
    fn from(refusal: &Refusal) -> ErrorBody {
        ErrorBody { code: Code::of(refusal).name().to_owned(), message: refusal.to_string() }
    }
}
