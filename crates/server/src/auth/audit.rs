//! Who did what to queues and tokens: a line of JSON for every administrative act, into a file or the log.

use http::Method;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use towline_api::Time;

const PATH_SHOWN_MAX: usize = 1000;

/// What an act was about, if its path does not say it. Goes with the response.
#[derive(Debug, Clone)]
pub(crate) struct About(pub(crate) String);

/// An act, and how it ended.
#[derive(Debug, Serialize)]
pub(super) struct Entry<'a> {
    pub(super) time: Time,
    /// The name of the operation, as in `/v1/openapi.json`.
    pub(super) act: &'a str,
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) about: Option<&'a str>,
    /// `null`: the server asks for none.
    pub(super) token: Option<u64>,
    pub(super) name: Option<&'a str>,
    pub(super) from: Option<SocketAddr>,
    pub(super) status: u16,
    /// Of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<&'a str>,
}

/// What of a request is told, taken before it is carried out.
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
}

impl Asked {
    pub(super) fn of(request: &axum::extract::Request) -> Asked {
        let uri = request.uri();
        let whole = uri.path_and_query().map_or(uri.path(), http::uri::PathAndQuery::as_str);
        Asked { method: request.method().clone(), path: whole.chars().take(PATH_SHOWN_MAX).collect() }
    }
}

/// Where acts are told.
#[derive(Debug)]
pub(crate) struct Audit {
    file: Option<(PathBuf, Mutex<File>)>,
}

impl Audit {
    pub(crate) fn open(path: Option<PathBuf>) -> io::Result<Audit> {
        let file = match path {
            Some(path) => Some((path.clone(), Mutex::new(open(&path)?))),
            None => None,
        };
        Ok(Audit { file })
    }

    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Goes on in a new file if somebody has moved the old one away.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let Some((path, file)) = &self.file else { return Ok(()) };
        let new = open(path)?;
        *file.lock().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    pub(super) fn tell(&self, entry: &Entry<'_>) {
        // Names, numbers and texts: it always has a JSON form.
        let Ok(mut line) = serde_json::to_string(entry) else { return };
        let Some((path, file)) = &self.file else {
            tracing::info!(target: "towline::audit", "{line}");
            return;
        };
        line.push('\n');
        // In one write, so that lines stay whole whoever else appends.
        let written = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
        if let Err(error) = written {
            tracing::error!("cannot write to the audit log {}: {error}; it said {line}", path.display());
        }
    }
}

fn open(path: &PathBuf) -> io::Result<File> {
    File::options().create(true).append(true).mode(0o600).open(path)
}
