//! The options of [`Buffers`](crate::Buffers), with their defaults.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Options {
    /// A writer without activity for longer than this has vanished, and its buffer fails.
    pub writer_timeout_ms: u64,
    /// The first poll interval of a reader whose writer is on another server.
    pub poll_first: Duration,
    /// The maximum poll interval. The interval doubles after each poll up to this value.
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

/// How to reach an S3-compatible service. The usual `AWS_...` environment variables replace fields that are `None`.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// The address of a service other than AWS: `https://host:port` or `http://host:port`.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<Secret>,
    pub session_token: Option<Secret>,
    /// Whether the bucket is part of the host name instead of the path.
    pub virtual_hosted: bool,
    pub write_once: WriteOnce,
    /// The maximum number of retries after a transient failure.
    pub retries_max: usize,
    /// The maximum time after which no further retry starts.
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

/// Which side refuses to write an object twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteOnce {
    /// The service. It must honour `If-None-Match: *` on puts; [`Buffers::check`](crate::Buffers::check) verifies this.
    #[default]
    ByService,
    /// This process, with a lock and a check before each write. For services without conditional puts. Correct only
    /// if a single server writes to the location.
    ByProcess,
}

/// A text that debug output hides.
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
