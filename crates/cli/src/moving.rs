//! `towline export` and `towline import`: everything in a store, from one to another.

use crate::exit::Failure;
use crate::output;
use crate::serve::{environment, several};
use anyhow::Context;
use clap::Args;
use std::io::{self, BufReader, BufWriter};
use std::path::PathBuf;
use towline_server::Settings;
use towline_server::transfer::{self, TransferError, TransferSummary};

/// Larger than most lines.
const BUFFER_BYTES: usize = 1 << 20;

/// A store, as `towline serve` names it. No server may be using it.
#[derive(Debug, Args)]
pub struct Place {
    /// A configuration file; towline.toml is read if it is there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the store [default: towline-data]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// Where queues and items are: `embedded`, or postgres://user@host/database, repeatable [default: embedded]
    #[arg(long, value_name = "PLACE")]
    store: Vec<String>,
    /// A file with the password of the database
    #[arg(long, value_name = "PATH")]
    store_password_file: Option<String>,
}

/// Write everything in a store to standard output.
///
/// Queues and items with their ids, states, leases, errors and results, one JSON object a line. No server may be using
/// the store. Buffers, and payload that was put beside them, stay where they are.
#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    place: Place,
}

/// Put what `towline export` wrote, read from standard input, into an empty store.
#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    place: Place,
}

pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    let settings = args.place.settings()?;
    let out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    let moved = runtime()?.block_on(transfer::export(&settings, out));
    told("exported", moved)
}

pub fn import(args: &ImportArgs) -> Result<(), Failure> {
    let settings = args.place.settings()?;
    let input = BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock());
    let moved = runtime()?.block_on(transfer::import(&settings, input));
    told("imported", moved)
}

impl Place {
    /// Whether a store is named, in place of a server.
    pub fn is_named(&self) -> bool {
        self.config.is_some() || self.data.is_some() || !self.store.is_empty()
    }

    pub fn settings(&self) -> Result<Settings, Failure> {
        let given = [
            ("data", &self.data),
            ("store", &several(&self.store)),
            ("store_password_file", &self.store_password_file),
        ];
        let flags: Vec<_> =
            given.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        Settings::load(self.config.as_deref(), environment(), &flags)
            .map_err(|error| Failure::Usage(error.to_string()))
    }
}

pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    Ok(built.context("cannot start")?)
}

fn told(what: &str, moved: Result<TransferSummary, TransferError>) -> Result<(), Failure> {
    match moved {
        Ok(moved) => {
            output::say(format!("{what} {moved}"));
            Ok(())
        }
        Err(TransferError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Err(Failure::ReaderGone)
        }
        Err(error) => Err(Failure::refused(error)),
    }
}
