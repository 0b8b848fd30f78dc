//! `towline buffer read`.

use super::range::{self, ByteRange};
use super::sink::Sink;
use super::{HeldArgs, READ_PATIENCE, resume};
use crate::clock;
use crate::connect::Session;
use crate::exit::Failure;
use crate::progress;
use crate::reconnect::Reconnect;
use crate::stdout_reader::StdoutReader;
use clap::Args;
use indicatif::ProgressBar;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;
use towline_api::Client;
use towline_api::chain::Position;
use towline_api::client::Download;

const OPEN_LIMIT: Duration = Duration::from_secs(60);
/// After this many answers that break off before their first byte, the data is at fault, not the connection.
const IN_VAIN_MAX: u32 = 3;

/// Read a buffer to standard output, or into a file.
///
/// Prints bytes as they are written, and waits if no writer has started. Checks every hash. If the buffer
/// fails, the command fails, even if it has printed most of the bytes.
#[derive(Debug, Args)]
pub struct ReadArgs {
    /// The buffer's id.
    #[arg(value_name = "BUFFER")]
    id: String,
    #[command(flatten)]
    held: HeldArgs,
    /// Write to this file instead of standard output.
    // Not `-o`, which chooses a format everywhere.
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Continue an interrupted read: check what is in the file, and read the rest.
    #[arg(long, requires = "output", conflicts_with = "range")]
    resume: bool,
    /// Only these bytes, from 0: FIRST-LAST (inclusive), FIRST- or -COUNT.
    #[arg(long, value_name = "RANGE", value_parser = range::parse, allow_hyphen_values = true)]
    range: Option<ByteRange>,
}

pub async fn run(session: &Session, args: ReadArgs) -> Result<(), Failure> {
    // Report a missing buffer at once, before truncating a file.
    let client = args.held.client(session)?;
    let shown = client.buffer(&args.id).await?;
    let length = shown.is_complete().then_some(shown.bytes);
    let client = client.retry_for(READ_PATIENCE);
    let mut from = Position::START;
    let sink = match &args.output {
        None => Sink::stdout()?,
        Some(path) => {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(!args.resume);
            let mut file = options
                .open(path)
                .map_err(|error| Failure::Refused(format!("cannot write {}: {error}", path.display())))?;
            if args.resume {
                from = resume::keep_read(&client, &args.id, &mut file).await?;
            }
            Sink::to(file)?
        }
    };
    let bar = progress::bar(if args.range.is_some() { None } else { length });
    bar.set_position(from.bytes);
    let reading = async {
        match args.range {
            Some(range) => part(&client, &args.id, range.of(&shown), sink, &bar).await,
            None => whole(Download::new(client, &args.id, from), sink, &bar).await,
        }
    };
    let ended = tokio::select! {
        ended = reading => ended,
        // Without this, a closed pipe is noticed only at the next write.
        () = StdoutReader::new().closed(), if args.output.is_none() => Err(Failure::ReaderGone),
    };
    bar.finish_and_clear();
    ended
}

async fn whole(mut download: Download, mut sink: Sink, bar: &ProgressBar) -> Result<(), Failure> {
    while let Some(pieces) = download.next().await? {
        sink.write(pieces).await?;
        bar.set_position(download.position().bytes);
    }
    sink.end().await
}

/// Reads a range. The server checks the hashes. A broken connection is resumed.
async fn part(
    client: &Client,
    id: &str,
    range: Range<u64>,
    mut sink: Sink,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let mut reconnect = Reconnect::new(Some(clock::now() + READ_PATIENCE));
    let once = client.clone().retry_for(Duration::ZERO);
    let (mut next, mut in_vain) = (range.start, 0);
    loop {
        let opening = once.content(id, next..range.end);
        let Some(mut content) = reconnect.attempt(client.url(), OPEN_LIMIT, opening).await? else { continue };
        let before = next;
        let error = loop {
            match content.next().await {
                Ok(Some(piece)) => {
                    next += piece.len() as u64;
                    bar.inc(piece.len() as u64);
                    sink.write(vec![piece]).await?;
                }
                Ok(None) => return sink.end().await,
                Err(_) if next == range.end => return sink.end().await,
                Err(error) => break error,
            }
        };
        in_vain = if next == before { in_vain + 1 } else { 0 };
        if in_vain == IN_VAIN_MAX {
            return Err(error.into());
        }
    }
}
