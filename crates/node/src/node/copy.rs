//! Copies between buffers and the pipes of a command.

use crate::runner::{InputPipe, OutputPipe};
use bytes::Bytes;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use towline_api::chain::Position;
use towline_api::client::chunker::{InputEvent, chunk_input};
use towline_api::client::{Download, Upload, UploadError};
use towline_api::{Client, ClientError, Code};

/// Why an input did not arrive whole.
#[derive(Debug, thiserror::Error)]
#[error("input {name:?} (buffer {buffer}) cannot be read: {error}")]
pub(super) struct InputError {
    name: String,
    buffer: String,
    #[source]
    pub(super) error: ClientError,
}

/// Writes a buffer to a pipe. A command that does not read its input to the end is fine.
pub(super) async fn feed(
    client: Client,
    name: String,
    buffer: String,
    mut pipe: InputPipe,
) -> Result<(), InputError> {
    let mut download = Download::new(client, &buffer, Position::START);
    loop {
        let pieces = match download.next().await {
            Ok(Some(pieces)) => pieces,
            Ok(None) => break,
            Err(error) => return Err(InputError { name, buffer, error }),
        };
        for piece in pieces {
            if let Err(error) = pipe.write_all(&piece).await {
                log_unless_closed(&name, &error);
                return Ok(());
            }
        }
    }
    Ok(())
}

fn log_unless_closed(name: &str, error: &io::Error) {
    if error.kind() != io::ErrorKind::BrokenPipe {
        tracing::warn!("cannot write input {name:?}: {error}");
    }
}

/// Whether the output is to be completed: the command succeeded. Dropping the sender means no.
pub(super) type Verdict = oneshot::Receiver<bool>;

/// Writes what a command writes to a pipe into a buffer. The buffer is complete only if the command succeeded; otherwise it fails.
pub(super) async fn collect(
    client: Client,
    buffer: String,
    writer: String,
    pipe: OutputPipe,
    verdict: Verdict,
) -> Result<(), ClientError> {
    let mut chunks = chunk_input(pipe);
    let mut upload = match Upload::begin(client, &buffer, &writer).await {
        Ok(upload) => upload,
        Err(error) => {
            // The command must not block on a full pipe.
            while chunks.recv().await.is_some() {}
            return Err(error);
        }
    };
    let (forward, judged) = mpsc::channel(1);
    let judging = tokio::spawn(judge(chunks, forward, verdict));
    let ended = upload.run(judged, |_| ()).await;
    match ended {
        Ok(_) => Ok(()),
        Err(UploadError::Input(_)) => upload.fail("the run did not succeed").await,
        Err(UploadError::Client(error)) => {
            // What is left is read and dropped.
            drop(judging.await);
            Err(error)
        }
    }
}

/// Passes chunks on, and lets the end pass only if the command succeeded.
async fn judge(mut chunks: mpsc::Receiver<InputEvent>, forward: mpsc::Sender<InputEvent>, verdict: Verdict) {
    let mut is_open = true;
    let mut end = InputEvent::Failed(io::ErrorKind::UnexpectedEof.into());
    while let Some(event) = chunks.recv().await {
        match event {
            InputEvent::Chunk(_) if is_open => is_open = forward.send(event).await.is_ok(),
            InputEvent::Chunk(_) => {}
            ended => end = ended,
        }
    }
    if !verdict.await.unwrap_or(false) {
        end = InputEvent::Failed(io::ErrorKind::Interrupted.into());
    }
    let _ = forward.send(end).await;
}

/// Reads and drops what a command writes.
pub(super) async fn discard(mut pipe: OutputPipe) {
    let mut bytes = vec![0; 64 << 10];
    while pipe.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}

/// Whether another try may help: the server could not be reached, or was overloaded.
pub(super) fn is_passing(error: &ClientError) -> bool {
    match error.code() {
        None => true,
        Some(code) => matches!(
            code,
            Code::Busy
                | Code::Stopping
                | Code::Unavailable
                | Code::StorageUnavailable
                | Code::DiskFull
                | Code::RateLimited
        ),
    }
}

/// The data of a chunk for a log.
pub(super) fn bytes(data: Vec<u8>) -> Bytes {
    data.into()
}
