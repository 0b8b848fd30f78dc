//! What can be set about buffers, with defaults that fit most uses.

use std::time::Duration;

/// How [`Buffers`](crate::Buffers) behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// A writer that gave no sign of life for so long has vanished, and its buffer failed.
    pub writer_timeout_ms: u64,
    /// The first pause of a reader that waits for a writer at another server; it grows up to `poll_max`.
    pub poll_first: Duration,
    pub poll_max: Duration,
    /// Used with `s3://` only.
    pub s3: S3Options,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            writer_timeout_ms: 60_000,
            poll_first: Duration::from_millis(100),
            poll_max: Duration::from_secs(1),
            s3: S3Options::default(),
        }
    }
}

/// How to reach an S3-compatible service. What is `None` comes from the usual `AWS_...` variables of the environment.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// For services other than AWS: `https://host:port`. `http://` is allowed when written so.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<Secret>,
    pub session_token: Option<Secret>,
    /// The bucket as a part of the host name instead of the path.
    pub virtual_hosted: bool,
    pub write_once: WriteOnce,
    /// Tries after the first one, for calls that failed in a way that may pass.
    pub retries_max: usize,
    /// No further try after so long.
    pub retry_time_max: Duration,
    pub connect_timeout: Duration,
    pub request_timeout: Duration,
}

impl Default for S3Options {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            access_key_id: None,
            secret_access_key: None,
            session_token: None,
            virtual_hosted: false,
            write_once: WriteOnce::ByService,
            retries_max: 4,
            retry_time_max: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(20),
        }
    }
}

/// Who refuses the second writing of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteOnce {
    /// The service, which must honour `If-None-Match: *` on puts; [`Buffers::check`](crate::Buffers::check) proves it.
    #[default]
    ByService,
    /// This process, by a lock and a look: for services that cannot, and right only if one server writes there.
    ByProcess,
}

/// A text that is not shown in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(...)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_out_of_debug_output() {
        let s3 = S3Options { secret_access_key: Some(Secret::new("hush")), ..S3Options::default() };
        let shown = format!("{:?}", Options { s3, ..Options::default() });
        assert!(shown.contains("Secret(...)") && !shown.contains("hush"), "{shown}");
    }
}
