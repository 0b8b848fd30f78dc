//! `towline topic`: what is told to everybody who listens.

use crate::connect::Session;
use crate::exit::Failure;
use crate::output;
use crate::reconnect::Reconnect;
use crate::source::Source;
use crate::stdout_reader::StdoutReader;
use clap::{Args, Subcommand};
use std::time::Duration;
use towline_api::TopicMessage;
use towline_api::client::{Subscription, TopicEvent};

/// To begin to listen takes no longer.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Tell everybody who listens now. Nothing is kept.
    Publish(PublishArgs),
    /// Print what is published from now on, one JSON object a line.
    #[command(visible_alias = "sub")]
    Subscribe(SubscribeArgs),
}

#[derive(Debug, Args)]
pub struct PublishArgs {
    /// The topic's name; the rule for names of queues holds.
    topic: String,
    /// Any text of at most 16 KiB; `-` reads it from standard input.
    #[arg(allow_hyphen_values = true)]
    message: String,
}

#[derive(Debug, Args)]
pub struct SubscribeArgs {
    /// The topic's name; the rule for names of queues holds.
    topic: String,
    /// End after so many messages.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

pub async fn run(session: &Session, command: TopicCommand) -> Result<(), Failure> {
    match command {
        TopicCommand::Publish(PublishArgs { topic, message }) => {
            let message = Source::text(message).read_text()?;
            let listeners = session.client.publish(&topic, &message).await?;
            session.output.json_only(&towline_api::Published { listeners })
        }
        TopicCommand::Subscribe(args) => subscribe(session, args).await,
    }
}

/// A server that restarts is waited for; what was published meanwhile is gone, and that is said.
async fn subscribe(session: &Session, args: SubscribeArgs) -> Result<(), Failure> {
    let client = &session.client;
    let reader = StdoutReader::new();
    let mut reconnect = Reconnect::new(None);
    let mut left = args.count.unwrap_or(u64::MAX);
    // A server that was never there is not waited for.
    let mut begun = Some(client.subscribe(&args.topic).await?);
    while left > 0 {
        let Some(mut subscription) = begun.take() else {
            begun = reconnect.attempt(client.url(), GRACE, client.subscribe(&args.topic)).await?;
            continue;
        };
        while left > 0 {
            let message = tokio::select! {
                message = next(&mut subscription) => message,
                () = reader.closed() => return Err(Failure::ReaderGone),
            };
            let Some(message) = message else { break };
            output::json_line(&TopicMessage { message })?;
            left -= 1;
        }
    }
    Ok(())
}

/// `None`: listen anew.
async fn next(subscription: &mut Subscription) -> Option<String> {
    match subscription.next().await {
        Ok(Some(TopicEvent::Message(message))) => return Some(message),
        Ok(Some(TopicEvent::CutOff { missed })) => {
            output::say(format!("too slow: {missed} messages went by"));
        }
        Ok(None) => output::say("the server listens no more; trying again"),
        Err(error) => output::say(format!("{error}; trying again")),
    }
    None
}
