//! `towline migrate`: migrates the schema of a database without starting a server.

use crate::exit::Failure;
use crate::output::Output;
use crate::serve::{environment, several};
use anyhow::Context;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use towline_server::{Schema, Settings};

#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// Configuration file [default: towline.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The database, as for `towline serve`: postgres://user@host/database. Repeatable
    #[arg(long, value_name = "PLACE")]
    store: Vec<String>,
    /// File with the password of the database
    #[arg(long, value_name = "PATH")]
    store_password_file: Option<String>,
    /// Change nothing. Print the version of the schema, and exit with 1 if it needs a migration
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Serialize)]
struct SchemaCheck<'a> {
    schema: &'a str,
    version: i32,
    known: i32,
    compatible_with: i32,
}

#[derive(Debug, Serialize)]
struct SchemaMigration<'a> {
    schema: &'a str,
    from: i32,
    to: i32,
}

pub fn run(args: &MigrateArgs, output: Output) -> Result<(), Failure> {
    let flags = [("store", &several(&args.store)), ("store_password_file", &args.store_password_file)];
    let flags: Vec<_> = flags.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
    let settings = Settings::load(args.config.as_deref(), environment(), &flags)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let schemas = Schema::of(&settings);
    if schemas.is_empty() {
        let words = "the embedded store needs no migration; name a database with --store postgres://...";
        return Err(Failure::Usage(words.to_owned()));
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        for schema in &schemas {
            let done = if args.check { check(schema, output).await } else { migrate(schema, output).await };
            done.map_err(|failure| match failure {
                Failure::Refused(words) if schemas.len() > 1 => {
                    Failure::Refused(format!("{}: {words}", schema.database()))
                }
                failure => failure,
            })?;
        }
        Ok(())
    })
}

async fn migrate(schema: &Schema<'_>, output: Output) -> Result<(), Failure> {
    let migrated = schema.migrate().await.map_err(Failure::refused)?;
    let (name, from, to) = (schema.name(), migrated.from, migrated.to);
    let words = if from == to {
        format!("schema {name:?} is at version {to} already")
    } else {
        format!("schema {name:?} migrated from version {from} to {to}")
    };
    output.name_or_json(words, &SchemaMigration { schema: name, from, to })
}

async fn check(schema: &Schema<'_>, output: Output) -> Result<(), Failure> {
    let found = schema.version().await.map_err(Failure::refused)?;
    let (name, version, known) = (schema.name(), found.version, found.known);
    let words = format!("schema {name:?} is at version {version}, this version of towline needs {known}");
    let compatible_with = found.compatible_with;
    output.name_or_json(words, &SchemaCheck { schema: name, version, known, compatible_with })?;
    if found.is_behind() {
        return Err(Failure::refused("the schema is out of date; run `towline migrate`"));
    }
    if found.is_incompatible() {
        let words = format!("the schema needs version {compatible_with}; use a newer towline");
        return Err(Failure::Refused(words));
    }
    Ok(())
}
