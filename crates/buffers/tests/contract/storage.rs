//! A storage for the buffers of one test, and handles to it.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use towline_buffers::{Buffers, Location, NewBuffer, Options, S3Options, Secret, WriteOnce, WriterId};

use crate::s3_server::{self, S3Server};

/// The time of most calls. No test depends on the machine's clock.
pub const NOW: u64 = 1_800_000_000_000;
/// Later than the modification time of any file.
pub const FAR_FUTURE: u64 = 9_000_000_000_000;
/// Longer than any test takes.
pub const LONG_WAIT: Duration = Duration::from_secs(120);

pub const WRITER: WriterId = WriterId::from_bytes([7; 16]);
pub const OTHER_WRITER: WriterId = WriterId::from_bytes([8; 16]);

pub struct TestStorage {
    location: Location,
    options: Options,
    /// The directory with the objects as files, for tests that change them.
    pub root: PathBuf,
    server: Option<S3Server>,
    _directory: TempDir,
}

impl TestStorage {
    pub async fn directory() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("buffers-root");
        let location = Location::Directory(root.clone());
        Self { location, options: fast_polling(), root, server: None, _directory: directory }
    }

    pub async fn s3() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = S3Server::start(directory.path()).await;
        let options = Options { s3: s3_options(&server.endpoint), ..fast_polling() };
        let location = format!("s3://{}/pre/fix", s3_server::BUCKET).parse().unwrap();
        let root = directory.path().join(s3_server::BUCKET).join("pre/fix");
        Self { location, options, root, server: Some(server), _directory: directory }
    }

    /// On S3, where this process refuses to write an object twice, not the service.
    pub async fn s3_write_once_by_process() -> Self {
        let mut storage = Self::s3().await;
        storage.options.s3.write_once = WriteOnce::ByProcess;
        storage
    }

    /// Opens a new handle, as another server would.
    pub fn open(&self) -> Buffers {
        self.open_with(|_| {})
    }

    pub fn open_with(&self, change: impl FnOnce(&mut Options)) -> Buffers {
        let mut options = self.options.clone();
        change(&mut options);
        Buffers::open(&self.location, options).unwrap()
    }

    pub fn endpoint(&self) -> Option<&str> {
        self.server.as_ref().map(|server| server.endpoint.as_str())
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

fn fast_polling() -> Options {
    Options {
        poll_first: Duration::from_millis(5),
        poll_max: Duration::from_millis(20),
        ..Options::default()
    }
}

fn s3_options(endpoint: &str) -> S3Options {
    S3Options {
        endpoint: Some(endpoint.to_owned()),
        region: Some("us-east-1".to_owned()),
        access_key_id: Some(s3_server::KEY.to_owned()),
        secret_access_key: Some(Secret::new(s3_server::SECRET)),
        ..S3Options::default()
    }
}

pub fn tags(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub async fn created(storage: &TestStorage, id: &str) -> Buffers {
    let buffers = storage.open();
    buffers.create(id, NewBuffer::default(), NOW).await.unwrap();
    buffers
}

/// Runs each test in a directory and on S3.
macro_rules! on_every_storage {
    ($($test:ident),* $(,)?) => {
        mod directory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::storage::TestStorage::directory().await).await;
            })*
        }
        mod s3 {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test($crate::storage::TestStorage::s3().await).await;
            })*
        }
    };
}
pub(crate) use on_every_storage;

macro_rules! assert_refused {
    ($answer:expr, $pattern:pat $(if $guard:expr)?) => {
        match $answer {
            Err($pattern) $(if $guard)? => {}
            Err(other) => panic!("wrong error: {other} ({other:?})"),
            Ok(_) => panic!("not refused: {}", stringify!($answer)),
        }
    };
}
pub(crate) use assert_refused;
