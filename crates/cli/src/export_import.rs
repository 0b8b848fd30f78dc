//! `towline export` and `towline import`: copy everything from one store to another.

use crate::connect::Connection;
use crate::cyclotron::{self, CyclotronImport};
use crate::exit::Failure;
use crate::output::{self, Format};
use crate::serve::ADOPT_HELP;
use crate::store_args::{StoreArgs, runtime};
use bytes::Bytes;
use clap::Args;
use parking_lot::Mutex;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::sync::Arc;
use tokio::sync::mpsc;
use towline_api::TransferSummary;
use towline_api::client::Content;
use towline_server::transfer::{self, TransferError};

/// Larger than most lines.
const BUFFER_BYTES: usize = 1 << 20;
/// How many pieces of the input are read before the server takes the first one.
const PIECES_AHEAD: usize = 2;

/// Export queues, items, schedules and records to standard output.
///
/// Without --data, --store and --config, exports from the running server; the token needs the scope `admin`. With one of
/// them, exports from a store that no server uses. Writes ids, states, leases, payloads, errors and results, one JSON object
/// per line. Buffers stay in object storage.
#[derive(Debug, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Place for buffers of the store, with its offloaded payloads: a directory, or s3://bucket/prefix [default: `buffers` in
    /// the data directory]
    #[arg(long, value_name = "PLACE")]
    buffers: Option<String>,
    /// Export tokens, too: their names, scopes and hashes. They are valid in the new store
    #[arg(long)]
    with_tokens: bool,
}

/// Import the output of `towline export` from standard input into an empty store.
///
/// Without --data, --store and --config, imports into the running server; the token needs the scope `admin`. Until the import ends,
/// the server answers other clients that change something with 503 `busy`. With one of these flags, imports into a store that no
/// server uses. Example: towline export --url http://old:7420 | towline import --url http://new:7420
///
/// With `--from cyclotron`, submits the jobs of a Cyclotron database to the running server. Each job has its id as
/// idempotency key, so the same command continues an interrupted import. Jobs that are available are pending or scheduled
/// afterwards, and paused jobs are paused. Example: towline import --from cyclotron postgres://user@host/cyclotron
#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Place for buffers of the new store, with --data, --store or --config, for large payloads: a directory, or s3://bucket/prefix [default: `buffers` in the
    /// data directory]
    #[arg(long, value_name = "PLACE")]
    buffers: Option<String>,
    #[arg(long, help = ADOPT_HELP)]
    adopt_buffers: bool,
    /// Import from another queue: cyclotron
    #[arg(long, value_name = "QUEUE", value_enum, requires = "database", conflicts_with_all = ["config", "data", "store", "buffers", "adopt_buffers"], help_heading = "From another queue")]
    from: Option<Origin>,
    /// Its database: postgres://user@host/database
    #[arg(id = "database", value_name = "URL", requires = "from", help_heading = "From another queue")]
    database: Option<String>,
    /// File with the password of its database
    #[arg(long, value_name = "PATH", requires = "from", help_heading = "From another queue")]
    password_file: Option<String>,
    /// Also import jobs that are running. Stop their workers first: a job whose worker still runs is done twice
    #[arg(long, requires = "from", help_heading = "From another queue")]
    with_running: bool,
    /// Import dead letters into this queue, with their original queue and reason as tags [default: do not import them]
    #[arg(long, value_name = "QUEUE", requires = "from", help_heading = "From another queue")]
    dead_letters: Option<String>,
    /// Import the jobs of one queue into another one, OLD=NEW. Repeatable
    #[arg(long, value_name = "OLD=NEW", value_parser = renamed, requires = "from", help_heading = "From another queue")]
    queue: Vec<(String, String)>,
}

/// A queue that is not Towline.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Origin {
    Cyclotron,
}

fn renamed(text: &str) -> Result<(String, String), String> {
    let (old, new) = text.split_once('=').ok_or("use OLD=NEW")?;
    Ok((old.to_owned(), new.to_owned()))
}

