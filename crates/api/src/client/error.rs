//! Errors of the client.

use crate::code::Code;
use crate::problem::Problem;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No answer: the server is not running, or the connection broke.
    #[error("cannot reach a Towline server at {url}: {cause}")]
    Unreachable { url: String, cause: String },
    /// The server accepts only TLS, and the address begins with `http://`.
    #[error("the server at {url} accepts only TLS; use {}", other_scheme(.url))]
    TlsRequired { url: String },
    /// The server does not use TLS, and the address begins with `https://`.
    #[error("the server at {url} does not use TLS; use {}", other_scheme(.url))]
    NoTls { url: String },
    /// The server's certificate is for other names than the one in the address.
    #[error(
        "the certificate of {url} is for {}; use one of its names in the address, or give the server a certificate for the name \
         in the address", names_or_none(.names)
    )]
    WrongName { url: String, names: Vec<String> },
    /// The server's certificate has expired, or is not valid yet.
    #[error("the certificate of {url} cannot be used now: {why}; renew it, or set the clock of this machine")]
    Expired { url: String, why: String },
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

/// The same address with the other scheme.
fn other_scheme(url: &str) -> String {
    match url.split_once("://") {
        Some(("http", rest)) => format!("https://{rest}"),
        Some((_, rest)) => format!("http://{rest}"),
        None => url.to_owned(),
    }
}

fn names_or_none(names: &[String]) -> String {
    if names.is_empty() { "no name".to_owned() } else { names.join(", ") }
}
