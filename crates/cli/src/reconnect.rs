//! Repeats a call while no server answers, so that a restart of the server does not end a waiting command.

use crate::clock;
use crate::exit::Failure;
use crate::output;
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;
use towline_api::{ClientError, Code};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// After this time without an answer the command gives up.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Whether the same call may succeed later.
pub fn is_transient(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } => true,
        ClientError::Refused(_) => {
            matches!(error.code(), Some(Code::Busy | Code::Stopping | Code::Unavailable))
        }
        ClientError::TlsRequired { .. }
        | ClientError::NoTls { .. }
        | ClientError::WrongName { .. }
        | ClientError::Expired { .. }
        | ClientError::Untrusted { .. }
        | ClientError::Protocol { .. }
        | ClientError::Configuration(_) => false,
    }
}

/// Counts how long no server has answered.
#[derive(Debug)]
pub struct Reconnect {
    since: Option<Instant>,
    pause: Duration,
    /// The deadline of the command itself.
    until: Option<Instant>,
}

impl Reconnect {
    pub fn new(until: Option<Instant>) -> Reconnect {
        Reconnect { since: None, pause: FIRST_PAUSE, until }
    }

    /// Makes a call with a time limit. `None`: no server answered; call again.
    pub async fn attempt<T>(
        &mut self,
        url: &str,
        limit: Duration,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<Option<T>, Failure> {
        // Without a limit, a connection whose other end disappeared would block for ever.
        let answer = tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
            Err(ClientError::Unreachable { url: url.to_owned(), cause: "no answer".to_owned() })
        });
        let error = match answer {
            Ok(answer) => {
                *self = Reconnect::new(self.until);
                return Ok(Some(answer));
            }
            Err(error) if is_transient(&error) => error,
            Err(error) => return Err(error.into()),
        };
        let now = clock::now();
        let first = self.since.is_none();
        let since = *self.since.get_or_insert(now);
        let end = self.until.map_or(since + PATIENCE, |until| until.min(since + PATIENCE));
        if now >= end {
            return Err(error.into());
        }
        if first {
            output::say(format!("{error}; trying again"));
        }
        tokio::time::sleep(self.pause.min(end - now)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(None)
    }
}
