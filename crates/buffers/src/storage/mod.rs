//! Objects by name, in a directory or on an S3-compatible service.
//!
//! **Invariant:** a write that succeeded is durable, and `create` never replaces an object.

mod errors;
mod hashed;
mod open;
mod pages;
mod paths;
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

pub(crate) use errors::ErrorContext;
use errors::convert;
pub(crate) use pages::page_limit;
pub(crate) use paths::chunk_number;
pub(crate) use temporary::is_temporary;

use crate::{Result, WriteOnce};

/// Enough locks that two objects rarely share one.
const LOCKS: usize = 64;

#[derive(Debug)]
pub(crate) struct Storage {
    objects: Arc<dyn ObjectStore>,
    backend: Backend,
    prefix: Path,
    write_once: WriteOnce,
    locks: Vec<Mutex<()>>,
}

#[derive(Debug)]
enum Backend {
    Directory(PathBuf),
    S3(Arc<AmazonS3>),
}

/// The first bytes of an object, and the length of the whole object.
#[derive(Debug)]
pub(crate) struct ObjectPrefix {
    pub bytes: Bytes,
    pub object_bytes: u64,
}

impl Storage {
    /// Reads an object, if it exists. Refuses an object longer than `bytes_max` without reading it.
    pub async fn get(&self, path: &Path, bytes_max: u64, context: ErrorContext<'_>) -> Result<Option<Bytes>> {
        let found = match self.objects.get(path).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(convert(context, error)),
        };
        let size = found.meta.size;
        check_size(path, size, bytes_max, context)?;
        let bytes = found.bytes().await.map_err(|error| convert(context, error))?;
        check_complete(path, &bytes, size, context)?;
        Ok(Some(bytes))
    }

    pub async fn get_prefix(
        &self,
        path: &Path,
        len: u64,
        context: ErrorContext<'_>,
    ) -> Result<Option<ObjectPrefix>> {
        let options = GetOptions { range: Some(GetRange::Bounded(0..len)), ..GetOptions::default() };
        match self.objects.get_opts(path, options).await {
            Ok(found) => {
                let object_bytes = found.meta.size;
                let bytes = found.bytes().await.map_err(|error| convert(context, error))?;
                Ok(Some(ObjectPrefix { bytes, object_bytes }))
            }
            Err(StoreError::NotFound { .. }) => Ok(None),
            // A range request on an empty object is an error.
            Err(error) => match self.size(path, context).await? {
                Some(0) => Ok(Some(ObjectPrefix { bytes: Bytes::new(), object_bytes: 0 })),
                _ => Err(convert(context, error)),
            },
        }
    }

    pub async fn size(&self, path: &Path, context: ErrorContext<'_>) -> Result<Option<u64>> {
        match self.objects.head(path).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(convert(context, error)),
        }
    }

    /// Creates an object. Returns `false` if the object exists already.
    pub async fn create(
        &self,
        path: &Path,
        payload: impl Into<PutPayload>,
        context: ErrorContext<'_>,
    ) -> Result<bool> {
        let mode = match self.write_once {
            WriteOnce::ByService => PutMode::Create,
            WriteOnce::ByProcess => PutMode::Overwrite,
        };
        let _guard = match self.write_once {
            WriteOnce::ByService => None,
            WriteOnce::ByProcess => {
                let guard = self.lock_of(path).lock().await;
                if self.size(path, context).await?.is_some() {
                    return Ok(false);
                }
                Some(guard)
            }
        };
        match self.objects.put_opts(path, payload.into(), PutOptions::from(mode)).await {
            Ok(_) => Ok(true),
            Err(StoreError::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(convert(context, error)),
        }
    }

    pub async fn overwrite(
        &self,
        path: &Path,
        payload: impl Into<PutPayload>,
        context: ErrorContext<'_>,
    ) -> Result<()> {
        self.objects.put(path, payload.into()).await.map_err(|error| convert(context, error))?;
        Ok(())
    }

    /// Syncs the directory of an object. The process that created the object may have crashed before it did so.
    pub async fn sync_parent(&self, path: &Path, context: ErrorContext<'_>) -> Result<()> {
        let Backend::Directory(root) = &self.backend else { return Ok(()) };
        let Some(directory) = root.join(path.as_ref()).parent().map(PathBuf::from) else { return Ok(()) };
        let synced = blocking(move || match std::fs::File::open(&directory) {
            Ok(file) => file.sync_all(),
            // Another server deleted the buffer meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        });
        synced.await.map_err(|error| context.io(&error))
    }

    /// Deletes an object. Succeeds if the object does not exist.
    pub async fn delete(&self, path: &Path, context: ErrorContext<'_>) -> Result<()> {
        match self.objects.delete(path).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => self.sync_parent(path, context).await,
            Err(error) => Err(convert(context, error)),
        }
    }

    /// Deletes every object under a prefix.
    pub async fn delete_prefix(&self, prefix: &Path, context: ErrorContext<'_>) -> Result<()> {
        // A list made during deletes may be incomplete, so this repeats until nothing is left.
        for _ in 0..8 {
            let names: BoxStream<'static, _> =
                self.objects.list(Some(prefix)).map_ok(|meta| meta.location).boxed();
            let mut names = names.peekable();
            if std::pin::Pin::new(&mut names).peek().await.is_none() {
                return self.remove_directories(prefix, context).await;
            }
            let mut deleted = self.objects.delete_stream(names.boxed());
            while let Some(result) = deleted.next().await {
                match result {
                    Ok(_) | Err(StoreError::NotFound { .. }) => {}
                    Err(error) => return Err(convert(context, error)),
                }
            }
        }
        Err(context.unavailable("new objects appear as fast as they are deleted".to_owned()))
    }

    /// Creates and syncs the directory of a buffer's chunks, before the writer sends the first chunks in parallel. A
    /// chunk is durable only if all directories above it are.
    pub async fn create_directory(&self, prefix: &Path, context: ErrorContext<'_>) -> Result<()> {
        let Backend::Directory(root) = &self.backend else { return Ok(()) };
        let (root, prefix) = (root.clone(), prefix.clone());
        let created = blocking(move || open::create_durable_directory(&root, &prefix));
        created.await.map_err(|error| context.io(&error))
    }

    /// Removes the directories of a buffer if they are empty.
    async fn remove_directories(&self, prefix: &Path, context: ErrorContext<'_>) -> Result<()> {
        let Backend::Directory(root) = &self.backend else { return Ok(()) };
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
        removed.await.map_err(|error| context.io(&error))
    }

    pub async fn copy(&self, from: &Path, to: &Path, context: ErrorContext<'_>) -> Result<()> {
        self.objects.copy(from, to).await.map_err(|error| convert(context, error))
    }

    /// Lists every object under a prefix, in no order.
    pub fn list_prefix<'a>(
        &'a self,
        prefix: &Path,
        context: ErrorContext<'a>,
    ) -> BoxStream<'a, Result<ObjectMeta>> {
        self.objects.list(Some(prefix)).map_err(move |error| convert(context, error)).boxed()
    }

    pub fn s3(&self) -> Option<&AmazonS3> {
        match &self.backend {
            Backend::S3(s3) => Some(s3),
            Backend::Directory(_) => None,
        }
    }

    pub fn write_once(&self) -> WriteOnce {
        self.write_once
    }

    fn lock_of(&self, path: &Path) -> &Mutex<()> {
        let hash = blake3::hash(path.as_ref().as_bytes());
        &self.locks[usize::from(hash.as_bytes()[0]) % LOCKS]
    }
}

fn check_size(path: &Path, size: u64, bytes_max: u64, context: ErrorContext<'_>) -> Result<()> {
    if size > bytes_max {
        return Err(context.damaged(format!("{path} has {size} bytes; at most {bytes_max} are allowed")));
    }
    Ok(())
}

fn check_complete(path: &Path, bytes: &Bytes, size: u64, context: ErrorContext<'_>) -> Result<()> {
    if bytes.len() as u64 != size {
        return Err(
            context.damaged(format!("the storage returned {} of {size} bytes of {path}", bytes.len()))
        );
    }
    Ok(())
}

/// Runs file operations on a thread where blocking is allowed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}
