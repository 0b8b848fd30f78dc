//! Calls about buffers. [`Upload`](super::Upload) writes and [`Download`](super::Download) reads a whole
//! buffer.

use super::transport::{Call, HttpAnswer, Repeat, Transport, text};
use super::{Client, ClientError, Result, segment};
use crate::buffer::{
    self, AdoptChunk, BeginBuffer, BufferPage, BufferShown, FailBuffer, FinishBuffer, NewBuffer,
};
use crate::buffer::{SignGet, SignPut, SignedRequest, TouchBuffer, WriterPosition};
use crate::chain::{Hash, Position};
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::ops::Range;
use std::time::Duration;
use towline_domain::BufferStateKind;

/// Finishing a buffer checks every chunk.
const FINISH_LIMIT: Duration = Duration::from_secs(600);
/// Copying a buffer reads and writes every byte.
const COPY_LIMIT: Duration = Duration::from_secs(6 * 3600);

/// A filter of buffers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BufferQuery {
    /// Tags as `(key, value)`. All must match.
    pub tags: Vec<(String, String)>,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

/// A chunk as it was received. Its hash is not checked yet.
#[derive(Debug, Clone)]
pub struct ChunkRead {
    /// The data, in order. Empty if the caller asked only for the head.
    pub pieces: Vec<Bytes>,
    pub length: u64,
    pub hash: Hash,
    pub chain: Hash,
}

/// The result of looking for a chunk by its number.
#[derive(Debug, Clone)]
pub enum ChunkLookup {
    Chunk(ChunkRead),
    /// The buffer is complete and has no chunk of this number.
    End(Position),
    /// The chunk is not written yet. Ask again.
    NotYet,
}

/// The bytes of an answer, as they arrive.
#[derive(Debug)]
pub struct Content {
    pub(super) body: Incoming,
    pub(super) transport: Transport,
}

impl Content {
    /// `None` after the last bytes. A broken connection is an error, never an end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| self.transport.unreachable(&error))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

impl Client {
    /// Creates a buffer. A repeated call creates another one.
    pub async fn create_buffer(&self, new: &NewBuffer) -> Result<BufferShown> {
        let call = Call::new(Method::POST, "/v1/buffers".to_owned(), Repeat::Unsafe);
        self.transport.call(self.transport.body(call, new)?).await
    }

    pub async fn buffer(&self, id: &str) -> Result<BufferShown> {
        self.transport.call(Call::get(path(id, "")?)).await
    }

    /// Returns a page of buffers in order of id.
    pub async fn buffers(&self, query: &BufferQuery) -> Result<BufferPage> {
        let mut pairs = Vec::new();
        pairs.extend(query.limit.map(|limit| ("limit", limit.to_string())));
        pairs.extend(query.cursor.clone().map(|cursor| ("cursor", cursor)));
        pairs.extend(query.tags.iter().map(|(name, value)| ("tag", format!("{name}={value}"))));
        self.transport.call(Call::get("/v1/buffers".to_owned()).query(pairs)).await
    }

    pub async fn delete_buffer(&self, id: &str) -> Result<()> {
        self.transport.call_empty(Call::new(Method::DELETE, path(id, "")?, Repeat::Unsafe)).await
    }

    /// Copies a complete buffer within object storage.
    pub async fn copy_buffer(&self, id: &str, new: &NewBuffer) -> Result<BufferShown> {
        let call = Call::new(Method::POST, path(id, "/copy")?, Repeat::Unsafe).within(COPY_LIMIT);
        self.transport.call(self.transport.body(call, new)?).await
    }

    /// Starts writing. The same writer again resumes and gets its position.
    pub async fn begin_buffer(&self, id: &str, writer: &str) -> Result<Position> {
        let call = Call::new(Method::POST, path(id, "/writer")?, Repeat::Safe);
        let body = BeginBuffer { writer: Some(writer.to_owned()) };
        let at: WriterPosition = self.transport.call(self.transport.body(call, &body)?).await?;
        Position::try_from(at).map_err(|refusal| self.transport.misunderstood(refusal.to_string()))
    }

    /// Stores a chunk. The chunk is durable when this returns. A repeat is acknowledged.
    pub async fn put_chunk(
        &self,
        id: &str,
        writer: &str,
        n: u32,
        hash: &Hash,
        chain: &Hash,
        data: Bytes,
    ) -> Result<()> {
        let call = Call::new(Method::PUT, path(id, &format!("/chunks/{n}"))?, Repeat::Safe)
            .header(buffer::WRITER, writer)?
            .header(buffer::HASH, &hash.to_hex())?
            .header(buffer::CHAIN, &chain.to_hex())?;
        self.transport.call_empty(call.raw(data)).await
    }

    /// Keeps a writer alive while it has nothing to send.
    pub async fn touch_buffer(&self, id: &str, writer: &str) -> Result<()> {
        let call = Call::new(Method::POST, path(id, "/touch")?, Repeat::Safe);
        self.transport
            .call_empty(self.transport.body(call, &TouchBuffer { writer: writer.to_owned() })?)
            .await
    }

