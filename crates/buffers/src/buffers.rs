//! [`Buffers`], the handle to all buffers of one location. Its operations are in `write/`, `read/`, `blobs.rs` and
//! `sweep.rs`.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

use crate::format::records::{self, END_RECORD_BYTES_MAX, EndRecord, RECORD_BYTES_MAX, WriterRecord};
use crate::read::chunk_cache::ChunkCache;
use crate::read::notifier::Notifier;
use crate::storage::{ErrorContext, Storage};
use crate::write::progress::Progress;
use crate::{BufferError, Location, Meta, Options, Result};

/// Above this number, the cached progress of inactive writers is dropped. It can be read from the storage again.
const CACHED_PROGRESS_MAX: usize = 1024;

/// The handle to all buffers of one location. Clones share their state.
#[derive(Debug, Clone)]
pub struct Buffers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    storage: Storage,
    options: Options,
    notifier: Notifier,
    chunk_cache: ChunkCache,
    progresses: Mutex<HashMap<String, Arc<Progress>>>,
}

impl Buffers {
    /// Opens a location. Creates the directory if needed, with access for its owner only. Blocks for a few file
    /// operations.
    pub fn open(location: &Location, options: Options) -> Result<Self> {
        let storage = Storage::open(location, &options.s3)?;
        let shared = Shared {
            storage,
            options,
            notifier: Notifier::default(),
            chunk_cache: ChunkCache::default(),
            progresses: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Checks that the storage can write and read, and that it refuses to create an object twice. For a server's start.
    ///
    /// `nonce` is random, so that servers that start at the same time use different objects.
    pub async fn check(&self, nonce: [u8; 16]) -> Result<()> {
        let name = format!("check-{}", crate::WriterId::from_bytes(nonce));
        let context = ErrorContext::new("checking with", &name);
        // Among the buffers, so that the sweep removes it if this server stops in between.
        let path = self.storage().end(&name);
        let first = self.storage().create(&path, nonce.to_vec(), context).await?;
        let second = self.storage().create(&path, vec![0], context).await?;
        let read = self.storage().get(&path, RECORD_BYTES_MAX, context).await?;
        self.storage().delete_prefix(&self.storage().data(&name), context).await?;
        if first && !second && read.as_deref() == Some(&nonce) {
            return Ok(());
        }
        Err(BufferError::Misconfigured {
            problem:
                "the storage ignores `If-None-Match: *` and replaces existing objects; use another service, or \
                      run one server with write_once by process"
                    .to_owned(),
        })
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.shared.storage
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.shared.notifier
    }

    pub(crate) fn chunk_cache(&self) -> &ChunkCache {
        &self.shared.chunk_cache
    }

    pub(crate) async fn find_meta(&self, context: ErrorContext<'_>) -> Result<Option<Meta>> {
        let found = self.storage().get(&self.storage().meta(context.id), RECORD_BYTES_MAX, context).await?;
        found.map(|bytes| records::decode(&bytes, context)).transpose()
    }

    pub(crate) async fn require_meta(&self, context: ErrorContext<'_>) -> Result<Meta> {
        self.find_meta(context).await?.ok_or_else(|| BufferError::NotFound { id: context.id.to_owned() })
    }

    pub(crate) async fn find_writer(&self, context: ErrorContext<'_>) -> Result<Option<WriterRecord>> {
        let found = self.storage().get(&self.storage().writer(context.id), RECORD_BYTES_MAX, context).await?;
        found.map(|bytes| records::decode(&bytes, context)).transpose()
    }

    pub(crate) async fn find_end(&self, context: ErrorContext<'_>) -> Result<Option<EndRecord>> {
        let found =
            self.storage().get(&self.storage().end(context.id), END_RECORD_BYTES_MAX, context).await?;
        found.map(|bytes| records::decode(&bytes, context)).transpose()
    }

    pub(crate) fn known_progress(&self, id: &str) -> Option<Arc<Progress>> {
        self.progresses().get(id).cloned()
    }

    /// Caches the progress of a buffer. Keeps the cached one if another call cached the same writer first.
    pub(crate) fn cache_progress(&self, id: &str, learned: Progress) -> Arc<Progress> {
        let mut progresses = self.progresses();
        if progresses.len() >= CACHED_PROGRESS_MAX {
            let active_since = learned.last_activity_ms().saturating_sub(self.options().writer_timeout_ms);
            progresses
                .retain(|_, known| Arc::strong_count(known) > 1 || known.last_activity_ms() >= active_since);
        }
        match progresses.get(id) {
            Some(known) if known.writer == learned.writer => Arc::clone(known),
            _ => {
                let cached = Arc::new(learned);
                progresses.insert(id.to_owned(), Arc::clone(&cached));
                cached
            }
        }
    }

    /// Drops what is cached about a buffer that ended or was deleted.
    pub(crate) fn forget_progress(&self, id: &str) {
        self.progresses().remove(id);
        self.chunk_cache().remove(id);
    }

    fn progresses(&self) -> MutexGuard<'_, HashMap<String, Arc<Progress>>> {
        self.shared.progresses.lock()
    }
}
