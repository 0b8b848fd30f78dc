//! `towline buffer read`.

use super::range::{self, ByteRange};
use super::sink::Sink;
use super::{READ_PATIENCE, progress, resume};
use crate::clock;
use crate::connect::Session;
use crate::exit::Failure;
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
/// Answers in a row that broke off before their first byte: something is wrong with these bytes, not with the line.
const IN_VAIN_MAX: u32 = 3;

/// Read a buffer to standard output, or into a file.
///
/// Bytes come as they are written; if nobody has begun to write, it waits. Everything is checked on the way. A buffer
/// that fails is an error, also if most of it was printed already.
#[derive(Debug, Args)]
pub struct ReadArgs {
    /// The buffer's id.
    #[arg(value_name = "BUFFER")]
    id: String,
    /// Write into this file in place of standard output.
    // `-o` chooses a format everywhere.
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Keep what an earlier read left in the file, as far as it is right, and read the rest.
    #[arg(long, requires = "output", conflicts_with = "range")]
    resume: bool,
    /// Only these bytes, from 0: FIRST-LAST (both are in it), FIRST- or -COUNT.
    #[arg(long, value_name = "RANGE", value_parser = range::parse, allow_hyphen_values = true)]
    range: Option<ByteRange>,
}

pub async fn run(session: &Session, args: ReadArgs) -> Result<(), Failure> {
    // Told at once if there is no such buffer, and before a file is emptied.
    let shown = session.client.buffer(&args.id).await?;
    let length = (shown.state == "complete").then_some(shown.bytes);
    let client = session.client.clone().retry_for(READ_PATIENCE);
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
        // Nobody would notice before there is something to write.
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

/// The server checks these bytes; a connection that breaks is taken up again where it was.
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
