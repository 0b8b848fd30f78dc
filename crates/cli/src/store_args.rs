//! Flags that name a store, for commands that open it without a server.

use crate::exit::Failure;
use crate::serve::{environment, several};
use anyhow::Context;
use clap::Args;
use std::path::PathBuf;
use towline_server::Settings;

/// A store, as for `towline serve`. No server may use an embedded store at the same time.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// Configuration file [default: towline.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the embedded store [default: towline-data]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<String>,
    /// The store: `embedded`, or postgres://user@host/database. Repeatable [default: embedded]
    #[arg(long, value_name = "PLACE")]
    store: Vec<String>,
    /// File with the password of the database
    #[arg(long, value_name = "PATH")]
    store_password_file: Option<String>,
}

impl StoreArgs {
    /// Whether the flags name a store, instead of a server.
    pub fn is_named(&self) -> bool {
        self.config.is_some() || self.data.is_some() || !self.store.is_empty()
    }

    pub fn settings(&self) -> Result<Settings, Failure> {
        self.settings_with_buffers(None)
    }

    /// With the place for buffers, if a flag names one.
    pub fn settings_with_buffers(&self, buffers: Option<&String>) -> Result<Settings, Failure> {
        let store = several(&self.store);
        let given = [
            ("data", self.data.as_ref()),
            ("store", store.as_ref()),
            ("store_password_file", self.store_password_file.as_ref()),
            ("buffers", buffers),
        ];
        let flags: Vec<_> =
            given.into_iter().filter_map(|(name, value)| Some((name, value.cloned()?))).collect();
        Settings::load(self.config.as_deref(), environment(), &flags)
            .map_err(|error| Failure::Usage(error.to_string()))
    }
}

pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    Ok(built.context("cannot start")?)
}
