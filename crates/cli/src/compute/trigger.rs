//! `towline trigger`.

use super::file::read_of_kind;
use super::{choose_codespec, choose_name};
use crate::connect::Session;
use crate::exit::Failure;
use crate::output;
use crate::value::{Pair, duration, map, pair};
use clap::{Args, Subcommand};
use std::collections::BTreeMap;
use std::path::PathBuf;
use towline_api::Millis;
use towline_api::compute::{CodespecKind, NewTrigger, OutputQueue, TriggerShown};

#[derive(Debug, Subcommand)]
pub enum TriggerCommand {
    Create(Box<CreateArgs>),
    /// List triggers.
    List,
    /// Show a trigger: its queues, its mappings and how many runs are under way.
    Show(TriggerArg),
    Scale(ScaleArgs),
    /// Delete a trigger. Runs under way are finished; items that wait stay in the queue.
    Delete(TriggerArg),
}

#[derive(Debug, Args)]
pub struct TriggerArg {
    /// The trigger's name.
    #[arg(value_name = "TRIGGER")]
    name: String,
}

/// Create a trigger: it runs a job for each item of a queue.
///
/// A run that exits with 0 completes its item with the job's outputs; any other exit is a counted retry of the item. Slots and
/// parameters with equal names belong together. Example: towline trigger create resize --codespec resizer --input-queue images
/// --input-mapping image=in --output-mapping out=thumbnail --concurrency 4
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The trigger's name [default: the one in the file].
    #[arg(value_name = "TRIGGER")]
    name: Option<String>,
    /// YAML file that describes the trigger; - for standard input. Flags replace what it says.
    #[arg(short, long, value_name = "SPEC.YAML")]
    file: Option<PathBuf>,
    /// The job to run: NAME or NAME@VERSION.
    #[arg(long, value_name = "CODESPEC")]
    codespec: Option<String>,
    /// The queue whose items it runs.
    #[arg(long, value_name = "QUEUE")]
    input_queue: Option<String>,
    /// Maximum number of runs at once, on all nodes together [default: 1].
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// An input slot of the queue and the buffer parameter that reads it. Repeatable.
    #[arg(long, value_name = "SLOT=PARAM", value_parser = pair)]
    input_mapping: Vec<Pair<String>>,
    /// A buffer parameter and the output slot of the queue that it fills, in either order. Repeatable.
    #[arg(long, value_name = "PARAM=SLOT", value_parser = pair)]
    output_mapping: Vec<Pair<String>>,
    /// A queue that gets an item with the outputs of each run, with its slots unless their names are equal. Repeatable.
    #[arg(long, value_name = "QUEUE[:SLOT=PARAM,...]", value_parser = output_queue)]
    output_queue: Vec<OutputQueue>,
    /// A run fails if it has not ended this long after its start [default: 12h].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Millis>,
    /// The pool of nodes that may run it [default: the pool of the codespec, or default].
    #[arg(long, visible_alias = "node-pool", value_name = "POOL")]
    pool: Option<String>,
}

/// Names of queues may contain `:`, mappings contain `=`.
fn output_queue(text: &str) -> Result<OutputQueue, String> {
    let split = text.rsplit_once(':').filter(|(_, mapping)| mapping.contains('='));
    let Some((queue, pairs)) = split else {
        return Ok(OutputQueue { queue: text.to_owned(), mapping: BTreeMap::new() });
    };
    let mut mapping = BTreeMap::new();
    for one in pairs.split(',') {
        let Some((slot, param)) =
            one.split_once('=').filter(|(slot, param)| !slot.is_empty() && !param.is_empty())
        else {
            return Err(format!("{one:?} is not a mapping; use QUEUE:SLOT=PARAM,..."));
        };
        if mapping.insert(slot.to_owned(), param.to_owned()).is_some() {
            return Err(format!("slot {slot:?} is mapped twice"));
        }
    }
    Ok(OutputQueue { queue: queue.to_owned(), mapping })
}

/// Change how many runs there are at once. With 0, no new run starts.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// The trigger's name.
    #[arg(value_name = "TRIGGER")]
    name: String,
    /// Maximum number of runs at once, on all nodes together.
    #[arg(long, value_name = "N")]
    concurrency: u32,
}

pub async fn run(session: &Session, command: TriggerCommand) -> Result<(), Failure> {
    let Session { client, output } = session;
    match command {
        TriggerCommand::Create(args) => create(session, *args).await,
        TriggerCommand::List => list(session).await,
        TriggerCommand::Show(args) => {
            let shown = client.trigger(&args.name).await?;
            output::say_all(&shown.notes);
            output.object(&shown)
        }
        TriggerCommand::Scale(args) => {
            output.json_only(&client.scale_trigger(&args.name, args.concurrency).await?)
        }
        TriggerCommand::Delete(args) => Ok(client.delete_trigger(&args.name).await?),
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let (mut in_file, mut new) = (None, NewTrigger::default());
    if let Some(path) = &args.file {
        let described = read_of_kind(path, CodespecKind::Job)?;
        (in_file, new) = (described.name, described.value);
    }
    let name = choose_name("trigger", args.name, in_file)?;
    new.codespec = choose_codespec(args.codespec, new.codespec)?;
    new.input_queue = args.input_queue.unwrap_or(new.input_queue);
    if new.input_queue.is_empty() {
        return Err(Failure::Usage(
            "no queue; name one with --input-queue, or give input_queue in the file".to_owned(),
        ));
    }
    new.concurrency = args.concurrency.or(new.concurrency);
    new.input_mapping.extend(map("--input-mapping", args.input_mapping)?);
    new.output_mapping.extend(map("--output-mapping", args.output_mapping)?);
    if !args.output_queue.is_empty() {
        new.output_queues = args.output_queue;
    }
    new.timeout = args.timeout.map(Into::into).or(new.timeout);
    new.pool = args.pool.or(new.pool);
    let shown = session.client.put_trigger(&name, &new).await?;
    output::say_all(&shown.notes);
    session.output.name_or_json(&shown.name, &shown)
}

async fn list(session: &Session) -> Result<(), Failure> {
    let headers = &["NAME", "INPUT QUEUE", "CODESPEC", "RUNNING", "CONCURRENCY", "OUTPUT QUEUES", "POOL"];
    let mut listing = session.output.listing(headers);
    let mut cursor = None;
    loop {
        let page = session.client.triggers(cursor.as_deref()).await?;
        for trigger in &page.triggers {
            listing.push(trigger, row)?;
        }
        cursor = page.next;
        if cursor.is_none() {
            return listing.finish();
        }
    }
}

fn row(trigger: &TriggerShown) -> Vec<String> {
    vec![
        trigger.name.clone(),
        trigger.input_queue.clone(),
        trigger.codespec.clone(),
        trigger.running.to_string(),
        trigger.concurrency.to_string(),
        trigger.output_queues.iter().map(|output| output.queue.clone()).collect::<Vec<_>>().join(" "),
        trigger.pool.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_queue_may_have_mappings() {
        let plain = output_queue("a:b").unwrap();
        assert_eq!((plain.queue.as_str(), plain.mapping.len()), ("a:b", 0));
        let mapped = output_queue("a:b:data=output,metadata=meta").unwrap();
        assert_eq!(mapped.queue, "a:b");
        assert_eq!(mapped.mapping.get("metadata").map(String::as_str), Some("meta"));
        assert!(output_queue("a:x=").is_err() && output_queue("a:x=1,x=2").is_err());
    }
}
