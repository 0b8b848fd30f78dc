//! The schema: made and brought up to date, forward only, by one server at a time.

use crate::error::fault;
use crate::options::Options;
use tokio_postgres::{Client, Error};
use towline_store::StoreError;

/// In order; what was released never changes.
const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001_store.sql")];

/// Whoever migrates holds this lock of the database.
const LOCK: i64 = 0x0074_6f77_6c69_6e65;

/// Brings the schema up to date, or says why it cannot be used as it is.
pub(crate) async fn prepare(client: &Client, options: &Options) -> Result<(), StoreError> {
    check_durability(client).await?;
    let version = if options.migrate { migrate(client, options).await } else { version(client).await };
    let version = version.map_err(|error| fault(&error))?;
    let latest = MIGRATIONS.len();
    let refuse = |remedy: &str| {
        let schema = &options.schema;
        let cause = format!("schema {schema:?} is at version {version}, this server at {latest}; {remedy}");
        Err(StoreError::Unavailable { cause })
    };
    match version.cmp(&latest) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => refuse("migrate it"),
        std::cmp::Ordering::Greater => refuse("use a newer server"),
    }
}

async fn version(client: &Client) -> Result<usize, Error> {
    let exists = client.query_one("SELECT to_regclass('towline_schema') IS NOT NULL", &[]).await?;
    if !exists.get::<_, bool>(0) {
        return Ok(0);
    }
    let version = client.query_one("SELECT coalesce(max(version), 0) FROM towline_schema", &[]).await?;
    Ok(usize::try_from(version.get::<_, i32>(0)).unwrap_or(0))
}

async fn migrate(client: &Client, options: &Options) -> Result<usize, Error> {
    if version(client).await? >= MIGRATIONS.len() {
        return version(client).await;
    }
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await?;
    let migrated = migrate_alone(client, options).await;
    client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await?;
    migrated
}

async fn migrate_alone(client: &Client, options: &Options) -> Result<usize, Error> {
    let schema = &options.schema;
    client
        .batch_execute(&format!(
            "CREATE SCHEMA IF NOT EXISTS {schema};
             CREATE TABLE IF NOT EXISTS {schema}.towline_schema (
                 version integer PRIMARY KEY,
                 migrated_at timestamptz NOT NULL DEFAULT clock_timestamp()
             );"
        ))
        .await?;
    let from = version(client).await?;
    for (number, migration) in (1..).zip(MIGRATIONS).skip(from) {
        tracing::info!(schema, version = number, "migrating");
        // All of it or none of it.
        let step =
            format!("BEGIN;\n{migration}\nINSERT INTO towline_schema (version) VALUES ({number});\nCOMMIT;");
        if let Err(error) = client.batch_execute(&step).await {
            client.batch_execute("ROLLBACK").await?;
            return Err(error);
        }
    }
    version(client).await
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