    /// Completes a buffer, if all chunks are stored.
    pub async fn finish_buffer(&self, id: &str, writer: &str, totals: &Position) -> Result<BufferShown> {
        let call = Call::new(Method::POST, path(id, "/finish")?, Repeat::Safe).within(FINISH_LIMIT);
        let Position { chunks, bytes, chain } = *totals;
        let body = FinishBuffer { writer: writer.to_owned(), chunks, bytes, chain: chain.into() };
        self.transport.call(self.transport.body(call, &body)?).await
    }

    /// Fails a buffer.
    pub async fn fail_buffer(&self, id: &str, writer: &str, reason: &str) -> Result<BufferShown> {
        let call = Call::new(Method::POST, path(id, "/fail")?, Repeat::Safe);
        let body = FailBuffer { writer: writer.to_owned(), reason: Some(reason.to_owned()) };
        self.transport.call(self.transport.body(call, &body)?).await
    }

    /// Returns chunk `n`. While the buffer is being written, waits for it up to `wait` (at most 5 minutes).
    pub async fn chunk(&self, id: &str, n: u32, wait: Duration) -> Result<ChunkLookup> {
        self.chunk_by(Method::GET, id, n, wait).await
    }

    /// Returns chunk `n` without its data.
    pub async fn chunk_head(&self, id: &str, n: u32) -> Result<ChunkLookup> {
        self.chunk_by(Method::HEAD, id, n, Duration::ZERO).await
    }

    async fn chunk_by(&self, method: Method, id: &str, n: u32, wait: Duration) -> Result<ChunkLookup> {
        let call = Call::new(method, path(id, &format!("/chunks/{n}"))?, Repeat::Safe);
        let wait_ms = (!wait.is_zero()).then(|| ("wait", format!("{}ms", wait.as_millis())));
        let answer = self.transport.exchange(call.query(wait_ms).waiting(wait)).await?;
        lookup(answer).map_err(|what| self.transport.misunderstood(what))
    }

    /// Reads a range of bytes (to the end: `start..u64::MAX`). The server checks the hashes. The client
    /// checks only the length; to check the hashes here too, use [`Download`](super::Download).
    pub async fn content(&self, id: &str, range: Range<u64>) -> Result<Content> {
        if range.is_empty() {
            return Err(ClientError::invalid(format!("the range {}..{} is empty", range.start, range.end)));
        }
        let mut call = Call::get(path(id, "/content")?).waiting(Duration::MAX);
        if range != (0..u64::MAX) {
            let last = range.end.checked_sub(1).filter(|last| *last < u64::MAX - 1);
            let last = last.map(|last| last.to_string()).unwrap_or_default();
            call = call.header("range", &format!("bytes={}-{last}", range.start))?;
        }
        let response = self.transport.open(call).await?;
        Ok(Content { body: response.into_body(), transport: self.transport.clone() })
    }

    /// Signs a request that uploads chunk `n` directly to object storage.
    pub async fn sign_put(&self, id: &str, n: u32, sign: &SignPut) -> Result<SignedRequest> {
        let call = Call::new(Method::POST, path(id, &format!("/chunks/{n}/sign_put"))?, Repeat::Safe);
        self.transport.call(self.transport.body(call, sign)?).await
    }

    /// Signs a request that downloads chunk `n` directly from object storage.
    pub async fn sign_get(&self, id: &str, n: u32, sign: &SignGet) -> Result<SignedRequest> {
        let call = Call::new(Method::POST, path(id, &format!("/chunks/{n}/sign_get"))?, Repeat::Safe);
        self.transport.call(self.transport.body(call, sign)?).await
    }

    /// Adds a chunk that the writer uploaded directly to object storage.
    pub async fn adopt_chunk(&self, id: &str, n: u32, adopt: &AdoptChunk) -> Result<()> {
        let call = Call::new(Method::POST, path(id, &format!("/chunks/{n}/adopt"))?, Repeat::Safe);
        self.transport.call_empty(self.transport.body(call, adopt)?).await
    }
}

fn lookup(answer: HttpAnswer) -> std::result::Result<ChunkLookup, String> {
    let headers = &answer.headers;
    if answer.status != StatusCode::NO_CONTENT {
        let (hash, chain) = (parse(headers, buffer::HASH)?, parse(headers, buffer::CHAIN)?);
        let length = parse(headers, CONTENT_LENGTH.as_str())?;
        return Ok(ChunkLookup::Chunk(ChunkRead { pieces: answer.pieces, length, hash, chain }));
    }
    if field(headers, buffer::STATE) != BufferStateKind::Complete.name() {
        return Ok(ChunkLookup::NotYet);
    }
    Ok(ChunkLookup::End(Position {
        chunks: parse(headers, buffer::CHUNKS)?,
        bytes: parse(headers, buffer::BYTES)?,
        chain: parse(headers, buffer::CHAIN)?,
    }))
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    HeaderName::try_from(name).map_or("", |name| text(headers, &name))
}

fn parse<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> std::result::Result<T, String> {
    let value = field(headers, name);
    value.parse().map_err(|_| format!("header {name}: {value:?}"))
}

fn path(id: &str, rest: &str) -> Result<String> {
    match segment(id) {
        Ok(id) => Ok(format!("/v1/buffers/{id}{rest}")),
        Err(_) => {
            let shown: String = id.chars().take(100).collect();
            Err(ClientError::invalid(format!(
                "{shown:?} is no id of a buffer: use letters, digits, \".\", \"_\" and \"-\""
            )))
        }
    }
}
