//! `towline backup`: copies the store of a running server, or one that no server uses, to a directory.

use crate::connect::Connection;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::output::{self, Format, Output};
use crate::progress;
use crate::store_args::{StoreArgs, runtime};
use bytes::{Buf, Bytes};
use clap::Args;
use serde::Serialize;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;
use towline_api::client::Content;
use towline_server::backup::{self, BackupError, BackupSummary};

/// A server that sends nothing for this long has gone.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Pieces that wait to be written.
const PIECES: usize = 4;

/// Back up a store with its buffers to a directory.
///
/// Without --data, copies the store of the running server, which continues meanwhile; the token needs the scope `admin`.
/// With --data, copies a store that no server uses. Every byte is checked. An interrupted backup is not a backup: run the
/// command again, and it starts again. `towline restore` copies a backup back.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// Directory for the backup. It must be empty or not exist
    #[arg(value_name = "OUT")]
    out: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// Place for buffers of the store, with --data: a directory, or s3://bucket/prefix, whose objects are not copied
    /// [default: `buffers` in the data directory]
    #[arg(long, value_name = "PLACE")]
    buffers: Option<String>,
}

/// What was copied.
#[derive(Debug, Serialize)]
struct Copied<'a> {
    files: u64,
    bytes: u64,
    /// The place for buffers, if its objects were not copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    buffers_elsewhere: Option<&'a str>,
}

pub fn run(args: BackupArgs, connection: &Connection, format: Option<Format>) -> Result<(), Failure> {
    let bar = progress::bar(None);
    let summary = if args.store.is_named() {
        let settings = args.store.settings_with_buffers(args.buffers.as_ref())?;
        backup::backup(&settings, &args.out, &mut |bytes| bar.inc(bytes))
    } else if args.buffers.is_some() {
        let words = "--buffers needs --data; a server knows its place for buffers";
        return Err(Failure::Usage(words.to_owned()));
    } else {
        let (out, bar) = (args.out.clone(), bar.clone());
        runtime()?.block_on(async {
            let interrupt = Interrupt::listen()?;
            let content = connection.open(format)?.client.backup().await?;
            let (sender, receiver) = mpsc::channel(PIECES);
            let unpacking = tokio::task::spawn_blocking(move || {
                let pieces = Pieces { receiver, piece: Bytes::new() };
                backup::unpack(pieces, &out, &mut |bytes| bar.inc(bytes))
            });
            feed(content, &sender, &interrupt).await;
            drop(sender);
            unpacking.await.map_err(Failure::refused)
        })?
    };
    bar.finish_and_clear();
    report(&format!("backed up to {}", args.out.display()), summary, Output::new(format)).map(drop)
}

/// Prints what a backup or a restore copied.
pub fn report(
    what: &str,
    copied: Result<BackupSummary, BackupError>,
    output: Output,
) -> Result<BackupSummary, Failure> {
    let summary = copied.map_err(Failure::refused)?;
    let (files, bytes) = (summary.totals.files, summary.totals.bytes);
    output::say(format!("{what}: {files} files, {bytes} bytes"));
    let buffers_elsewhere = summary.header.buffers_elsewhere.as_deref();
    if let Some(place) = buffers_elsewhere {
        output::say(format!("the backup has no buffers and no offloaded payloads: they stay in {place}"));
    }
    output.json_only(&Copied { files, bytes, buffers_elsewhere })?;
    Ok(summary)
}

/// Passes the archive on until it ends, the connection breaks, or the operator interrupts.
async fn feed(mut content: Content, sender: &mpsc::Sender<io::Result<Bytes>>, interrupt: &Interrupt) {
    let broken = |words: String| io::Error::new(io::ErrorKind::ConnectionAborted, words);
    loop {
        let next = tokio::select! {
            next = tokio::time::timeout(SILENCE_MAX, content.next()) => next,
            () = interrupt.raised() => {
                let _ = sender.send(Err(broken("interrupted".to_owned()))).await;
                return;
            }
        };
        let piece = match next {
            Ok(Ok(Some(piece))) => Ok(piece),
            Ok(Ok(None)) => return,
            Ok(Err(error)) => Err(broken(error.to_string())),
            Err(_) => Err(broken(format!("the server sent nothing for {} s", SILENCE_MAX.as_secs()))),
        };
        let is_last = piece.is_err();
        // Fails if the backup has ended.
        if sender.send(piece).await.is_err() || is_last {
            return;
        }
    }
}

/// The archive as a blocking reader.
struct Pieces {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
