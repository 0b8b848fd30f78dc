//! The connection to a server: address, token, certificates.

use crate::exit::Failure;
use crate::output::{self, Format, Output};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;
use towline_api::{Client, Trace, TraceBody};

#[derive(Debug, Args)]
pub struct Connection {
    /// Address of the server: http://HOST:PORT, https://HOST:PORT, or unix:/path for a Unix socket.
    #[arg(
        long,
        global = true,
        env = "TOWLINE_URL",
        hide_env_values = true,
        default_value_t = format!("http://{}", towline_api::ADDRESS_DEFAULT),
        value_name = "URL",
        help_heading = "Global options"
    )]
    url: String,
    /// File with the token, `-` for standard input. Default: the token in TOWLINE_TOKEN.
    // No flag takes the token itself: every user of the machine can read a command line.
    #[arg(
        long,
        global = true,
        env = "TOWLINE_TOKEN_FILE",
        value_name = "PATH",
        help_heading = "Global options"
    )]
    token_file: Option<PathBuf>,
    /// PEM file with the certificate authorities to trust, instead of the system's.
    #[arg(
        long,
        global = true,
        env = "TOWLINE_CA_FILE",
        value_name = "PATH",
        help_heading = "Global options"
    )]
    ca_file: Option<PathBuf>,
}

/// A client, and how to print its results.
#[derive(Debug)]
pub struct Session {
    /// Does not repeat calls, so a missing server is reported at once.
    pub client: Client,
    pub output: Output,
}

impl Connection {
    pub fn open(&self, format: Option<Format>) -> Result<Session, Failure> {
        // JSON returns parameters as the text that the submitter sent, digit for digit.
        let mut client = Client::new(&self.url)?.format(towline_api::Format::Json).retry_for(Duration::ZERO);
        // A host may have a name that no header can carry.
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        client = client.clone().name(&format!("towline on {host}")).unwrap_or(client);
        if let Some(path) = &self.ca_file {
            client = client.ca_file(path)?;
        }
        if let Some(token) = self.token()? {
            if client.is_exposed() {
                output::say(format_args!(
                    "warning: the token goes to {} without TLS, so every machine on the way can read it; use https://",
                    self.url
                ));
            }
            client = client.token(&token)?;
        }
        if let Some(trace) = trace() {
            client = client.trace(&trace);
        }
        Ok(Session { client, output: Output::new(format) })
    }

    pub fn ca_file(&self) -> Option<&Path> {
        self.ca_file.as_deref()
    }

    pub fn token_is_standard_input(&self) -> bool {
        self.token_file.as_ref().is_some_and(|path| path.as_os_str() == "-")
    }

    fn token(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.token_file else {
            return Ok(std::env::var("TOWLINE_TOKEN").ok().filter(|token| !token.trim().is_empty()));
        };
        let read = if path.as_os_str() == "-" {
            std::io::read_to_string(std::io::stdin())
        } else {
            std::fs::read_to_string(path)
        };
        let token = read.map_err(|error| {
            Failure::Usage(format!("cannot read the token file {}: {error}", path.display()))
        })?;
        if token.trim().is_empty() {
            return Err(Failure::Usage(format!("the token file {} is empty", path.display())));
        }
        Ok(Some(token))
    }
}

/// The trace of the process that started this one, from the environment.
fn trace() -> Option<Trace> {
    let variable = |name: &str| std::env::var(name).ok();
    let (parent, state) = (variable("TRACEPARENT"), variable("TRACESTATE"));
    TraceBody::from_headers(parent.as_deref().into_iter(), state.as_deref().into_iter())
}
