//! `towline topic`: publishes messages and prints them.

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

/// How long subscribing may take.
const GRACE: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Publish a message to the current subscribers. It is not stored.
    Publish(PublishArgs),
    /// Print messages as they are published, one JSON object per line.
    #[command(visible_alias = "sub")]
    Subscribe(SubscribeArgs),
}

#[derive(Debug, Args)]
pub struct PublishArgs {
    /// The topic's name. The same rules as for queue names apply.
    topic: String,
    /// The message, at most 16 KiB. `-` reads standard input.
    #[arg(allow_hyphen_values = true)]
    message: String,
}

#[derive(Debug, Args)]
pub struct SubscribeArgs {
    /// The topic's name. The same rules as for queue names apply.
    topic: String,
    /// Stop after this many messages.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

pub async fn run(session: &Session, command: TopicCommand) -> Result<(), Failure> {
    match command {
        TopicCommand::Publish(PublishArgs { topic, message }) => {
            let message = Source::text(message).read_text()?;
            let subscribers = session.client.publish(&topic, &message).await?;
            session.output.json_only(&towline_api::Published { subscribers })
        }
        TopicCommand::Subscribe(args) => subscribe(session, args).await,
    }
}

/// Waits for a server that restarts. Reports that messages may be lost meanwhile.
async fn subscribe(session: &Session, args: SubscribeArgs) -> Result<(), Failure> {
    let client = &session.client;
    let reader = StdoutReader::new();
    let mut reconnect = Reconnect::new(None);
    let mut left = args.count.unwrap_or(u64::MAX);
    // Report a server that was never there at once.
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

/// `None`: subscribe again.
async fn next(subscription: &mut Subscription) -> Option<String> {
    match subscription.next().await {
        Ok(Some(TopicEvent::Message(message))) => return Some(message),
        Ok(Some(TopicEvent::CutOff { missed })) => {
            output::say(format!("too slow: missed {missed} messages"));
        }
        Ok(None) => output::say("the server closed the subscription; trying again"),
        Err(error) => output::say(format!("{error}; trying again")),
    }
    None
}
