//! `towline export` and `towline import`: move everything from one store to another.

use crate::exit::Failure;
use crate::output;
use crate::serve::ADOPT_HELP;
use crate::store_args::{StoreArgs, runtime};
use clap::Args;
use std::io::{self, BufReader, BufWriter};
use towline_server::transfer::{self, TransferError, TransferSummary};

/// Larger than most lines.
const BUFFER_BYTES: usize = 1 << 20;

/// Export all queues and items of a store to standard output.
///
/// Writes ids, states, leases, payloads, errors and results, one JSON object per line. Stop the server first.
/// Buffers stay in object storage.
#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Place for buffers of the store, with its offloaded payloads: a directory, or s3://bucket/prefix [default: `buffers` in
    /// the data directory]
    #[arg(long, value_name = "PLACE")]
    buffers: Option<String>,
}

/// Import the output of `towline export` from standard input into an empty store. Stop the server first.
#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Place for buffers of the new store, for large payloads: a directory, or s3://bucket/prefix [default: `buffers` in the
    /// data directory]
    #[arg(long, value_name = "PLACE")]
    buffers: Option<String>,
    #[arg(long, help = ADOPT_HELP)]
    adopt_buffers: bool,
}

pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    let settings = args.store.settings_with_buffers(args.buffers.as_ref())?;
    let out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    let moved = runtime()?.block_on(transfer::export(&settings, out));
    report("exported", moved)
}

pub fn import(args: &ImportArgs) -> Result<(), Failure> {
    let mut settings = args.store.settings_with_buffers(args.buffers.as_ref())?;
    settings.adopt_buffers = args.adopt_buffers;
    let input = BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock());
    let moved = runtime()?.block_on(transfer::import(&settings, input));
    report("imported", moved)
}

fn report(what: &str, moved: Result<TransferSummary, TransferError>) -> Result<(), Failure> {
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
