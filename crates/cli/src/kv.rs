//! `towline kv`: key-value records.

use crate::connect::Session;
use crate::exit::Failure;
use crate::source::Source;
use crate::value::duration;
use clap::{Args, Subcommand};
use towline_api::{IncrementRecord, Millis, RecordDeleted, RecordNumber, RecordSet, SetRecord};

#[derive(Debug, Subcommand)]
pub enum KvCommand {
    /// Print the value of a record.
    Get(KeyArg),
    /// Set a record.
    Set(SetArgs),
    /// Add to a record and print the new value.
    #[command(visible_alias = "incr")]
    Increment(IncrementArgs),
    /// Delete a record. Succeeds even if the record does not exist.
    Delete(KeyArg),
    /// List records in order of key.
    #[command(visible_alias = "ls")]
    List(ListArgs),
}

#[derive(Debug, Args)]
pub struct KeyArg {
    /// The key, at most 512 bytes.
    key: String,
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// The key, at most 512 bytes.
    key: String,
    /// The value, at most 1 MiB. `-` reads standard input.
    #[arg(allow_hyphen_values = true)]
    value: String,
    /// Delete the record after this time [default: never].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Millis>,
    /// Set the record only if it does not exist. Exit code 1 if it exists.
    #[arg(long)]
    if_absent: bool,
    /// Set the record only if it has this value. Exit code 1 if it has another.
    #[arg(long, value_name = "VALUE", conflicts_with = "if_absent", allow_hyphen_values = true)]
    if_value: Option<String>,
}

#[derive(Debug, Args)]
pub struct IncrementArgs {
    /// The key, at most 512 bytes.
    key: String,
    /// How much to add. May be negative.
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
    by: i64,
    /// Identifies the thing that is counted. A repeat within --ttl changes nothing and prints the first
    /// result.
    #[arg(long, value_name = "TEXT", requires = "ttl")]
    once: Option<String>,
    /// Delete the record this long from now [default: the record keeps its expiry].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Millis>,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only keys that begin with this text.
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
}

pub async fn run(session: &Session, command: KvCommand) -> Result<(), Failure> {
    let Session { client, output } = session;
    match command {
        KvCommand::Get(KeyArg { key }) => match client.record(&key).await? {
            Some(record) => output.name_or_json(&record.value, &record),
            None => Err(Failure::Refused(format!("no record {key:?}; it was never set or has expired"))),
        },
        KvCommand::Set(SetArgs { key, value, ttl, if_absent, if_value }) => {
            let value = Source::text(value).read_text()?;
            let why = if if_absent { "exists already" } else { "does not have this value" };
            let body = SetRecord { value, ttl: ttl.map(Into::into), if_absent, if_value };
            let set = client.set_record(&key, &body).await?;
            output.json_only(&RecordSet { set })?;
            if set { Ok(()) } else { Err(Failure::Refused(format!("record {key:?} {why}"))) }
        }
        KvCommand::Increment(IncrementArgs { key, by, once, ttl }) => {
            let body = IncrementRecord { by: Some(by), once, ttl: ttl.map(Into::into) };
            let value = client.increment_record(&key, &body).await?;
            output.name_or_json(value, &RecordNumber { value })
        }
        KvCommand::Delete(KeyArg { key }) => {
            output.json_only(&RecordDeleted { deleted: client.delete_record(&key).await? })
        }
        KvCommand::List(ListArgs { prefix }) => {
            let mut listing = output.listing(&["KEY", "VALUE", "EXPIRES"]);
            let mut cursor = None;
            loop {
                let page = client.records(&prefix, cursor.as_deref()).await?;
                for record in &page.records {
                    listing.push(record, |record| {
                        let expires = record.expires_at.as_ref().map(ToString::to_string);
                        vec![record.key.clone(), record.value.clone(), expires.unwrap_or_default()]
                    })?;
                }
                cursor = page.next;
                if cursor.is_none() {
                    return listing.finish();
                }
            }
        }
    }
}
