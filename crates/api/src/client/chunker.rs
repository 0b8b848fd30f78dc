//! Splits an input into chunks.

use crate::CHUNK_BYTES;
use crate::chain::{self, Hash};
use bytes::{BufMut, Bytes, BytesMut};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

/// After a pause of this length the chunker sends what it has, so that readers see it.
pub const INPUT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How many chunks are read in advance.
pub const CHUNKS_AHEAD: usize = 1;

/// What an input yields.
#[derive(Debug)]
pub enum InputEvent {
    Chunk(Chunk),
    /// The input ended. A channel that closes without this event broke off.
    End,
    Failed(io::Error),
}

/// The data of a chunk, never empty, and its hash.
#[derive(Debug, Clone)]
pub struct Chunk {
    pub(super) data: Bytes,
    pub(super) hash: Hash,
}

impl Chunk {
    /// `None` if `data` is empty.
    #[must_use]
    pub fn new(data: Bytes) -> Option<Chunk> {
        let hash = chain::hash([&data[..]]);
        (!data.is_empty()).then_some(Chunk { data, hash })
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    #[must_use]
    pub fn hash(&self) -> &Hash {
        &self.hash
    }
}

/// Reads in a separate task, which ends with the input or with the receiver.
pub fn chunk_input(input: impl AsyncRead + Unpin + Send + 'static) -> mpsc::Receiver<InputEvent> {
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    tokio::spawn(async move {
        let mut input = input;
        loop {
            let (data, end) = fill(&mut input).await;
            if let Some(chunk) = Chunk::new(data)
                && sender.send(InputEvent::Chunk(chunk)).await.is_err()
            {
                return;
            }
            if let Some(end) = end {
                let _ = sender.send(end).await;
                return;
            }
        }
    });
    receiver
}

/// Reads until a chunk is full, or until the input pauses or ends.
async fn fill(input: &mut (impl AsyncRead + Unpin)) -> (Bytes, Option<InputEvent>) {
    let mut data = BytesMut::with_capacity(CHUNK_BYTES);
    while data.len() < CHUNK_BYTES {
        let pause = if data.is_empty() { Duration::MAX } else { INPUT_PAUSE_MAX };
        let room = CHUNK_BYTES - data.len();
        let mut into = (&mut data).limit(room);
        let end = match tokio::time::timeout(pause, input.read_buf(&mut into)).await {
            Err(_) => break,
            Ok(Ok(0)) => InputEvent::End,
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => InputEvent::Failed(error),
        };
        return (data.freeze(), Some(end));
    }
    (data.freeze(), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    async fn lengths(mut events: mpsc::Receiver<InputEvent>) -> (Vec<usize>, String) {
        let mut lengths = Vec::new();
        loop {
            match events.recv().await {
                Some(InputEvent::Chunk(chunk)) => lengths.push(chunk.len()),
                end => return (lengths, format!("{end:?}")),
            }
        }
    }

    #[tokio::test]
    async fn an_input_splits_into_full_chunks_and_a_rest() {
        for (bytes, expected) in [
            (0, vec![]),
            (1, vec![1]),
            (CHUNK_BYTES, vec![CHUNK_BYTES]),
            (2 * CHUNK_BYTES + 5, vec![CHUNK_BYTES, CHUNK_BYTES, 5]),
        ] {
            let input = io::Cursor::new(vec![7; bytes]);
            assert_eq!(lengths(chunk_input(input)).await, (expected, "Some(End)".to_owned()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_input_pause_sends_a_short_chunk() {
        let (mut near, far) = tokio::io::duplex(100);
        let mut events = chunk_input(far);
        near.write_all(b"first").await.unwrap();
        assert!(matches!(events.recv().await, Some(InputEvent::Chunk(chunk)) if chunk.len() == 5));
        // A silent input sends nothing, however long it is silent.
        assert!(tokio::time::timeout(INPUT_PAUSE_MAX * 1000, events.recv()).await.is_err());
        near.write_all(b"more").await.unwrap();
        drop(near);
        assert_eq!(lengths(events).await, (vec![4], "Some(End)".to_owned()));
    }

    #[tokio::test]
    async fn an_input_that_fails_does_not_end() {
        let broken = torn();
        let (lengths, end) = lengths(chunk_input(broken)).await;
        assert_eq!(lengths, [3]);
        assert!(end.contains("Failed") && end.contains("torn"), "{end}");
    }

    fn torn() -> impl AsyncRead + Unpin + Send + 'static {
        struct Torn(bool);
        impl AsyncRead for Torn {
            fn poll_read(
                mut self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
                into: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                if std::mem::replace(&mut self.0, true) {
                    return std::task::Poll::Ready(Err(io::Error::other("torn")));
                }
                into.put_slice(b"abc");
                std::task::Poll::Ready(Ok(()))
            }
        }
        Torn(false)
    }
}
