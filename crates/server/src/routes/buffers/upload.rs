//! Writing a buffer with one request, for programs that do not know chunks. The server splits the body into chunks and hashes them.

use super::{describe, writable};
use crate::app::App;
use crate::request::{BodyMemory, BufferPath, Frames, NoQuery, broken_off, excerpt, silent};
use crate::response::{ProblemResponse, Responder, run_blocking_if_large};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::FutureExt;
use http::HeaderMap;
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use std::pin::Pin;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Sleep;
use towline_api::buffer::BufferShown;
use towline_api::{CHUNK_BYTES, Code, chain};
use towline_broker::entropy;
use towline_buffers::{Buffers, NewChunk, Position, WriterId};

const PARALLEL: usize = 4;
/// If the client pauses for this long, the server stores what it has, so that readers see it.
const PAUSE: Duration = Duration::from_secs(1);
/// A client that sends without pauses, but slowly, does not hold the memory of a chunk for longer than this.
const CHUNK_AGE_MAX: Duration = Duration::from_secs(5);
/// How long an upload waits for memory before it fails.
const MEMORY_WAIT: Duration = Duration::from_secs(30);
const TOUCH_INTERVAL: Duration = Duration::from_secs(10);
/// Longer than for other bodies: the program that produces the data may be slow.
const SILENCE_MAX: Duration = Duration::from_secs(300);
const CONTENT_DIGEST: &str = "content-digest";

/// Write a whole buffer with one request. If the body is incomplete, the buffer fails.
#[utoipa::path(put, path = "/v1/buffers/{id}/content", operation_id = "write_buffer", tag = "buffers", security(("token" = ["buffer:write or the lease of an item"])),
    params(
        ("id" = String, Path),
        ("Content-Digest" = Option<String>, Header, description = "`sha-256=:<base64>:`. If the content does not match, the buffer fails"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The content, of any length"),
    responses(
        (status = 200, description = "The complete buffer.", body = BufferShown),
        (status = 409, description = "The buffer is being written, is complete, or failed."),
        (status = 422, description = "The content does not match the digest."),
    ))]
pub(crate) async fn put(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    BufferPath(id): BufferPath,
    request: Request,
) -> Result<Response, ProblemResponse> {
    let digest = digest(request.headers())?;
    let buffers = writable(&app, &id).await?.clone();
    let writer = WriterId::from_bytes(entropy::bytes());
    buffers.begin(&id, writer, app.now().0).await?;
    let mut upload = Upload {
        app,
        buffers,
        id,
        writer,
        position: Position::START,
        in_flight: JoinSet::new(),
        chunk: None,
    };
    // In a separate task: if the client disconnects, this call ends, and the buffer must still be marked as failed.
    let written = tokio::spawn(async move {
        let result = upload.run(request.into_body(), digest).await;
        if let Err((_, reason)) = &result {
            upload.in_flight.shutdown().await;
            let Upload { app, buffers, id, writer, .. } = &upload;
            if let Err(error) = buffers.fail(id, *writer, reason, app.now().0).await {
                tracing::warn!("cannot mark buffer {id:?} as failed: {error}");
            }
        }
        result.map_err(|(problem, _)| problem)
    });
    let buffer = written.await.map_err(|error| ProblemResponse::new(Code::Internal, error.to_string()))??;
    respond.with(&buffer)
}

/// The response to the writer, and the reason for readers of the buffer.
type UploadFailure = (ProblemResponse, String);

struct Upload {
    app: App,
    buffers: Buffers,
    id: String,
    writer: WriterId,
    /// The position after all chunks that were sent to the storage.
    position: Position,
    in_flight: JoinSet<Result<(), ProblemResponse>>,
    chunk: Option<PartialChunk>,
}

/// A chunk whose data is arriving, and the memory reserved for it.
struct PartialChunk {
    frames: Frames,
    memory: BodyMemory,
    /// Elapses when the chunk must be stored even if it is small.
    old: Pin<Box<Sleep>>,
}

impl PartialChunk {
    fn new(app: &App) -> PartialChunk {
        let old = Box::pin(tokio::time::sleep(CHUNK_AGE_MAX));
        PartialChunk { frames: Frames::default(), memory: BodyMemory::new(&app.body_room), old }
    }
}

