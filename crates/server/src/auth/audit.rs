//! The audit log: one line of JSON for every administrative call, in a file or in the log.

use crate::connection::ClientAddress;
use http::Method;
use parking_lot::Mutex;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use towline_api::Time;

const PATH_CHARS_MAX: usize = 1000;

/// The subject of a call, if its path does not name it. A route adds it to the extensions of its response.
#[derive(Debug, Clone)]
pub(crate) struct AuditSubject(pub(crate) String);

/// An administrative call and its result.
#[derive(Debug, Serialize)]
pub(super) struct AuditEntry<'a> {
    pub(super) time: Time,
    /// The operation id in `/v1/openapi.json`, or what an operator asked for on the command line.
    pub(super) operation: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<&'a str>,
    /// `null` if the server does not require tokens.
    pub(super) token: Option<u64>,
    pub(super) name: Option<&'a str>,
    pub(super) from: Option<&'a ClientAddress>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    /// The error code, if the call failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<&'a str>,
}

/// The part of a request that the audit log needs, copied before the route consumes the request.
pub(super) struct AuditedRequest {
    pub(super) method: Method,
    pub(super) path: String,
}

impl AuditedRequest {
    pub(super) fn of(request: &axum::extract::Request) -> AuditedRequest {
        let uri = request.uri();
        let whole = uri.path_and_query().map_or(uri.path(), http::uri::PathAndQuery::as_str);
        AuditedRequest {
            method: request.method().clone(),
            path: whole.chars().take(PATH_CHARS_MAX).collect(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct AuditLog {
    file: Option<(PathBuf, Mutex<File>)>,
}

impl AuditLog {
    pub(crate) fn open(path: Option<PathBuf>) -> io::Result<AuditLog> {
        let file = match path {
            Some(path) => Some((path.clone(), Mutex::new(open(&path)?))),
            None => None,
        };
        Ok(AuditLog { file })
    }

    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Opens the file again, because an operator may have moved it away.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        let Some((path, file)) = &self.file else { return Ok(()) };
        let new = open(path)?;
        *file.lock() = new;
        Ok(())
    }

    /// Writes what an operator did on this machine: with a flag at a start, or to a store without a server.
    pub(crate) fn write_by_operator(&self, time: Time, operation: &str, subject: &str) {
        self.write(&AuditEntry {
            time,
            operation,
            method: None,
            path: None,
            subject: Some(subject),
            token: None,
            name: None,
            from: None,
            status: None,
            code: None,
        });
    }

    pub(super) fn write(&self, entry: &AuditEntry<'_>) {
        // Cannot fail: strings and numbers always have a JSON form.
        let Ok(mut line) = serde_json::to_string(entry) else { return };
        let Some((path, file)) = &self.file else {
            tracing::info!(target: "towline::audit", "{line}");
            return;
        };
        line.push('\n');
        // One write per line keeps lines whole if another process appends too.
        let written = file.lock().write_all(line.as_bytes());
        if let Err(error) = written {
            tracing::error!("cannot write to the audit log {}: {error}; the entry is {line}", path.display());
        }
    }
}

fn open(path: &PathBuf) -> io::Result<File> {
    File::options().create(true).append(true).mode(0o600).open(path)
}
