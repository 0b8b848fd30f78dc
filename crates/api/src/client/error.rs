//! How a call can end other than well.

use crate::code::Code;
use crate::problem::Problem;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Nobody answered: the server is not there, or went away.
    #[error("cannot reach a Towline server at {url}: {cause}")]
    Unreachable { url: String, cause: String },
    /// Something answered whose certificate is not trusted.
    #[error(
        "the certificate of {url} is not trusted: {why}; name the authority that signed it with --ca-file"
    )]
    Untrusted { url: String, why: String },
    /// The server said no, and why.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// Something answered that is not a Towline server, or one of another age.
    #[error("the answer of {url} was not understood: {what}")]
    Protocol { url: String, what: String },
    /// The client was given an address or a token that cannot be used.
    #[error("{0}")]
    Configuration(String),
}

impl ClientError {
    /// Refused before it was sent, with the words and the code the server would have used.
    pub(crate) fn invalid(detail: String) -> ClientError {
        ClientError::Refused(Box::new(Problem::new(Code::Invalid, detail)))
    }

    /// The code of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            ClientError::Refused(problem) => Code::parse(&problem.code),
            _ => None,
        }
    }
}
