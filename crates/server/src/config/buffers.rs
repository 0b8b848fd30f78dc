//! Settings of buffer storage.

use std::path::Path;
use towline_buffers::{Location, Options, S3Options, Secret, WriteOnce};
use towline_domain::Millis;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferSettings {
    /// `None`: the directory `buffers` in the data directory.
    pub location: Option<Location>,
    /// A buffer fails if its writer is silent for this long.
    pub writer_timeout: Millis,
    /// If this or one of the following fields is `None`, the `AWS_...` variable applies.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<Secret>,
    pub session_token: Option<Secret>,
    pub virtual_hosted: bool,
    pub write_once: WriteOnce,
}

impl Default for BufferSettings {
    fn default() -> BufferSettings {
        BufferSettings {
            location: None,
            writer_timeout: Millis::seconds(60),
            endpoint: None,
            region: None,
            access_key_id: None,
            secret_access_key: None,
            session_token: None,
            virtual_hosted: false,
            write_once: WriteOnce::default(),
        }
    }
}

impl BufferSettings {
    pub(crate) fn location(&self, data: &Path) -> Location {
        self.location.clone().unwrap_or_else(|| Location::Directory(data.join("buffers")))
    }

    pub(crate) fn options(&self) -> Options {
        let s3 = S3Options {
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            access_key_id: self.access_key_id.clone(),
            secret_access_key: self.secret_access_key.clone(),
            session_token: self.session_token.clone(),
            virtual_hosted: self.virtual_hosted,
            write_once: self.write_once,
            ..S3Options::default()
        };
        Options { writer_timeout_ms: self.writer_timeout.0, s3, ..Options::default() }
    }
}
