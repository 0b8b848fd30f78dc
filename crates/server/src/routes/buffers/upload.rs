//! A buffer written by one request, for programs that know nothing of chunks: the server cuts, hashes and finishes.

use super::{shown, to_write};
use crate::answer::{Reply, aside};
use crate::app::App;
use crate::body::{Room, broken_off, silent};
use crate::path::BufferPath;
use crate::query::NoQuery;
use crate::refuse::Refused;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use std::time::Duration;
use tokio::task::JoinSet;
use towline_api::buffer::BufferShown;
use towline_api::{CHUNK_BYTES, Code, Problem, chain};
use towline_broker::entropy;
use towline_buffers::{Buffers, NewChunk, Position, WriterId};

const PARALLEL: usize = 4;
/// A sender that pauses for so long has what it sent stored, so that readers see it.
const PAUSE: Duration = Duration::from_secs(1);
const TOUCH_EVERY: Duration = Duration::from_secs(10);
/// Longer than other bodies are waited for: whatever fills a pipe may take its time.
const SILENCE_MAX: Duration = Duration::from_secs(300);
const CONTENT_DIGEST: &str = "content-digest";

/// Writes a whole buffer. A body that breaks off makes it fail.
#[utoipa::path(put, path = "/v1/buffers/{id}/content", operation_id = "write_buffer", tag = "buffers", security(("token" = ["buffer:write"])),
    params(
        ("id" = String, Path),
        ("Content-Digest" = Option<String>, Header, description = "`sha-256=:<base64>:`; another content is refused, and the buffer fails"),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "Any number of bytes"),
    responses(
        (status = 200, description = "The buffer, complete.", body = BufferShown),
        (status = 404, description = "There is no such buffer.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is being written, was written, or failed.", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The content has another digest.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(crate) async fn put(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    BufferPath(id): BufferPath,
    request: Request,
) -> Result<Response, Refused> {
    let digest = digest(request.headers())?;
    let room = Room::of(&app, (PARALLEL + 2) * CHUNK_BYTES)?;
    let buffers = to_write(&app, &id).await?.clone();
    let writer = WriterId::from_bytes(entropy::bytes());
    buffers.begin(&id, writer, app.now().0).await?;
    let mut upload = Upload { app, buffers, id, writer, at: Position::START, under_way: JoinSet::new() };
    // In a task of its own: a client that hangs up takes this call with it, and the buffer would be left unfinished.
    let written = tokio::spawn(async move {
        let _room = room;
        let ended = upload.run(request.into_body(), digest).await;
        if let Err((_, words)) = &ended {
            upload.under_way.shutdown().await;
            let Upload { app, buffers, id, writer, .. } = &upload;
            if let Err(error) = buffers.fail(id, *writer, words, app.now().0).await {
                tracing::warn!("buffer {id:?} could not be marked as failed: {error}");
            }
        }
        ended.map_err(|(refused, _)| refused)
    });
    let shown = written.await.map_err(|error| Refused::new(Code::Internal, error.to_string()))??;
    reply.with(&shown)
}

/// What is answered, and what readers are told.
type Failed = (Refused, String);

struct Upload {
    app: App,
    buffers: Buffers,
    id: String,
    writer: WriterId,
    /// After all chunks that are on their way.
    at: Position,
    under_way: JoinSet<Result<(), Refused>>,
}

impl Upload {
    async fn run(&mut self, mut body: Body, digest: Option<Vec<u8>>) -> Result<BufferShown, Failed> {
        let mut sha256 = digest.as_ref().map(|_| Sha256::new());
        let mut chunk = Vec::new();
        let mut length = 0;
        let mut silent_for = Duration::ZERO;
        loop {
            let pause = if chunk.is_empty() { TOUCH_EVERY } else { PAUSE };
            let Ok(frame) = tokio::time::timeout(pause, body.frame()).await else {
                silent_for += pause;
                if silent_for > SILENCE_MAX {
                    return Err((silent(SILENCE_MAX), "its writer was silent for too long".to_owned()));
                }
                match std::mem::take(&mut length) {
                    0 => self.touch().await?,
                    _ => self.send(std::mem::take(&mut chunk)).await?,
                }
                continue;
            };
            silent_for = Duration::ZERO;
            let mut data = match frame {
                None => break,
                Some(Err(error)) => {
                    return Err((broken_off(&error), "its writer broke off".to_owned()));
                }
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            if let Some(sha256) = &mut sha256 {
                sha256.update(&data);
            }
            while length + data.len() >= CHUNK_BYTES {
                chunk.push(data.split_to(CHUNK_BYTES - length));
                length = 0;
                self.send(std::mem::take(&mut chunk)).await?;
            }
            if !data.is_empty() {
                length += data.len();
                chunk.push(data);
            }
        }
        if !chunk.is_empty() {
            self.send(chunk).await?;
        }
        while let Some(stored) = self.under_way.join_next().await {
            acknowledged(stored)?;
        }
        if sha256.map(|sha256| sha256.finalize().to_vec()) != digest {
            let words = format!(
                "what came for buffer {:?} has another sha-256 than was said; write another",
                self.id
            );
            return Err((
                Refused::new(Code::HashMismatch, words),
                "it came with another digest than was said".to_owned(),
            ));
        }
        let now_ms = self.app.now().0;
        to_write(&self.app, &self.id).await.map_err(failed)?;
        self.buffers
            .finish(&self.id, self.writer, self.at, now_ms)
            .await
            .map_err(|error| failed(error.into()))?;
        let ended = self.buffers.show(&self.id, now_ms).await.map_err(|error| failed(error.into()))?;
        Ok(shown(ended))
    }

    async fn touch(&self) -> Result<(), Failed> {
        to_write(&self.app, &self.id).await.map_err(failed)?;
        self.buffers
            .touch(&self.id, self.writer, self.app.now().0)
            .await
            .map_err(|error| failed(error.into()))
    }

    async fn send(&mut self, data: Vec<Bytes>) -> Result<(), Failed> {
        while self.under_way.len() >= PARALLEL {
            if let Some(stored) = self.under_way.join_next().await {
                acknowledged(stored)?;
            }
        }
        let length: usize = data.iter().map(Bytes::len).sum();
        let hash = aside(length, || chain::hash(data.iter().map(|piece| &piece[..])));
        let n = self.at.chunks;
        self.at = self.at.after(length as u64, &hash);
        let chain = self.at.chain;
        let (app, buffers, id, writer) =
            (self.app.clone(), self.buffers.clone(), self.id.clone(), self.writer);
        self.under_way.spawn(async move {
            to_write(&app, &id).await?;
            buffers.put_chunk(&id, writer, NewChunk { n, hash, chain, data }, app.now().0).await?;
            Ok(())
        });
        Ok(())
    }
}

fn failed(refused: Refused) -> Failed {
    let words = "the server could not store it".to_owned();
    (refused, words)
}

fn acknowledged(stored: Result<Result<(), Refused>, tokio::task::JoinError>) -> Result<(), Failed> {
    stored.unwrap_or_else(|error| Err(Refused::new(Code::Internal, error.to_string()))).map_err(failed)
}

/// `sha-256=:<base64>:` (RFC 9530).
fn digest(headers: &HeaderMap) -> Result<Option<Vec<u8>>, Refused> {
    let Some(value) = headers.get(CONTENT_DIGEST) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let encoded = text.strip_prefix("sha-256=:").and_then(|rest| rest.strip_suffix(':'));
    let digest =
        encoded.and_then(|encoded| STANDARD.decode(encoded).ok()).filter(|digest| digest.len() == 32);
    digest.map(Some).ok_or_else(|| {
        let shown: String = text.chars().take(100).collect();
        let detail = format!("header {CONTENT_DIGEST}: {shown:?}; give sha-256=:<base64 of 32 bytes>:");
        Refused::new(Code::Invalid, detail)
    })
}
