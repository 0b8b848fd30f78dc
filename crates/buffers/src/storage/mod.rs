//! Objects by name, on a directory or an S3-compatible service, with this crate's errors.
//!
//! **Invariant:** a write that returns well is durable, and `create` never replaces an object.

mod faults;
mod hashed;
mod names;
mod open;
mod pages;
mod temporary;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload,
};
use tokio::sync::Mutex;

pub(crate) use faults::At;
use faults::fault;
pub(crate) use names::chunk_number;
pub(crate) use pages::page_limit;

use crate::{BufferError, Result, WriteOnce};

/// Enough that two objects seldom share a lock.
const LOCKS: usize = 64;

#[derive(Debug)]
pub(crate) struct Storage {
    objects: Arc<dyn ObjectStore>,
    place: Place,
    prefix: Path,
    write_once: WriteOnce,
    locks: Vec<Mutex<()>>,
}

#[derive(Debug)]
enum Place {
    Directory(PathBuf),
    S3(Arc<AmazonS3>),
}

/// The beginning of an object, and how long the whole is.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub bytes: Bytes,
    pub object_bytes: u64,
}

impl Storage {
    /// The whole object, if it is there and has at most `bytes_max` bytes; a longer one is not read.
    pub async fn get(&self, path: &Path, bytes_max: u64, at: At<'_>) -> Result<Option<Bytes>> {
        let found = match self.objects.get(path).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(fault(at, error)),
        };
        if found.meta.size > bytes_max {
            return Err(
                at.damaged(format!("{path} has {} bytes, at most {bytes_max} are possible", found.meta.size))
            );
        }
        let said = found.meta.size;
        let bytes = found.bytes().await.map_err(|error| fault(at, error))?;
        if bytes.len() as u64 != said {
            return Err(at.damaged(format!("{path} gave {} of {said} bytes", bytes.len())));
        }
        Ok(Some(bytes))
    }

    pub async fn get_beginning(&self, path: &Path, len: u64, at: At<'_>) -> Result<Option<Beginning>> {
        let options = GetOptions { range: Some(GetRange::Bounded(0..len)), ..GetOptions::default() };
        match self.objects.get_opts(path, options).await {
            Ok(found) => {
                let object_bytes = found.meta.size;
                let bytes = found.bytes().await.map_err(|error| fault(at, error))?;
                Ok(Some(Beginning { bytes, object_bytes }))
            }
            Err(StoreError::NotFound { .. }) => Ok(None),
            // An empty object has no range at all.
            Err(error) => match self.size(path, at).await? {
                Some(0) => Ok(Some(Beginning { bytes: Bytes::new(), object_bytes: 0 })),
                _ => Err(fault(at, error)),
            },
        }
    }

    pub async fn size(&self, path: &Path, at: At<'_>) -> Result<Option<u64>> {
        match self.objects.head(path).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(fault(at, error)),
        }
    }

    /// Writes an object that is not there yet; `false` if it is.
    pub async fn create(&self, path: &Path, payload: impl Into<PutPayload>, at: At<'_>) -> Result<bool> {
        let mode = match self.write_once {
            WriteOnce::ByService => PutMode::Create,
            WriteOnce::ByProcess => PutMode::Overwrite,
        };
        let _guard = match self.write_once {
            WriteOnce::ByService => None,
            WriteOnce::ByProcess => {
                let guard = self.lock_of(path).lock().await;
                if self.size(path, at).await?.is_some() {
                    return Ok(false);
                }
                Some(guard)
            }
        };
        match self.objects.put_opts(path, payload.into(), PutOptions::from(mode)).await {
            Ok(_) => Ok(true),
            Err(StoreError::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(fault(at, error)),
        }
    }

    pub async fn overwrite(&self, path: &Path, payload: impl Into<PutPayload>, at: At<'_>) -> Result<()> {
        self.objects.put(path, payload.into()).await.map_err(|error| fault(at, error))?;
        Ok(())
    }

    /// Makes durable that an object seen is there: whoever put it may not have lived to sync its directory.
    pub async fn settle(&self, path: &Path, at: At<'_>) -> Result<()> {
        let Place::Directory(root) = &self.place else { return Ok(()) };
        let Some(directory) = root.join(path.as_ref()).parent().map(PathBuf::from) else { return Ok(()) };
        let synced = blocking(move || match std::fs::File::open(&directory) {
            Ok(file) => file.sync_all(),
            // The whole buffer was deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        });
        synced.await.map_err(|error| at.io(&error))
    }

    /// That it is not there is no error.
    pub async fn delete(&self, path: &Path, at: At<'_>) -> Result<()> {
        match self.objects.delete(path).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => self.settle(path, at).await,
            Err(error) => Err(fault(at, error)),
        }
    }

    /// Deletes everything under a directory of names.
    pub async fn delete_under(&self, prefix: &Path, at: At<'_>) -> Result<()> {
        // What is listed while names vanish may be incomplete: look again until nothing is left.
        for _ in 0..8 {
            let names: BoxStream<'static, _> =
                self.objects.list(Some(prefix)).map_ok(|meta| meta.location).boxed();
            let mut names = names.peekable();
            if std::pin::Pin::new(&mut names).peek().await.is_none() {
                return self.remove_directories(prefix, at).await;
            }
            let mut deleted = self.objects.delete_stream(names.boxed());
            while let Some(one) = deleted.next().await {
                match one {
                    Ok(_) | Err(StoreError::NotFound { .. }) => {}
                    Err(error) => return Err(fault(at, error)),
                }
            }
        }
        Err(BufferError::Unavailable {
            doing: at.doing,
            id: at.id.to_owned(),
            cause: "new objects come as fast as they are deleted".to_owned(),
        })
    }

    /// Makes ready the place for a buffer's chunks: the first ones come several at once, and each is durable only if
    /// the way to it is.
    pub async fn prepare(&self, prefix: &Path, at: At<'_>) -> Result<()> {
        let Place::Directory(root) = &self.place else { return Ok(()) };
        let (root, prefix) = (root.clone(), prefix.clone());
        let made = blocking(move || open::make_durable_directory(&root, &prefix));
        made.await.map_err(|error| at.io(&error))
    }

    /// Directories of a buffer that are empty now; others stay.
    async fn remove_directories(&self, prefix: &Path, at: At<'_>) -> Result<()> {
        let Place::Directory(root) = &self.place else { return Ok(()) };
        let directory = root.join(prefix.as_ref());
        let removed = blocking(move || {
            for directory in [directory.join("c"), directory] {
                match std::fs::remove_dir(directory) {
                    Err(error)
                        if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) =>
                    {
                        return Err(error);
                    }
                    _ => {}
                }
            }
            Ok(())
        });
        removed.await.map_err(|error| at.io(&error))
    }

    pub async fn copy(&self, from: &Path, to: &Path, at: At<'_>) -> Result<()> {
        self.objects.copy(from, to).await.map_err(|error| fault(at, error))
    }

    /// Every object under a directory of names, in no order.
    pub fn list_under<'a>(&'a self, prefix: &Path, at: At<'a>) -> BoxStream<'a, Result<ObjectMeta>> {
        self.objects.list(Some(prefix)).map_err(move |error| fault(at, error)).boxed()
    }

    pub fn s3(&self) -> Option<&AmazonS3> {
        match &self.place {
            Place::S3(s3) => Some(s3),
            Place::Directory(_) => None,
        }
    }

    /// Whether the storage itself refuses to write an object twice.
    pub fn write_once(&self) -> WriteOnce {
        self.write_once
    }

    fn lock_of(&self, path: &Path) -> &Mutex<()> {
        let hash = blake3::hash(path.as_ref().as_bytes());
        &self.locks[usize::from(hash.as_bytes()[0]) % LOCKS]
    }
}

/// Runs file operations where they hold up nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}
