//! `towline kv`: key-value records.

use crate::connect::Session;
use crate::exit::Failure;
use crate::source::Source;
use crate::value::duration;
use clap::{Args, Subcommand};
use towline_api::{
    IncrementRecord, Millis, RecordAction, RecordNumber, RecordResult, RecordSet, RecordShown, RecordVerb,
};

/// The server reads this many records in one call.
const GETS_MAX: usize = 64;

#[derive(Debug, Subcommand)]
pub enum KvCommand {
    Get(KeysArg),
    Set(SetArgs),
    /// Add to a record and print the new value.
    #[command(visible_alias = "incr")]
    Increment(IncrementArgs),
    Delete(DeleteArgs),
    /// List records in order of key.
    #[command(visible_alias = "ls")]
    List(ListArgs),
}

/// Print the value of a record, or a list of several records in the order of the keys.
///
/// Exit code 1 if a record does not exist. The other ones are printed.
#[derive(Debug, Args)]
pub struct KeysArg {
    /// The keys, at most 512 bytes each. Up to 64.
    #[arg(required = true, value_name = "KEY", num_args = 1..=GETS_MAX)]
    keys: Vec<String>,
}

/// Delete records.
///
/// Exit code 1 if a record does not exist, or has another value than --if-value. The other ones are deleted.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The keys, at most 512 bytes each.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    /// Delete a record only if it has this value.
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    if_value: Option<String>,
}

/// Set records.
///
/// Several records need a value each: KEY VALUE KEY VALUE. They are set in order, not in one transaction.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// The key, at most 512 bytes.
    key: String,
    /// The value, at most 1 MiB. `-` reads standard input.
    #[arg(allow_hyphen_values = true)]
    value: String,
    /// More keys, each with its value.
    #[arg(value_name = "KEY VALUE", allow_negative_numbers = true)]
    more: Vec<String>,
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
        KvCommand::Get(args) => get(session, args.keys).await,
        KvCommand::Set(args) => set(session, args).await,
        KvCommand::Increment(IncrementArgs { key, by, once, ttl }) => {
            let body = IncrementRecord { by: Some(by), once, ttl: ttl.map(Into::into) };
            let value = client.increment_record(&key, &body).await?;
            output.name_or_json(value, &RecordNumber { value })
        }
        KvCommand::Delete(args) => delete(session, args).await,
        KvCommand::List(ListArgs { prefix }) => {
            let mut listing = output.listing(COLUMNS);
            let mut cursor = None;
            loop {
                let page = client.records(&prefix, cursor.as_deref()).await?;
                for record in &page.records {
                    listing.push(record, row)?;
                }
                cursor = page.next;
                if cursor.is_none() {
                    return listing.finish();
                }
            }
        }
    }
}

const COLUMNS: &[&str] = &["KEY", "VALUE", "EXPIRES"];

fn row(record: &RecordShown) -> Vec<String> {
    let expires = record.expires_at.as_ref().map(ToString::to_string);
    vec![record.key.clone(), record.value.clone(), expires.unwrap_or_default()]
}

async fn get(session: &Session, keys: Vec<String>) -> Result<(), Failure> {
    let action = |key: &String| RecordAction { key: key.clone(), ..RecordAction::default() };
    let results = session.client.act_on_records(keys.iter().map(action).collect()).await?;
    let mut refused = Refusals::default();
    let mut found = Vec::new();
    for result in results {
        match result {
            RecordResult::Shown(record) => found.push(record),
            other => refused.add(&other, ""),
        }
    }
    match (&keys[..], &found[..]) {
        ([_], [record]) => session.output.name_or_json(&record.value, record)?,
        ([_], _) => {}
        _ => {
            let mut listing = session.output.listing(COLUMNS);
            for record in &found {
                listing.push(record, row)?;
            }
            listing.finish()?;
        }
    }
    refused.end()
}

async fn set(session: &Session, args: SetArgs) -> Result<(), Failure> {
    let SetArgs { key, value, more, ttl, if_absent, if_value } = args;
    let pairs: Vec<String> = [key, value].into_iter().chain(more).collect();
    if !pairs.len().is_multiple_of(2) {
        let last = pairs.last().map_or("", String::as_str);
        return Err(Failure::Usage(format!("the key {last:?} has no value; write KEY VALUE KEY VALUE")));
    }
    let (mut actions, mut keys) = (Vec::new(), Vec::new());
    for pair in pairs.chunks_exact(2) {
        keys.push(pair[0].clone());
        actions.push(RecordAction {
            verb: RecordVerb::Set,
            key: pair[0].clone(),
            value: Some(Source::text(pair[1].clone()).read_text()?),
            ttl: ttl.map(Into::into),
            if_absent,
            if_value: if_value.clone(),
            ..RecordAction::default()
        });
    }
    let why = if if_absent { "exists already" } else { "does not have this value" };
    change(session, keys, actions, why).await
}

async fn delete(session: &Session, args: DeleteArgs) -> Result<(), Failure> {
    let DeleteArgs { keys, if_value } = args;
    let action = |key: &String| RecordAction {
        verb: RecordVerb::Delete,
        key: key.clone(),
        if_value: if_value.clone(),
        ..RecordAction::default()
    };
    let actions = keys.iter().map(action).collect();
    let why = match if_value {
        Some(_) => "does not have this value",
        None => "does not exist; it was never set or has expired",
    };
    change(session, keys, actions, why).await
}

/// Makes the calls, and prints their results only if JSON was requested. `why` a call has changed nothing.
async fn change(
    session: &Session,
    keys: Vec<String>,
    actions: Vec<RecordAction>,
    why: &str,
) -> Result<(), Failure> {
    let results = session.client.act_on_records(actions).await?;
    match &results[..] {
        [one] => session.output.json_only(one)?,
        all => session.output.json_only(&all)?,
    }
    let mut refused = Refusals::default();
    for (key, result) in keys.iter().zip(&results) {
        refused.add(result, &format!("record {key:?} {why}"));
    }
    refused.end()
}

/// What was refused, one line for each.
#[derive(Default)]
struct Refusals(Vec<String>);

impl Refusals {
    /// Adds a result if it is a refusal, or if it says that nothing was changed: then with these words.
    fn add(&mut self, result: &RecordResult, unchanged: &str) {
        match result {
            RecordResult::Refused(refused) => self.0.push(refused.error.message.clone()),
            RecordResult::Set(RecordSet { set: false }) => self.0.push(unchanged.to_owned()),
            RecordResult::Deleted(deleted) if !deleted.deleted => self.0.push(unchanged.to_owned()),
            _ => {}
        }
    }

    fn end(self) -> Result<(), Failure> {
        if self.0.is_empty() { Ok(()) } else { Err(Failure::Refused(self.0.join("\n"))) }
    }
}
