//! `towline schedule create`.

use crate::connect::Session;
use crate::exit::Failure;
use crate::queue::ItemArgs;
use crate::value::{duration, time};
use clap::{Args, ValueEnum};
use towline_api::{Millis, PutSchedule, Span, Time};

/// Make a schedule, or change it to this, and print its name.
///
/// The same again changes nothing. A change of when it comes starts the rhythm anew; any other leaves it as it was.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["cron", "every"]))]
pub struct CreateArgs {
    /// Its name.
    #[arg(value_name = "SCHEDULE")]
    name: String,
    /// The queue its items go to.
    #[arg(long, value_name = "QUEUE")]
    queue: String,
    /// When: minute, hour, day of month, month, day of week; seconds may come first, years last. L, W and # are known.
    #[arg(long, value_name = "FIELDS", help_heading = "When")]
    cron: Option<String>,
    /// How often, at least a second: counted from --start, or from now.
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "When")]
    every: Option<Millis>,
    /// Where --cron is read, like Europe/Vienna [default: UTC].
    #[arg(long, value_name = "ZONE", conflicts_with = "every", help_heading = "When")]
    time_zone: Option<String>,
    /// Nothing before this time, like 2030-01-31T08:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "When")]
    start: Option<Time>,
    /// Nothing at this time or after it.
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "When")]
    end: Option<Time>,
    /// Each item is ready up to this much later.
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "When")]
    jitter: Option<Millis>,
    /// Which times are made up for that no server was there for [default: one, the latest].
    #[arg(long, value_name = "POLICY", help_heading = "When")]
    catch_up: Option<CatchUp>,
    /// With --catch-up all: at most so many, the latest ones [default: 100].
    #[arg(long, value_name = "N", help_heading = "When")]
    catch_up_max: Option<u32>,
    /// What to do while the item before is unfinished [default: allow].
    #[arg(long, value_name = "POLICY", help_heading = "When")]
    overlap: Option<Overlap>,
    /// Submit nothing until `schedule resume`.
    #[arg(long, help_heading = "When")]
    paused: bool,
    #[command(flatten)]
    item: ItemArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CatchUp {
    /// Nothing that is more than a minute late.
    None,
    /// The latest one.
    One,
    /// All, up to --catch-up-max.
    All,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Overlap {
    /// Submit all the same.
    Allow,
    /// Submit nothing this time.
    Skip,
    /// Cancel the item before.
    Cancel,
}

fn word(value: impl ValueEnum) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().to_owned())
}

pub async fn run(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let body = PutSchedule {
        queue: args.queue,
        cron: args.cron,
        every: args.every.map(Span::from),
        time_zone: args.time_zone,
        start: args.start,
        end: args.end,
        jitter: args.jitter.map(Span::from),
        catch_up: args.catch_up.and_then(word),
        catch_up_max: args.catch_up_max.map(i64::from),
        overlap: args.overlap.and_then(word),
        paused: args.paused.then_some(true),
        item: args.item.item()?,
    };
    let answer = session.client.put_schedule(&args.name, &body).await?;
    session.output.name_or_json(&answer.schedule.name, &answer)
}
