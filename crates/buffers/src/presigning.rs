//! Chunks that clients move to and from an S3-compatible service by themselves, with requests signed here.

use std::time::Duration;

use http::header::{HeaderName, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Method};
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer};

use crate::id::check_id;
use crate::storage::At;
use crate::{BufferError, Buffers, CHUNKS_MAX, Header, Result, Signed, WriteOnce, WriterId};

impl Buffers {
    /// A request with which a client puts chunk `n` (header and data) into the storage itself; then [`adopt_chunk`].
    ///
    /// [`adopt_chunk`]: Self::adopt_chunk
    pub async fn sign_chunk_put(
        &self,
        id: &str,
        writer: WriterId,
        n: u32,
        expires_in: Duration,
    ) -> Result<Signed> {
        check_id(id)?;
        let at = At::new("signing a write to buffer", id);
        let writer = writer.mark();
        let mut headers = HeaderMap::new();
        // Signed too, so that a chunk cannot be replaced while the request is good.
        if self.storage().write_once() == WriteOnce::ByService {
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        self.need_s3("signing requests")?;
        self.place_for(n, writer, at).await?;
        self.sign(Method::PUT, &self.storage().chunk(id, n), headers, expires_in, at).await
    }

    /// A request with which a client gets chunk `n` (header and data) from the storage itself.
    pub async fn sign_chunk_get(&self, id: &str, n: u32, expires_in: Duration) -> Result<Signed> {
        check_id(id)?;
        let at = At::new("signing a read of buffer", id);
        self.need_s3("signing requests")?;
        self.need_meta(at).await?;
        self.sign(Method::GET, &self.storage().chunk(id, n.min(CHUNKS_MAX)), HeaderMap::new(), expires_in, at)
            .await
    }

    /// Takes in a chunk that a client put itself: checks its header and place in the chain, and its data if told so.
    /// One that is refused is removed, so that it can be put again.
    pub async fn adopt_chunk(
        &self,
        id: &str,
        writer: WriterId,
        n: u32,
        check_data: bool,
        now_ms: u64,
    ) -> Result<()> {
        check_id(id)?;
        let at = At::new("adopting a chunk of buffer", id);
        let writer = writer.mark();
        self.need_s3("adopting chunks")?;
        let progress = self.place_for(n, writer, at).await?;
        if progress.knows(n) {
            return Ok(());
        }
        let found = self.found_for_adoption(n, check_data, at).await;
        let header = match found {
            Ok(None) => return Err(BufferError::ChunkMissing { id: id.to_owned(), n }),
            Ok(Some(header)) => header,
            Err(BufferError::Damaged { .. }) => {
                return self.refuse(n, "it is not a chunk with its right header and data", at).await;
            }
            Err(error) => return Err(error),
        };
        if header.writer != writer {
            return self.refuse(n, "it is of another writer", at).await;
        }
        if header.put_at_ms.abs_diff(now_ms) > self.options().writer_timeout_ms {
            // Its time is a sign of life for others: one far ahead would hide that the writer vanished.
            return self.refuse(n, "its time is far from the server's", at).await;
        }
        if progress.fits(&header).is_err() {
            return self.refuse(n, "it does not continue the chain", at).await;
        }
        let _ = progress.absorb(header, now_ms);
        self.bells().ring(id);
        Ok(())
    }

    async fn found_for_adoption(&self, n: u32, check_data: bool, at: At<'_>) -> Result<Option<Header>> {
        if check_data {
            return Ok(self.find_chunk(n, at).await?.map(|chunk| chunk.header));
        }
        self.find_header(n, at).await
    }

    async fn refuse(&self, n: u32, problem: &'static str, at: At<'_>) -> Result<()> {
        self.storage().delete(&self.storage().chunk(at.id, n), at).await?;
        Err(BufferError::BadChunk { id: at.id.to_owned(), n, problem })
    }

    fn need_s3(&self, what: &'static str) -> Result<&object_store::aws::AmazonS3> {
        self.storage().s3().ok_or(BufferError::NotSupported { what })
    }

    async fn sign(
        &self,
        method: Method,
        path: &Path,
        headers: HeaderMap,
        expires_in: Duration,
        at: At<'_>,
    ) -> Result<Signed> {
        let s3 = self.need_s3("signing requests")?;
        let mut options = SignedUrlOptions::new();
        options.signed_headers = headers.clone();
        let url = s3.signed_url_opts(method.clone(), path, expires_in, &options).await;
        let url =
            url.map_err(|error| BufferError::Misconfigured { problem: format!("{}: {error}", at.doing) })?;
        let pair = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.to_string(), value.to_str().ok()?.to_owned()))
        };
        Ok(Signed { method, url: url.to_string(), headers: headers.iter().filter_map(pair).collect() })
    }
}
