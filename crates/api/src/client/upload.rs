//! Writes a whole buffer: sends chunks in parallel, repeats them after a broken connection, and keeps the
//! writer alive while the input is silent.

use super::chunker::{Chunk, InputEvent};
use super::{Client, ClientError, Result};
use crate::chain::Position;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How many chunks are sent at once.
const PARALLEL: usize = 4;
const TOUCH_EVERY: Duration = Duration::from_secs(10);

/// A buffer that this client writes. If it is dropped early, the buffer fails after the writer timeout;
/// [`Upload::fail`] fails it at once.
#[derive(Debug)]
pub struct Upload {
    client: Client,
    id: String,
    writer: String,
    /// The position after all chunks that were sent.
    at: Position,
}

/// Why a buffer was not completed.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("cannot read the input: {0}")]
    Input(io::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl Upload {
    /// `writer` is 32 random hexadecimal digits. The same writer again resumes.
    pub async fn begin(client: Client, id: &str, writer: &str) -> Result<Upload> {
        let at = client.begin_buffer(id, writer).await?;
        Ok(Upload { client, id: id.to_owned(), writer: writer.to_owned(), at })
    }

    /// What the server has. The input must continue from here.
    #[must_use]
    pub fn position(&self) -> Position {
        self.at
    }

    /// Sends an input to its end and completes the buffer. Calls `acknowledged` with the number of newly
    /// stored bytes.
    pub async fn run(
        &mut self,
        mut input: mpsc::Receiver<InputEvent>,
        mut acknowledged: impl FnMut(u64),
    ) -> std::result::Result<Position, UploadError> {
        let mut under_way: JoinSet<Result<u64>> = JoinSet::new();
        let mut idle = tokio::time::interval(TOUCH_EVERY);
        idle.reset();
        let end = loop {
            tokio::select! {
                Some(sent) = under_way.join_next() => {
                    acknowledged(joined(sent)?);
                    idle.reset();
                }
                event = input.recv(), if under_way.len() < PARALLEL => match event {
                    Some(InputEvent::Chunk(chunk)) => {
                        under_way.spawn(self.next(chunk));
                    }
                    Some(end) => break end,
                    None => break InputEvent::Failed(io::ErrorKind::UnexpectedEof.into()),
                },
                _ = idle.tick() => self.client.touch_buffer(&self.id, &self.writer).await?,
            }
        };
        if let InputEvent::Failed(error) = end {
            return Err(UploadError::Input(error));
        }
        while let Some(sent) = under_way.join_next().await {
            acknowledged(joined(sent)?);
        }
        self.client.finish_buffer(&self.id, &self.writer, &self.at).await?;
        Ok(self.at)
    }

    /// Fails the buffer, so that readers stop waiting.
    pub async fn fail(&self, reason: &str) -> Result<()> {
        self.client.fail_buffer(&self.id, &self.writer, reason).await.map(drop)
    }

    fn next(&mut self, chunk: Chunk) -> impl Future<Output = Result<u64>> + Send + 'static {
        let n = self.at.chunks;
        let length = chunk.data.len() as u64;
        self.at = self.at.after(length, &chunk.hash);
        let (client, id, writer, chain) =
            (self.client.clone(), self.id.clone(), self.writer.clone(), self.at.chain);
        async move {
            client.put_chunk(&id, &writer, n, &chunk.hash, &chain, chunk.data).await?;
            Ok(length)
        }
    }
}

/// Unwraps a task's result. These tasks are never aborted and do not panic.
fn joined(sent: std::result::Result<Result<u64>, tokio::task::JoinError>) -> Result<u64> {
    sent.unwrap_or_else(|error| Err(ClientError::Configuration(error.to_string())))
}
