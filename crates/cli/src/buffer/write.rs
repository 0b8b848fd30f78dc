//! `towline buffer write`.

use super::input::Input;
use super::{WRITE_PATIENCE, progress, resume};
use crate::connect::Session;
use crate::entropy;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use towline_api::client::{Upload, UploadError};
use towline_api::{ClientError, Code};

/// Telling readers that a buffer failed must not hold up whoever pressed ctrl-C.
const FAIL_PATIENCE: Duration = Duration::from_secs(5);

/// Write a buffer: standard input, or a file, to its end.
///
/// A buffer is written once. Readers see the bytes as they are written, and the end when all of them are safe. If the
/// input fails, or on ctrl-C, the buffer is marked as failed, and its readers are told.
#[derive(Debug, Args)]
pub struct WriteArgs {
    /// The buffer's id.
    #[arg(value_name = "BUFFER")]
    id: String,
    /// Read this file in place of standard input.
    #[arg(long, short, value_name = "PATH")]
    input: Option<PathBuf>,
    /// Go on where an earlier `write --resume` of the same file was cut off.
    #[arg(long, requires = "input")]
    resume: bool,
}

pub async fn run(session: &Session, args: WriteArgs) -> Result<(), Failure> {
    let WriteArgs { id, input: path, resume } = args;
    let mut input = Input::open(path.as_deref())?;
    // Told at once, before a pipe full of bytes is read.
    session.client.buffer(&id).await?;
    let client = session.client.clone().retry_for(WRITE_PATIENCE);
    let writer = match path.as_deref().filter(|_| resume) {
        Some(path) if input.length().is_some() => resume::writer(&id, path)?,
        Some(path) => return Err(Failure::Usage(format!("--resume: {} is not a file", path.display()))),
        None => entropy::bytes()?,
    };
    let interrupt = Interrupt::listen()?;
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
        Some(Ok(_)) => return Ok(()),
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
    // It fails by itself when its writer has been silent for long enough.
    let _ = tokio::time::timeout(FAIL_PATIENCE, upload.fail(&reason)).await;
    Err(failure)
}

/// Whether there is nothing left to be marked as failed, or nobody to tell.
fn is_over(error: &ClientError) -> bool {
    let codes = [Code::BufferFailed, Code::BufferNotFound, Code::BufferWritten];
    !matches!(error, ClientError::Refused(_)) || error.code().is_some_and(|code| codes.contains(&code))
}

fn hexadecimal(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
