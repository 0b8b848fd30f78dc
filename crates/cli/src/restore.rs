//! `towline restore`: copies a backup into a data directory.

use crate::backup::report;
use crate::exit::Failure;
use crate::output::{self, Output};
use crate::progress;
use clap::Args;
use std::path::PathBuf;
use towline_server::backup;

/// Restore a backup into a new data directory.
///
/// Compares every byte with the list in the backup. If the restore does not finish, the directory is no store: run the
/// command again, and it starts again.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Directory that `towline backup` wrote
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Directory for the restored store. It must be empty or not exist
    #[arg(long, value_name = "DIRECTORY")]
    data: PathBuf,
}

pub fn run(args: &RestoreArgs, output: Output) -> Result<(), Failure> {
    let bar = progress::bar(backup::bytes_to_restore(&args.backup));
    let restored = backup::restore(&args.backup, &args.data, &mut |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let data = args.data.display();
    let summary = report(&format!("restored to {data}"), restored, output)?;
    let place =
        summary.header.buffers_elsewhere.map(|place| format!(" --buffers {place}")).unwrap_or_default();
    output::say(format!(
        "stop the old server, then start this store with `towline serve --data {data}{place}`"
    ));
    Ok(())
}
