//! Presigned requests: a client sends chunks to the S3-compatible service, or gets them from there, past the server.

use std::time::Duration;

use http::header::{HeaderName, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Method};
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer};

use super::signed_length::sign_length;
use crate::id::check_id;
use crate::storage::ErrorContext;
use crate::{BufferError, Buffers, CHUNK_HEADER_LEN, CHUNKS_MAX, ChunkHeader, Result, WriteOnce, WriterId};

/// A request that a client may send to the S3-compatible service until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresignedRequest {
    pub method: Method,
    pub url: String,
    /// The client must send exactly these headers: the signature covers them.
    pub headers: Vec<(String, String)>,
}

impl Buffers {
    /// Signs a request that puts chunk `n` with `length` bytes of data, after its header, into the storage. The client must call
    /// [`adopt_chunk`](Self::adopt_chunk) afterwards.
    pub async fn sign_chunk_put(
        &self,
        id: &str,
        writer: WriterId,
        n: u32,
        length: u64,
        expires_in: Duration,
    ) -> Result<PresignedRequest> {
        check_id(id)?;
        let context = ErrorContext::new("signing a write to buffer", id);
        let writer = writer.mark();
        let bytes = length.saturating_add(CHUNK_HEADER_LEN as u64);
        let mut headers = HeaderMap::new();
        // The signature covers this header, so a client cannot replace the chunk before the request expires.
        if self.storage().write_once() == WriteOnce::ByService {
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        self.require_s3("signing requests")?;
        self.admit_chunk(n, writer, context).await?;
        self.sign(Method::PUT, &self.storage().chunk(id, n), headers, Some(bytes), expires_in, context).await
    }

    /// Signs a request that gets chunk `n` (header and data) from the storage.
    pub async fn sign_chunk_get(&self, id: &str, n: u32, expires_in: Duration) -> Result<PresignedRequest> {
        check_id(id)?;
        let context = ErrorContext::new("signing a read of buffer", id);
        self.require_s3("signing requests")?;
        self.require_meta(context).await?;
        self.sign(
            Method::GET,
            &self.storage().chunk(id, n.min(CHUNKS_MAX)),
            HeaderMap::new(),
            None,
            expires_in,
            context,
        )
        .await
    }

    /// Accepts a chunk that a client put into the storage with a presigned request. Checks its header and its link in
    /// the hash chain, and with `check_data` also its data. Deletes a bad chunk, so that the client can put it again.
    pub async fn adopt_chunk(
        &self,
        id: &str,
        writer: WriterId,
        n: u32,
        check_data: bool,
        now_ms: u64,
    ) -> Result<()> {
        check_id(id)?;
        let context = ErrorContext::new("adopting a chunk of buffer", id);
        let writer = writer.mark();
        self.require_s3("adopting chunks")?;
        let progress = self.admit_chunk(n, writer, context).await?;
        if progress.contains(n) {
            return Ok(());
        }
        let found = self.find_chunk_to_adopt(n, check_data, context).await;
        let header = match found {
            Ok(None) => return Err(BufferError::ChunkMissing { id: id.to_owned(), n }),
            Ok(Some(header)) => header,
            Err(BufferError::Damaged { .. }) => {
                return self.refuse(n, "its header or its data is not valid", context).await;
            }
            Err(error) => return Err(error),
        };
        if header.writer != writer {
            return self.refuse(n, "it belongs to another writer", context).await;
        }
        if header.put_at_ms.abs_diff(now_ms) > self.options().writer_timeout_ms {
            // Other servers read the writer's last activity from this time. A time far ahead would hide a vanished writer.
            return self.refuse(n, "its time differs too much from the server's clock", context).await;
        }
        if progress.check_links(&header).is_err() {
            return self.refuse(n, "it does not continue the hash chain", context).await;
        }
        let _ = progress.add(header, now_ms);
        self.notifier().notify(id);
        Ok(())
    }

    async fn find_chunk_to_adopt(
        &self,
        n: u32,
        check_data: bool,
        context: ErrorContext<'_>,
    ) -> Result<Option<ChunkHeader>> {
        if check_data {
            return Ok(self.find_chunk(n, context).await?.map(|chunk| chunk.header));
        }
        self.find_header(n, context).await
    }

    async fn refuse(&self, n: u32, problem: &'static str, context: ErrorContext<'_>) -> Result<()> {
        self.storage().delete(&self.storage().chunk(context.id, n), context).await?;
        Err(BufferError::BadChunk { id: context.id.to_owned(), n, problem })
    }

    fn require_s3(&self, what: &'static str) -> Result<&object_store::aws::AmazonS3> {
        self.storage().s3().ok_or(BufferError::NotSupported { what })
    }

    async fn sign(
        &self,
        method: Method,
        path: &Path,
        mut headers: HeaderMap,
        length: Option<u64>,
        expires_in: Duration,
        context: ErrorContext<'_>,
    ) -> Result<PresignedRequest> {
        let s3 = self.require_s3("signing requests")?;
        let mut options = SignedUrlOptions::new();
        options.signed_headers = headers.clone();
        let url = s3.signed_url_opts(method.clone(), path, expires_in, &options).await;
        let wrong =
            |error: String| BufferError::Misconfigured { problem: format!("{}: {error}", context.action) };
        let mut url = url.map_err(|error| wrong(error.to_string()))?.to_string();
        if let Some(length) = length {
            let credential =
                s3.credentials().get_credential().await.map_err(|error| wrong(error.to_string()))?;
            let signed = sign_length(&url, &method, &mut headers, length, &credential);
            url = signed.ok_or_else(|| wrong("the credentials changed meanwhile; try again".to_owned()))?;
        }
        let pair = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.to_string(), value.to_str().ok()?.to_owned()))
        };
        Ok(PresignedRequest { method, url, headers: headers.iter().filter_map(pair).collect() })
    }
}
