//! `towline buffer write`.

use super::input::Input;
use super::{HeldArgs, WRITE_PATIENCE, resume};
use crate::connect::Session;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::{clock, entropy, output, progress};
use clap::Args;
use indicatif::HumanBytes;
use std::path::PathBuf;
use std::time::Duration;
use towline_api::client::{Upload, UploadError};
use towline_api::{ClientError, Code};

/// Marking the buffer as failed must not delay ctrl-C for longer than this.
const FAIL_PATIENCE: Duration = Duration::from_secs(5);

/// Write standard input or a file to a buffer.
///
/// A buffer is written once. Readers see the bytes as they are written. If the input fails, or on ctrl-C, the
/// buffer fails and its readers get an error. On a terminal, it ends with the size, the time and the hash.
#[derive(Debug, Args)]
pub struct WriteArgs {
    /// The buffer's id.
    #[arg(value_name = "BUFFER")]
    id: String,
    #[command(flatten)]
    held: HeldArgs,
    /// Read this file instead of standard input.
    #[arg(long, short, value_name = "PATH")]
    input: Option<PathBuf>,
    /// Continue an interrupted `write --resume` of the same file.
    #[arg(long, requires = "input")]
    resume: bool,
}

pub async fn run(session: &Session, args: WriteArgs) -> Result<(), Failure> {
    let WriteArgs { id, held, input: path, resume } = args;
    let mut input = Input::open(path.as_deref())?;
    // Report a missing buffer before reading a pipe full of bytes.
    let client = held.client(session)?;
    client.buffer(&id).await?;
    let client = client.retry_for(WRITE_PATIENCE);
    let writer = match path.as_deref().filter(|_| resume) {
        Some(path) if input.length().is_some() => resume::writer(&id, path)?,
        Some(path) => return Err(Failure::Usage(format!("--resume: {} is not a file", path.display()))),
        None => entropy::bytes()?,
    };
    let (interrupt, began) = (Interrupt::listen()?, clock::now());
    let mut upload = Upload::begin(client, &id, &hexadecimal(writer)).await?;
    let written = upload.position();
    let bar = progress::bar(input.length());
    resume::skip_written(input.file(), written)?;
    bar.set_position(written.bytes);
    let chunks = input.chunks()?;
    let ended = tokio::select! {
        ended = upload.run(chunks, |bytes| bar.inc(bytes)) => Some(ended),
        () = interrupt.raised() => None,
    };
    bar.finish_and_clear();
    let (failure, reason) = match ended {
        Some(Ok(end)) => {
            if bar.is_hidden() {
                return Ok(());
            }
            let seconds = clock::now().duration_since(began).as_secs_f64();
            let (bytes, size) = (end.bytes, HumanBytes(end.bytes));
            output::say(format!("wrote {bytes} bytes ({size}) in {seconds:.2} s; hash chain {}", end.chain));
            return Ok(());
        }
        Some(Err(UploadError::Input(error))) => {
            let words = format!("cannot read the input: {error}; buffer {id} is marked as failed");
            (Failure::Refused(words), format!("the input of its writer failed: {error}"))
        }
        Some(Err(UploadError::Client(error))) if is_over(&error) => return Err(error.into()),
        Some(Err(UploadError::Client(error))) => {
            let reason = format!("its writer was refused: {error}");
            (Failure::from(error), reason)
        }
        None => {
            let words = format!("interrupted; buffer {id} is marked as failed");
            (Failure::Refused(words), "its writer was interrupted".to_owned())
        }
    };
    // If this fails, the buffer fails after the writer timeout.
    let _ = tokio::time::timeout(FAIL_PATIENCE, upload.fail(&reason)).await;
    Err(failure)
}

/// Whether the buffer has ended already, or the server cannot be reached.
fn is_over(error: &ClientError) -> bool {
    let codes = [Code::BufferFailed, Code::BufferNotFound, Code::BufferWritten];
    !matches!(error, ClientError::Refused(_)) || error.code().is_some_and(|code| codes.contains(&code))
}

/// The token of a writer.
pub fn hexadecimal(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
