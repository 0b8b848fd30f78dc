//! The schema: made and brought up to date, forward only, by one server at a time.
//!
//! Each version says which servers can go on with it, so that old and new ones run side by side during an upgrade.

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

/// Whoever migrates holds this lock of the database.
const LOCK: i64 = 0x0074_6f77_6c69_6e65;

/// Where a schema stands, seen from this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaVersion {
    /// 0: there is none yet.
    pub version: i32,
    /// A program must know this version to use it.
    pub compatible_with: i32,
    /// The latest that this program knows.
    pub known: i32,
}

impl SchemaVersion {
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.version < self.known
    }

    /// It was migrated by a newer program, in a way that this one cannot follow.
    #[must_use]
    pub fn is_incompatible(&self) -> bool {
        self.compatible_with > self.known
    }

    /// Why this program must not use it as it is.
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

/// What a migration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    pub from: i32,
    pub to: i32,
}

/// Where the schema stands. Changes nothing.
pub async fn schema_version(address: &Address, options: &Options) -> Result<SchemaVersion, StoreError> {
    options.check()?;
    let client = session::connect(&configure(address, options)?).await?;
    version(&client).await.map_err(|error| fault(&error))
}

/// Brings the schema up to date. One that is newer is left as it is.
pub async fn migrate(address: &Address, options: &Options) -> Result<Migrated, StoreError> {
    options.check()?;
    let client = session::connect(&configure(address, options)?).await?;
    let migrated = up_to_date(&client, options).await?;
    let version = version(&client).await.map_err(|error| fault(&error))?;
    version.check(&options.schema)?;
    Ok(migrated)
}

/// Brings the schema up to date if that is wanted, or says why it cannot be used as it is.
pub(crate) async fn prepare(client: &Client, options: &Options) -> Result<(), StoreError> {
    check_durability(client).await?;
    if options.migrate {
        up_to_date(client, options).await?;
    }
    check_schema(client, &options.schema).await
}

/// A connection that is made anew may find the schema changed by a newer server.
pub(crate) async fn check_schema(client: &Client, schema: &str) -> Result<(), StoreError> {
    version(client).await.map_err(|error| fault(&error))?.check(schema)
}

async fn version(client: &Client) -> Result<SchemaVersion, Error> {
    let known = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    let exists = client.query_one("SELECT to_regclass('towline_schema') IS NOT NULL", &[]).await?;
    if !exists.get::<_, bool>(0) {
        return Ok(SchemaVersion { version: 0, compatible_with: 0, known });
    }
    // Of all versions: a later one that changes little takes no earlier demand back.
    let row = client.query_one(query!("read_schema_version"), &[]).await?;
    Ok(SchemaVersion { version: row.get(0), compatible_with: row.get(1), known })
}

async fn up_to_date(client: &Client, options: &Options) -> Result<Migrated, StoreError> {
    let before = version(client).await.map_err(|error| fault(&error))?;
    if !before.is_behind() {
        return Ok(Migrated { from: before.version, to: before.version });
    }
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await.map_err(|error| match fault(&error) {
        StoreError::Unavailable { cause } => {
            StoreError::Unavailable { cause: format!("somebody else migrates the schema: {cause}") }
        }
        other => other,
    })?;
    let migrated = migrate_alone(client, &options.schema).await.map_err(|error| {
        let cause = format!("cannot migrate schema {:?}: {}", options.schema, crate::error::describe(&error));
        StoreError::Unavailable { cause }
    });
    client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await.map_err(|error| fault(&error))?;
    migrated
}

async fn migrate_alone(client: &Client, schema: &str) -> Result<Migrated, Error> {
    // Asked first: to say IF NOT EXISTS takes the right to create, also where there is nothing to create.
    let exists = client.query_one("SELECT to_regnamespace($1::text) IS NOT NULL", &[&schema]).await?;
    if !exists.get::<_, bool>(0) {
        client.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    }
    // What a large table takes is not known beforehand.
    client.batch_execute("SET statement_timeout = 0").await?;
    client.batch_execute(query!("create_schema_table")).await?;
    let from = version(client).await?.version;
    for (number, migration) in (1..).zip(MIGRATIONS).filter(|(number, _)| *number > from) {
        tracing::info!(schema, version = number, "migrating");
        // All of it or none of it.
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

/// An answer means that it is on disk: a database that says yes before that is refused.
async fn check_durability(client: &Client) -> Result<(), StoreError> {
    let setting = client.query_one("SHOW synchronous_commit", &[]).await.map_err(|error| fault(&error))?;
    if setting.get::<_, &str>(0) == "off" {
        let cause = "synchronous_commit is off for this role or database: what is answered could be lost; \
                     set it to on";
        return Err(StoreError::Unavailable { cause: cause.to_owned() });
    }
    let fsync = client.query_one("SHOW fsync", &[]).await.map_err(|error| fault(&error))?;
    if fsync.get::<_, &str>(0) == "off" {
        tracing::warn!("fsync is off in this PostgreSQL: what is answered is lost when the machine fails");
    }
    Ok(())
}
