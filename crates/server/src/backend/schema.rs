//! The schema of a PostgreSQL database: its version and its migration, without a running server.

use crate::config::{Settings, StoreChoice, display_address};
use crate::server::ServerError;
use towline_postgres::{Address, Migrated, Options, SchemaVersion};

/// The schema in one of the configured databases.
#[derive(Debug)]
pub struct Schema<'a> {
    address: &'a Address,
    options: Options,
}

pub(super) fn postgres_options(settings: &Settings) -> Options {
    Options { migrate: settings.store_migrate, ..Options::default() }
}

impl Schema<'_> {
    /// The schemas of all configured databases. The embedded store has none.
    #[must_use]
    pub fn of(settings: &Settings) -> Vec<Schema<'_>> {
        match &settings.store {
            StoreChoice::Embedded => Vec::new(),
            StoreChoice::Postgres(addresses) => {
                let schema = |address| Schema { address, options: postgres_options(settings) };
                addresses.iter().map(schema).collect()
            }
        }
    }

    /// The database that contains the schema, without its password.
    #[must_use]
    pub fn database(&self) -> String {
        display_address(self.address)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.options.schema
    }

    pub async fn version(&self) -> Result<SchemaVersion, ServerError> {
        towline_postgres::schema_version(self.address, &self.options).await.map_err(ServerError::Postgres)
    }

    pub async fn migrate(&self) -> Result<Migrated, ServerError> {
        towline_postgres::migrate(self.address, &self.options).await.map_err(ServerError::Postgres)
    }
}
