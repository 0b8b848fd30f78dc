//! Errors of the client.

use crate::code::Code;
use crate::problem::Problem;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No answer: the server is not running, or the connection broke.
    #[error("cannot reach a Towline server at {url}: {cause}")]
    Unreachable { url: String, cause: String },
    /// The server's certificate is not trusted.
    #[error("the certificate of {url} is not trusted: {why}; name its certificate authority with --ca-file")]
    Untrusted { url: String, why: String },
    /// The server refused the call.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// The answer is not from a Towline server, or from an incompatible version.
    #[error("unexpected answer from {url}: {what}")]
    Protocol { url: String, what: String },
    /// The address or the token is unusable.
    #[error("{0}")]
    Configuration(String),
}

impl ClientError {
    /// A refusal before sending, with the code that the server would use.
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
