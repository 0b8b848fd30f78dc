//! Migrations: they create the schema and bring it up to date, forward only, one server at a time.
//!
//! Each schema version says which servers can use it, so that old and new servers run side by side during an upgrade.

use crate::connection::address::Address;
use crate::connection::session::{self, configure};
use crate::error::fault;
use crate::options::Options;
use crate::statements::query;
use tokio_postgres::{Client, Error};
use towline_store::StoreError;

struct Migration {
    sql: &'static str,
    /// Servers that know this version, or a later one, can use the schema after the migration.
    compatible_with: i32,
}

/// The migrations in order; the first one has version 1. A released migration never changes.
const MIGRATIONS: &[Migration] = &[Migration {
    sql: concat!(
        include_str!("../../migrations/0001_store.sql"),
        include_str!("../../migrations/0001_store_functions.sql"),
        include_str!("../../migrations/0001_store_enqueue.sql"),
    ),
    compatible_with: 1,
}];

/// A migration holds this advisory lock.
const LOCK: i64 = 0x0074_6f77_6c69_6e65;

/// The version of a schema, and what this program knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaVersion {
    /// 0 if the schema does not exist.
    pub version: i32,
    /// A program must know this version to use the schema.
    pub compatible_with: i32,
    /// The latest version that this program knows.
    pub known: i32,
}

impl SchemaVersion {
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.version < self.known
    }

    /// A newer program migrated the schema, and this one cannot use it any more.
    #[must_use]
    pub fn is_incompatible(&self) -> bool {
        self.compatible_with > self.known
    }

    /// Returns an error if this program must not use the schema as it is.
    pub(crate) fn check(&self, schema: &str) -> Result<(), StoreError> {
        let SchemaVersion { version, compatible_with, known } = self;
        let cause = if self.is_behind() {
            format!(
                "schema {schema:?} is at version {version}, this server needs {known}; run `towline migrate`"
            )
        } else if self.is_incompatible() {
            format!(
                "schema {schema:?} is at version {version}, for servers that know version {compatible_with}; \
                 this one knows {known}: use a newer server"
            )
        } else {
            return Ok(());
        };
        Err(StoreError::Unavailable { cause })
    }
}

/// The versions before and after a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    pub from: i32,
    pub to: i32,
}

/// Reads the version of the schema. Changes nothing.
pub async fn schema_version(address: &Address, options: &Options) -> Result<SchemaVersion, StoreError> {
    options.check()?;
    let client = session::connect(&configure(address, options)?).await?;
    version(&client).await.map_err(|error| fault(&error))
}

/// Brings the schema up to date. Leaves a newer schema as it is.
pub async fn migrate(address: &Address, options: &Options) -> Result<Migrated, StoreError> {
    options.check()?;
    let client = session::connect(&configure(address, options)?).await?;
    let migrated = bring_up_to_date(&client, options).await?;
    let version = version(&client).await.map_err(|error| fault(&error))?;
    version.check(&options.schema)?;
    Ok(migrated)
}

/// Brings the schema up to date if [`Options::migrate`] is set. Returns an error if the schema cannot be used.
pub(crate) async fn prepare(client: &Client, options: &Options) -> Result<(), StoreError> {
    check_durability(client).await?;
    if options.migrate {
        bring_up_to_date(client, options).await?;
    }
    check_schema(client, &options.schema).await
}

/// Checks the version again: a new connection may find that a newer server migrated the schema.
pub(crate) async fn check_schema(client: &Client, schema: &str) -> Result<(), StoreError> {
    version(client).await.map_err(|error| fault(&error))?.check(schema)
}

async fn version(client: &Client) -> Result<SchemaVersion, Error> {
    let known = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    let exists = client.query_one("SELECT to_regclass('towline_schema') IS NOT NULL", &[]).await?;
    if !exists.get::<_, bool>(0) {
        return Ok(SchemaVersion { version: 0, compatible_with: 0, known });
    }
    // The maximum over all versions: a later migration does not take back what an earlier one demands.
    let row = client.query_one(query!("read_schema_version"), &[]).await?;
    Ok(SchemaVersion { version: row.get(0), compatible_with: row.get(1), known })
}

async fn bring_up_to_date(client: &Client, options: &Options) -> Result<Migrated, StoreError> {
    let before = version(client).await.map_err(|error| fault(&error))?;
    if !before.is_behind() {
        return Ok(Migrated { from: before.version, to: before.version });
    }
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await.map_err(|error| match fault(&error) {
        StoreError::Unavailable { cause } => {
            StoreError::Unavailable { cause: format!("another server is migrating the schema: {cause}") }
        }
        other => other,
    })?;
    let migrated = migrate_locked(client, &options.schema).await.map_err(|error| {
        let cause = format!("cannot migrate schema {:?}: {}", options.schema, crate::error::describe(&error));
        StoreError::Unavailable { cause }
    });
    client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await.map_err(|error| fault(&error))?;
    migrated
}

async fn migrate_locked(client: &Client, schema: &str) -> Result<Migrated, Error> {
    // Not CREATE SCHEMA IF NOT EXISTS: that needs the right to create even if the schema exists.
    let exists = client.query_one("SELECT to_regnamespace($1::text) IS NOT NULL", &[&schema]).await?;
    if !exists.get::<_, bool>(0) {
        client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    }
    // A migration of a large table may take any time.
    client.batch_execute("SET statement_timeout = 0").await?;
    client.batch_execute(query!("create_schema_table")).await?;
    let from = version(client).await?.version;
    for (number, migration) in (1..).zip(MIGRATIONS).filter(|(number, _)| *number > from) {
        tracing::info!(schema, version = number, "migrating");
        // One transaction: all of it or nothing.
        let step = format!(
            "BEGIN;\n{sql}\nINSERT INTO towline_schema (version, compatible_with) VALUES ({number}, {compatible});\n\
             COMMIT;",
            sql = migration.sql,
            compatible = migration.compatible_with,
        );
        if let Err(error) = client.batch_execute(&step).await {
            client.batch_execute("ROLLBACK").await?;
            return Err(error);
        }
    }
    Ok(Migrated { from, to: version(client).await?.version })
}

/// Refuses a database that confirms commits before they are on disk.
async fn check_durability(client: &Client) -> Result<(), StoreError> {
    let setting = client.query_one("SHOW synchronous_commit", &[]).await.map_err(|error| fault(&error))?;
    if setting.get::<_, &str>(0) == "off" {
        let cause = "synchronous_commit is off for this role or database: confirmed operations could be lost; \
                     set it to on";
        return Err(StoreError::Unavailable { cause: cause.to_owned() });
    }
    let fsync = client.query_one("SHOW fsync", &[]).await.map_err(|error| fault(&error))?;
    if fsync.get::<_, &str>(0) == "off" {
        tracing::warn!("fsync is off in this PostgreSQL: confirmed operations are lost if the machine fails");
    }
    Ok(())
}
