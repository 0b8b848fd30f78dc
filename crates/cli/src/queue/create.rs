//! `towline queue create`.

use crate::connect::Session;
use crate::exit::Failure;
use crate::policy::{PolicyArgs, order};
use clap::Args;
use towline_api::{OrderBody, PutQueue, SchemaBody};

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

pub async fn run(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let schema = SchemaBody {
        inputs: args.input,
        outputs: args.output,
        input_params: args.input_param,
        output_params: args.output_param,
    };
    let body = PutQueue { schema, policy: args.policy.body(args.order) };
    let queue = session.client.put_queue(&args.name, &body).await?;
    session.output.name_or_json(&queue.name, &queue)
}
