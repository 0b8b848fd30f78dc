//! `towline queue create` and `towline queue apply`.

use crate::connect::Session;
use crate::exit::Failure;
use crate::policy::{PolicyArgs, order};
use clap::Args;
use towline_api::{OrderBody, PutQueue, SchemaBody, SettingChange};

/// Create a queue and print its name. Succeeds if the same queue exists; fails if its settings differ.
///
/// A queue without --input, --output, --input-param and --output-param accepts any parameters.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The queue's name.
    #[arg(value_name = "QUEUE")]
    name: String,
    /// A buffer slot that submitters fill. `name?` is optional. Repeatable.
    #[arg(long, value_name = "SLOT", help_heading = "Schema")]
    input: Vec<String>,
    /// A buffer slot that workers fill. `name?` is optional. Repeatable.
    #[arg(long, value_name = "SLOT", help_heading = "Schema")]
    output: Vec<String>,
    /// A parameter that submitters give. `name?` is optional. Repeatable.
    #[arg(long, value_name = "NAME", help_heading = "Schema")]
    input_param: Vec<String>,
    /// A parameter that workers return. `name?` is optional. Repeatable.
    #[arg(long, value_name = "NAME", help_heading = "Schema")]
    output_param: Vec<String>,
    /// Which item is delivered first: fifo, priority or score [default: priority]. Cannot be changed later.
    #[arg(long, value_name = "ORDER", value_parser = order, help_heading = "Policy")]
    order: Option<OrderBody>,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// Create a queue, or change its policy to this, and print what changed.
///
/// Settings that are not given stay as they are. The schema and the order of a queue that exists cannot be changed.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    queue: CreateArgs,
    /// Change nothing: print what would change.
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let (name, body) = args.put();
    let queue = session.client.put_queue(&name, &body).await?;
    session.output.name_or_json(&queue.name, &queue)
}

pub async fn apply(session: &Session, args: ApplyArgs) -> Result<(), Failure> {
    let (name, body) = args.queue.put();
    let applied = session.client.apply_queue(&name, &body, args.dry_run).await?;
    let text = outcome(applied.created, &applied.changed);
    session.output.name_or_json(text, &applied)
}

/// What an apply did, or would do.
pub fn outcome(created: bool, changed: &[SettingChange]) -> String {
    match (created, changed) {
        (true, _) => "created".to_owned(),
        (false, []) => "unchanged".to_owned(),
        (false, changed) => changed.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    }
}

impl CreateArgs {
    fn put(self) -> (String, PutQueue) {
        let schema = SchemaBody {
            inputs: self.input,
            outputs: self.output,
            input_params: self.input_param,
            output_params: self.output_param,
        };
        (self.name, PutQueue { schema, policy: self.policy.body(self.order) })
    }
}
