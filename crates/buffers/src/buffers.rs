//! The handle to all buffers of one place; what can be done with it is in the modules named for that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::doorbell::Doorbells;
use crate::progress::Progress;
use crate::recent::Recent;
use crate::storage::{At, Storage};
use crate::stored::{self, END_BYTES_MAX, End, SMALL_BYTES_MAX, Writer};
use crate::{BufferError, Location, Meta, Options, Result};

/// Beyond so many buffers being written, those long without a sign of life are forgotten; they can be learnt again.
const PROGRESSES_KEPT: usize = 1024;

/// The handle to all buffers of one place. A clone is the same handle.
#[derive(Debug, Clone)]
pub struct Buffers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    storage: Storage,
    options: Options,
    bells: Doorbells,
    recent: Recent,
    progresses: Mutex<HashMap<String, Arc<Progress>>>,
}

impl Buffers {
    /// Opens a place; a directory is created (only its owner may enter). Blocks for a few file operations.
    pub fn open(location: &Location, options: Options) -> Result<Self> {
        let storage = Storage::open(location, &options.s3)?;
        let shared = Shared {
            storage,
            options,
            bells: Doorbells::default(),
            recent: Recent::default(),
            progresses: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Proves that the place can be written and read, and refuses to write an object twice. For a server's start;
    /// `nonce` is random, so that servers that start at once do not meet.
    pub async fn check(&self, nonce: [u8; 16]) -> Result<()> {
        let name = format!("check-{}", crate::WriterId::from_bytes(nonce));
        let at = At::new("checking with", &name);
        // Beside buffers, where a sweep finds it if this does not get to the end.
        let path = self.storage().end(&name);
        let first = self.storage().create(&path, nonce.to_vec(), at).await?;
        let second = self.storage().create(&path, vec![0], at).await?;
        let read = self.storage().get(&path, SMALL_BYTES_MAX, at).await?;
        self.storage().delete_under(&self.storage().data(&name), at).await?;
        if first && !second && read.as_deref() == Some(&nonce) {
            return Ok(());
        }
        Err(BufferError::Misconfigured {
            problem:
                "the storage replaces objects that it was told to create (`If-None-Match: *`); use another \
                      service, or one server with write_once by process"
                    .to_owned(),
        })
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.shared.storage
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    pub(crate) fn bells(&self) -> &Doorbells {
        &self.shared.bells
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.shared.recent
    }

    pub(crate) async fn find_meta(&self, at: At<'_>) -> Result<Option<Meta>> {
        let found = self.storage().get(&self.storage().meta(at.id), SMALL_BYTES_MAX, at).await?;
        found.map(|bytes| stored::decode(&bytes, at)).transpose()
    }

    pub(crate) async fn need_meta(&self, at: At<'_>) -> Result<Meta> {
        self.find_meta(at).await?.ok_or_else(|| BufferError::NotFound { id: at.id.to_owned() })
    }

    pub(crate) async fn find_writer(&self, at: At<'_>) -> Result<Option<Writer>> {
        let found = self.storage().get(&self.storage().writer(at.id), SMALL_BYTES_MAX, at).await?;
        found.map(|bytes| stored::decode(&bytes, at)).transpose()
    }

    pub(crate) async fn find_end(&self, at: At<'_>) -> Result<Option<End>> {
        let found = self.storage().get(&self.storage().end(at.id), END_BYTES_MAX, at).await?;
        found.map(|bytes| stored::decode(&bytes, at)).transpose()
    }

    pub(crate) fn known_progress(&self, id: &str) -> Option<Arc<Progress>> {
        self.progresses().get(id).cloned()
    }

    /// Keeps what is known of a buffer being written. If another call learnt of the same writer meanwhile, that stays.
    pub(crate) fn keep_progress(&self, id: &str, learnt: Progress) -> Arc<Progress> {
        let mut progresses = self.progresses();
        if progresses.len() >= PROGRESSES_KEPT {
            let lively_since = learnt.last_sign_ms().saturating_sub(self.options().writer_timeout_ms);
            progresses.retain(|_, one| Arc::strong_count(one) > 1 || one.last_sign_ms() >= lively_since);
        }
        match progresses.get(id) {
            Some(known) if known.writer == learnt.writer => Arc::clone(known),
            _ => {
                let kept = Arc::new(learnt);
                progresses.insert(id.to_owned(), Arc::clone(&kept));
                kept
            }
        }
    }

    /// For a buffer that nobody writes any more.
    pub(crate) fn forget_progress(&self, id: &str) {
        self.progresses().remove(id);
        self.recent().forget(id);
    }

    fn progresses(&self) -> MutexGuard<'_, HashMap<String, Arc<Progress>>> {
        self.shared.progresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