pub fn export(args: &ExportArgs, connection: &Connection, format: Option<Format>) -> Result<(), Failure> {
    let runtime = runtime()?;
    if args.store.is_named() {
        let settings = args.store.settings_with_buffers(args.buffers.as_ref())?;
        let out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout());
        return report("exported", runtime.block_on(transfer::export(&settings, args.with_tokens, out)));
    }
    if args.buffers.is_some() {
        let words = "--buffers needs --data, --store or --config; a server knows its place for buffers";
        return Err(Failure::Usage(words.to_owned()));
    }
    runtime.block_on(async {
        let content = connection.open(format)?.client.export(args.with_tokens).await?;
        copy_lines(content).await
    })
}

/// Prints the lines of a server. The last one says whether they are all.
async fn copy_lines(mut content: Content) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let mut last = Vec::new();
    while let Some(piece) = content.next().await? {
        out.write_all(&piece)?;
        let body = piece.strip_suffix(b"\n").unwrap_or(&piece);
        // The last line is short.
        match body.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => last = piece[end + 1..].to_vec(),
            None if last.ends_with(b"\n") => last = piece.to_vec(),
            None => last.extend_from_slice(&piece),
        }
    }
    out.flush()?;
    match transfer::last_line(&last) {
        Ok(exported) => report("exported", Ok(exported)),
        Err(words) => {
            Err(Failure::Refused(format!("the export is not complete: {words}; run the command again")))
        }
    }
}

pub fn import(args: ImportArgs, connection: &Connection, format: Option<Format>) -> Result<(), Failure> {
    if let (Some(Origin::Cyclotron), Some(url)) = (args.from, args.database) {
        let import = CyclotronImport {
            url,
            password_file: args.password_file,
            with_running: args.with_running,
            dead_letters: args.dead_letters,
            queues: args.queue.into_iter().collect(),
        };
        return runtime()?.block_on(async { cyclotron::run(&connection.open(format)?, import).await });
    }
    if !args.store.is_named() {
        if args.buffers.is_some() || args.adopt_buffers {
            let words = "--buffers and --adopt-buffers need --data, --store or --config; a server knows its place for buffers";
            return Err(Failure::Usage(words.to_owned()));
        }
        return send(connection, format);
    }
    let mut settings = args.store.settings_with_buffers(args.buffers.as_ref())?;
    settings.adopt_buffers = args.adopt_buffers;
    let input = BufReader::with_capacity(BUFFER_BYTES, io::stdin());
    let moved = runtime()?.block_on(transfer::import(&settings, input));
    report("imported", moved)
}

/// Sends standard input to a server.
fn send(connection: &Connection, format: Option<Format>) -> Result<(), Failure> {
    if connection.token_is_standard_input() {
        let words =
            "--token-file - and the export cannot both be standard input; use a file or TOWLINE_TOKEN";
        return Err(Failure::Usage(words.to_owned()));
    }
    let client = connection.open(format)?.client;
    let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
    let unread = Arc::new(Mutex::new(None));
    let failed = Arc::clone(&unread);
    std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        let mut input = BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock());
        while let Some(piece) = next_piece(&mut input).transpose() {
            let piece = piece.map_err(|error| {
                let kind = error.kind();
                *failed.lock() = Some(error);
                kind.into()
            });
            let ends = piece.is_err();
            // The server may have refused the export already.
            if sender.blocking_send(piece).is_err() || ends {
                return;
            }
        }
    })?;
    let imported = runtime()?.block_on(client.import(pieces));
    if let Some(error) = unread.lock().take() {
        return report("imported", Err(TransferError::Input(error)));
    }
    report("imported", Ok(imported?))
}

/// What can be read at once. `None` at the end.
fn next_piece(input: &mut impl BufRead) -> io::Result<Option<Bytes>> {
    let piece = Bytes::copy_from_slice(input.fill_buf()?);
    input.consume(piece.len());
    Ok((!piece.is_empty()).then_some(piece))
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
