//! `towline kv`: small records by key.

use crate::connect::Session;
use crate::exit::Failure;
use crate::source::Source;
use crate::value::duration;
use clap::{Args, Subcommand};
use towline_api::{IncrementRecord, Millis, RecordDeleted, RecordNumber, RecordSet, SetRecord};

#[derive(Debug, Subcommand)]
pub enum KvCommand {
    /// Print a value, as it was set.
    Get(KeyArg),
    /// Set a record.
    Set(SetArgs),
    /// Add to a record, and print the number afterwards.
    #[command(visible_alias = "incr")]
    Increment(IncrementArgs),
    /// Delete a record. One that is not there is fine.
    Delete(KeyArg),
    /// List records in order of key.
    #[command(visible_alias = "ls")]
    List(ListArgs),
}

#[derive(Debug, Args)]
pub struct KeyArg {
    /// Any text of at most 512 bytes.
    key: String,
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// Any text of at most 512 bytes.
    key: String,
    /// Any text of at most 1 MiB; `-` reads it from standard input.
    #[arg(allow_hyphen_values = true)]
    value: String,
    /// Forget it after this [default: never].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Millis>,
    /// Only if there is none; exit code 1 if there is one.
    #[arg(long)]
    if_absent: bool,
}

#[derive(Debug, Args)]
pub struct IncrementArgs {
    /// Any text of at most 512 bytes.
    key: String,
    /// How much, which may be less than nothing.
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
    by: i64,
    /// What is counted: told again within --ttl, nothing changes, and the number is the one of the first time.
    #[arg(long, value_name = "TEXT", requires = "ttl")]
    once: Option<String>,
    /// Forget it after this, from now on [default: as long as it is kept already].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Millis>,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    /// What the keys begin with.
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
}

pub async fn run(session: &Session, command: KvCommand) -> Result<(), Failure> {
    let Session { client, output } = session;
    match command {
        KvCommand::Get(KeyArg { key }) => match client.record(&key).await? {
            Some(record) => output.name_or_json(&record.value, &record),
            None => {
                Err(Failure::Refused(format!("no record {key:?}; it was never set, or its time is over")))
            }
        },
        KvCommand::Set(SetArgs { key, value, ttl, if_absent }) => {
            let value = Source::text(value).read_text()?;
            let set =
                client.set_record(&key, &SetRecord { value, ttl: ttl.map(Into::into), if_absent }).await?;
            output.json_only(&RecordSet { set })?;
            if set { Ok(()) } else { Err(Failure::Refused(format!("record {key:?} is there already"))) }
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
