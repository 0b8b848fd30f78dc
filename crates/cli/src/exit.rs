//! Exit codes, and the error message on stderr.

use crate::output;
use std::fmt::Display;
use std::io;
use std::process::ExitCode;
use towline_api::{ClientError, Refusal};

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The server refused, or the work failed.
    Refused(String),
    /// The command line is wrong.
    Usage(String),
    /// No server answered, or not with TLS that the client accepts.
    Unreachable(String),
    /// A run exited with this code.
    Exited(String, i32),
    /// The command waited and timed out.
    TimedOut(String),
    /// Some elements failed, and each was reported when it failed.
    AlreadyReported,
    /// The reader of the output closed the pipe.
    ReaderGone,
}

impl Failure {
    pub fn refused(words: impl Display) -> Failure {
        Failure::Refused(words.to_string())
    }

    fn code(&self) -> u8 {
        match self {
            Failure::ReaderGone => 0,
            Failure::Refused(_) | Failure::AlreadyReported => 1,
            Failure::Usage(_) => 2,
            Failure::Unreachable(_) => 3,
            Failure::TimedOut(_) => 4,
            // A shell sees only these.
            Failure::Exited(_, code) => u8::try_from(*code).ok().filter(|code| *code > 0).unwrap_or(1),
        }
    }

    fn words(&self) -> Option<&str> {
        match self {
            Failure::Refused(words)
            | Failure::Usage(words)
            | Failure::Unreachable(words)
            | Failure::TimedOut(words)
            | Failure::Exited(words, _) => Some(words),
            Failure::AlreadyReported | Failure::ReaderGone => None,
        }
    }
}

/// Prints the error message, if there is one, and returns the exit code.
pub fn report(end: Result<(), Failure>) -> ExitCode {
    let Err(failure) = end else { return ExitCode::SUCCESS };
    if let Some(words) = failure.words() {
        output::complain(words);
    }
    ExitCode::from(failure.code())
}

/// Help and version are results. Every other error of the parser is a usage error.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return report(error.print().map_err(Failure::from));
    }
    let text = error.render().to_string();
    match text.strip_prefix("error: ") {
        Some(words) => output::complain(words.trim_end()),
        // Called without arguments: print the help.
        None => drop(error.print()),
    }
    ExitCode::from(2)
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        match error {
            ClientError::Unreachable { .. } => Failure::Unreachable(format!(
                "{error}; start one with `towline serve`, or give its address with --url or TOWLINE_URL"
            )),
            ClientError::Configuration(words) => Failure::Usage(words),
            ClientError::TlsRequired { .. }
            | ClientError::NoTls { .. }
            | ClientError::WrongName { .. }
            | ClientError::Expired { .. }
            | ClientError::Untrusted { .. } => Failure::Unreachable(error.to_string()),
            ClientError::Refused(_) | ClientError::Protocol { .. } => Failure::refused(error),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::refused(refusal)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::refused(error),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        match error.io_error_kind() {
            Some(kind) => Failure::from(io::Error::from(kind)),
            None => Failure::refused(error),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        match error.downcast::<ClientError>() {
            Ok(error) => Failure::from(error),
            Err(error) => Failure::Refused(format!("{error:#}")),
        }
    }
}
