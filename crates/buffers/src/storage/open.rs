//! Opens a location: a directory with synced writes, or a client of an S3-compatible service.

use std::path::Path as FilePath;
use std::sync::Arc;

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use tokio::sync::Mutex;

use super::{Backend, LOCKS, Storage};
use crate::{BufferError, Location, Result, S3Options, WriteOnce};

impl Storage {
    pub fn open(location: &Location, options: &S3Options) -> Result<Self> {
        let misconfigured = |error: &dyn std::fmt::Display| BufferError::Misconfigured {
            problem: format!("{location} cannot be opened: {error}"),
        };
        let locks = (0..LOCKS).map(|_| Mutex::new(())).collect();
        match location {
            Location::Directory(directory) => {
                create_directory(directory).map_err(|error| misconfigured(&error))?;
                let root = std::fs::canonicalize(directory).map_err(|error| misconfigured(&error))?;
                let files = LocalFileSystem::new_with_prefix(&root).map_err(|error| misconfigured(&error))?;
                let storage = Self {
                    objects: Arc::new(files.with_fsync(true)),
                    backend: Backend::Directory(root.clone()),
                    prefix: Path::ROOT,
                    write_once: WriteOnce::ByService,
                    locks,
                };
                // Created here, so that parallel first writes do not race to create and sync them.
                for path in [storage.metas(), storage.all_data(), storage.blobs()] {
                    create_durable_directory(&root, &path).map_err(|error| misconfigured(&error))?;
                }
                Ok(storage)
            }
            Location::S3 { bucket, prefix } => {
                let prefix = Path::parse(prefix).map_err(|error| misconfigured(&error))?;
                let s3 = client(bucket, options).map_err(|error| misconfigured(&error))?;
                let s3 = Arc::new(s3);
                Ok(Self {
                    objects: Arc::clone(&s3) as _,
                    backend: Backend::S3(s3),
                    prefix,
                    write_once: options.write_once,
                    locks,
                })
            }
        }
    }
}

/// Creates a directory and syncs it and all directories above it up to the root.
pub(super) fn create_durable_directory(root: &FilePath, path: &Path) -> std::io::Result<()> {
    let mut directory = root.to_path_buf();
    for part in path.parts() {
        directory.push(part.as_ref());
        create_directory(&directory)?;
    }
    let mut ancestors = directory.ancestors().take_while(|part| part.starts_with(root));
    ancestors.try_for_each(|part| std::fs::File::open(part)?.sync_all())
}

fn create_directory(directory: &FilePath) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

fn client(bucket: &str, options: &S3Options) -> object_store::Result<AmazonS3> {
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: options.retries_max,
        retry_timeout: options.retry_time_max,
    };
    let connection = ClientOptions::new()
        .with_connect_timeout(options.connect_timeout)
        .with_timeout(options.request_timeout)
        .with_allow_http(options.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://")));
    let mut builder = AmazonS3Builder::from_env()
        .with_client_options(connection)
        .with_retry(retry)
        .with_bucket_name(bucket)
        .with_virtual_hosted_style_request(options.virtual_hosted);
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if let Some(key) = &options.access_key_id {
        builder = builder.with_access_key_id(key);
    }
    if let Some(secret) = &options.secret_access_key {
        builder = builder.with_secret_access_key(secret.reveal());
    }
    if let Some(token) = &options.session_token {
        builder = builder.with_token(token.reveal());
    }
    builder.build()
}
