//! Which server to talk to, and as whom.

use crate::exit::Failure;
use crate::output::{Format, Output};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use towline_api::{Client, Trace, TraceBody};

#[derive(Debug, Args)]
pub struct Connection {
    /// The server to talk to.
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
    /// A file with the token to show to the server, `-` for standard input; without it, TOWLINE_TOKEN is used if set.
    // There is no flag for the token itself: everybody on the machine can read a command line.
    #[arg(
        long,
        global = true,
        env = "TOWLINE_TOKEN_FILE",
        value_name = "PATH",
        help_heading = "Global options"
    )]
    token_file: Option<PathBuf>,
    /// Certificates to trust in place of the system's, in PEM.
    #[arg(
        long,
        global = true,
        env = "TOWLINE_CA_FILE",
        value_name = "PATH",
        help_heading = "Global options"
    )]
    ca_file: Option<PathBuf>,
}

/// A server to talk to, and how to print what it says.
#[derive(Debug)]
pub struct Session {
    /// Does not repeat calls: an absent server is told at once.
    pub client: Client,
    pub output: Output,
}

impl Connection {
    pub fn open(&self, format: Option<Format>) -> Result<Session, Failure> {
        // JSON brings parameters back as the text they were sent as, digit for digit.
        let mut client = Client::new(&self.url)?.format(towline_api::Format::Json).retry_for(Duration::ZERO);
        if let Some(path) = &self.ca_file {
            client = client.ca_file(path)?;
        }
        if let Some(token) = self.token()? {
            client = client.token(&token)?;
        }
        if let Some(trace) = trace() {
            client = client.trace(&trace);
        }
        Ok(Session { client, output: Output::new(format) })
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

/// The trace that whoever started this process is at: it says so in the environment, as programs without headers do.
fn trace() -> Option<Trace> {
    let variable = |name: &str| std::env::var(name).ok();
    let (parent, state) = (variable("TRACEPARENT"), variable("TRACESTATE"));
    TraceBody::from_headers(parent.as_deref().into_iter(), state.as_deref().into_iter())
}