impl Upload {
    async fn run(&mut self, mut body: Body, digest: Option<Vec<u8>>) -> Result<BufferShown, UploadFailure> {
        let mut sha256 = digest.as_ref().map(|_| Sha256::new());
        let mut silent_for = Duration::ZERO;
        loop {
            let pause = if self.chunk.is_some() { PAUSE } else { TOUCH_INTERVAL };
            let Ok(frame) = tokio::time::timeout(pause, body.frame()).await else {
                silent_for += pause;
                if silent_for > SILENCE_MAX {
                    return Err((silent(SILENCE_MAX), "the writer was silent for too long".to_owned()));
                }
                if self.chunk.is_some() {
                    self.send().await?;
                } else {
                    self.touch().await?;
                }
                continue;
            };
            silent_for = Duration::ZERO;
            let mut data = match frame {
                None => break,
                Some(Err(error)) => {
                    return Err((broken_off(&error), "the writer disconnected".to_owned()));
                }
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            if let Some(sha256) = &mut sha256 {
                sha256.update(&data);
            }
            while !data.is_empty() {
                let room = CHUNK_BYTES - self.chunk.as_ref().map_or(0, |chunk| chunk.frames.len());
                self.add(data.split_to(room.min(data.len()))).await?;
            }
            if self.chunk.as_mut().is_some_and(|chunk| (&mut chunk.old).now_or_never().is_some()) {
                self.send().await?;
            }
        }
        self.send().await?;
        while let Some(stored) = self.in_flight.join_next().await {
            check_stored(stored)?;
        }
        if sha256.map(|sha256| sha256.finalize().to_vec()) != digest {
            let detail = format!(
                "the content of buffer {:?} does not match the digest; write another buffer",
                self.id
            );
            let reason = "the content does not match the digest".to_owned();
            return Err((ProblemResponse::new(Code::HashMismatch, detail), reason));
        }
        let now_ms = self.app.now().0;
        writable(&self.app, &self.id).await.map_err(storage_failure)?;
        self.buffers
            .finish(&self.id, self.writer, self.position, now_ms)
            .await
            .map_err(|error| storage_failure(error.into()))?;
        let buffer =
            self.buffers.show(&self.id, now_ms).await.map_err(|error| storage_failure(error.into()))?;
        Ok(describe(buffer))
    }

    async fn touch(&self) -> Result<(), UploadFailure> {
        writable(&self.app, &self.id).await.map_err(storage_failure)?;
        self.buffers
            .touch(&self.id, self.writer, self.app.now().0)
            .await
            .map_err(|error| storage_failure(error.into()))
    }

    /// Adds data that fits into the current chunk. The memory of a chunk is reserved as its data arrives.
    async fn add(&mut self, data: Bytes) -> Result<(), UploadFailure> {
        let chunk = self.chunk.get_or_insert_with(|| PartialChunk::new(&self.app));
        if !chunk.memory.try_grow(chunk.frames.len() + data.len(), 0) {
            // Without a partial chunk, this upload holds no memory while it waits for some.
            self.send().await?;
            while let Some(stored) = self.in_flight.join_next().await {
                check_stored(stored)?;
            }
            let chunk = self.chunk.insert(PartialChunk::new(&self.app));
            chunk.memory.grow_within(MEMORY_WAIT, data.len()).await.map_err(storage_failure)?;
        }
        let chunk = self.chunk.get_or_insert_with(|| PartialChunk::new(&self.app));
        chunk.frames.push(data);
        if chunk.frames.len() == CHUNK_BYTES {
            self.send().await?;
        }
        Ok(())
    }

    /// Sends the current chunk to the storage, if there is one.
    async fn send(&mut self) -> Result<(), UploadFailure> {
        let Some(PartialChunk { mut frames, memory, .. }) = self.chunk.take() else { return Ok(()) };
        let data = frames.take();
        if data.is_empty() {
            return Ok(());
        }
        while self.in_flight.len() >= PARALLEL {
            if let Some(stored) = self.in_flight.join_next().await {
                check_stored(stored)?;
            }
        }
        let length: usize = data.iter().map(Bytes::len).sum();
        let hash = run_blocking_if_large(length, || chain::hash(data.iter().map(|part| &part[..])));
        let n = self.position.chunks;
        self.position = self.position.after(length as u64, &hash);
        let after = self.position.chain;
        let (app, buffers, id, writer) =
            (self.app.clone(), self.buffers.clone(), self.id.clone(), self.writer);
        self.in_flight.spawn(async move {
            writable(&app, &id).await?;
            buffers.put_chunk(&id, writer, NewChunk { n, hash, chain: after, data }, app.now().0).await?;
            drop(memory);
            Ok(())
        });
        Ok(())
    }
}

fn storage_failure(problem: ProblemResponse) -> UploadFailure {
    (problem, "the server could not store the content".to_owned())
}

fn check_stored(
    stored: Result<Result<(), ProblemResponse>, tokio::task::JoinError>,
) -> Result<(), UploadFailure> {
    stored
        .unwrap_or_else(|error| Err(ProblemResponse::new(Code::Internal, error.to_string())))
        .map_err(storage_failure)
}

/// `sha-256=:<base64>:` (RFC 9530).
fn digest(headers: &HeaderMap) -> Result<Option<Vec<u8>>, ProblemResponse> {
    let Some(value) = headers.get(CONTENT_DIGEST) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let encoded = text.strip_prefix("sha-256=:").and_then(|rest| rest.strip_suffix(':'));
    let digest =
        encoded.and_then(|encoded| STANDARD.decode(encoded).ok()).filter(|digest| digest.len() == 32);
    digest.map(Some).ok_or_else(|| {
        let detail =
            format!("header {CONTENT_DIGEST}: {:?}; use sha-256=:<base64 of 32 bytes>:", excerpt(text));
        ProblemResponse::new(Code::Invalid, detail)
    })
}
