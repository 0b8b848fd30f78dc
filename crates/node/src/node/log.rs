//! The log of what runs under a lease: a buffer that is created with its first line.

use super::Shared;
use super::copy::{bytes, discard};
use super::holds::Hold;
use crate::runner::{LogCap, Logs, OutputPipe};
use crate::{clock, entropy};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use towline_api::client::Upload;
use towline_api::client::chunker::{Chunk, InputEvent};
use towline_api::{Client, ClientError, ItemId, LeaseToken};

/// A log that is being written. It may have the output of several processes, one after the other.
pub(super) struct LogWriter {
    events: mpsc::Sender<InputEvent>,
    has_begun: watch::Receiver<bool>,
    writing: JoinHandle<Result<(), ClientError>>,
}

/// A log that has ended.
pub(super) struct Finished {
    /// Whether it has a line.
    pub(super) logged: bool,
    /// Why it is not whole.
    pub(super) incomplete: Option<String>,
}

impl LogWriter {
    pub(super) fn new(node: &Arc<Shared>, hold: &Hold) -> LogWriter {
        let (events, input) = mpsc::channel(4);
        let (begun, has_begun) = watch::channel(false);
        let client = node.client.clone();
        let writing = tokio::spawn(write(client, (hold.id, hold.lease), input, begun));
        LogWriter { events, has_begun, writing }
    }

    /// Adds what a process writes, until it has ended.
    pub(super) async fn add(&self, stdout: OutputPipe, stderr: OutputPipe) {
        let mut logs = Logs::new(stdout, stderr, LogCap::default(), clock::log_time);
        // Reads to the end also if the log cannot be written, so that the process does not block.
        while let Some(lines) = logs.next_chunk().await {
            if let Some(chunk) = Chunk::new(bytes(lines)) {
                let _ = self.events.send(InputEvent::Chunk(chunk)).await;
            }
        }
    }

    /// Whether the log has a line.
    pub(super) fn has_begun(&self) -> bool {
        *self.has_begun.borrow()
    }

    /// Completes when the log has a line.
    pub(super) async fn begun(&self) {
        let mut has_begun = self.has_begun.clone();
        if has_begun.wait_for(|begun| *begun).await.is_err() {
            std::future::pending().await
        }
    }

    /// Completes the log.
    pub(super) async fn finish(self) -> Finished {
        let _ = self.events.send(InputEvent::End).await;
        drop(self.events);
        let incomplete = match self.writing.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        let incomplete = incomplete.map(|why| format!("its log is incomplete: {why}"));
        Finished { logged: *self.has_begun.borrow(), incomplete }
    }
}

async fn write(
    client: Client,
    (id, lease): (ItemId, LeaseToken),
    mut input: mpsc::Receiver<InputEvent>,
    begun: watch::Sender<bool>,
) -> Result<(), ClientError> {
    let Some(first @ InputEvent::Chunk(_)) = input.recv().await else { return Ok(()) };
    let written = begin(client, (id, lease), first, &mut input, begun).await;
    if written.is_err() {
        while input.recv().await.is_some() {}
    }
    written
}

async fn begin(
    client: Client,
    (id, lease): (ItemId, LeaseToken),
    first: InputEvent,
    input: &mut mpsc::Receiver<InputEvent>,
    begun: watch::Sender<bool>,
) -> Result<(), ClientError> {
    let buffer = client.create_run_log(id, lease).await?;
    let mut upload = Upload::begin(client, &buffer, &entropy::digits()).await?;
    begun.send_replace(true);
    let (forward, events) = mpsc::channel(1);
    let feed = async {
        let mut next = Some(first);
        while let Some(event) = next {
            if forward.send(event).await.is_err() {
                return;
            }
            next = input.recv().await;
        }
        drop(forward);
    };
    let (uploaded, ()) = tokio::join!(upload.run(events, |_| ()), feed);
    match uploaded {
        Ok(_) => Ok(()),
        Err(towline_api::client::UploadError::Client(error)) => Err(error),
        Err(towline_api::client::UploadError::Input(error)) => {
            upload.fail("the node stopped").await?;
            Err(ClientError::Configuration(error.to_string()))
        }
    }
}

/// Reads and drops what a process writes.
pub(super) async fn discard_both(stdout: OutputPipe, stderr: OutputPipe) {
    tokio::join!(discard(stdout), discard(stderr));
}
