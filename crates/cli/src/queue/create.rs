//! `towline queue create`.

use crate::connect::Session;
use crate::exit::Failure;
use crate::policy::{PolicyArgs, order};
use clap::Args;
use towline_api::{OrderBody, PutQueue, SchemaBody};

/// Make a queue. The same again is fine; a different one under the same name is refused.
///
/// Without --input, --output, --input-param and --output-param the queue takes any parameters. Prints the name alone.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Its name.
    #[arg(value_name = "QUEUE")]
    name: String,
    /// A buffer slot that submitters fill; `name?` may be left empty. Repeatable.
    #[arg(long, value_name = "SLOT", help_heading = "Schema")]
    input: Vec<String>,
    /// A buffer slot that workers fill; `name?` may be left empty. Repeatable.
    #[arg(long, value_name = "SLOT", help_heading = "Schema")]
    output: Vec<String>,
    /// A parameter that submitters give; `name?` may be left out. Repeatable.
    #[arg(long, value_name = "NAME", help_heading = "Schema")]
    input_param: Vec<String>,
    /// A parameter that workers give back; `name?` may be left out. Repeatable.
    #[arg(long, value_name = "NAME", help_heading = "Schema")]
    output_param: Vec<String>,
    /// Which item goes first: fifo, priority or score [default: priority]. Cannot be changed later.
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
