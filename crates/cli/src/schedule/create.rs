//! `towline schedule create` and `towline schedule apply`.

use crate::connect::Session;
use crate::exit::Failure;
use crate::output;
use crate::queue::{ItemArgs, outcome};
use crate::value::{duration, time};
use clap::{Args, ValueEnum};
use towline_api::{Millis, PutSchedule, Span, Time};

/// Create a schedule, and print its name. Succeeds if the same schedule exists; fails if it differs.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["cron", "every"]))]
pub struct CreateArgs {
    /// The schedule's name.
    #[arg(value_name = "SCHEDULE")]
    name: String,
    /// The queue that receives the items.
    #[arg(long, value_name = "QUEUE")]
    queue: String,
    /// A cron expression: minute, hour, day of month, month, day of week, for example "0 8 * * 1-5". Seconds
    /// may come first and years last. Supports L, W and #.
    #[arg(long, value_name = "FIELDS", help_heading = "When")]
    cron: Option<String>,
    /// The interval, at least 1s, counted from --start or from now.
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "When")]
    every: Option<Millis>,
    /// The time zone of --cron, for example Europe/Vienna [default: UTC].
    #[arg(long, value_name = "ZONE", conflicts_with = "every", help_heading = "When")]
    time_zone: Option<String>,
    /// No occurrence is before this time, for example 2030-01-31T08:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "When")]
    start: Option<Time>,
    /// Every occurrence is before this time.
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "When")]
    end: Option<Time>,
    /// Delay each item by a random time of up to this much.
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "When")]
    jitter: Option<Millis>,
    /// Which occurrences to submit late that were missed while no server was running [default: one].
    #[arg(long, value_name = "POLICY", help_heading = "When")]
    catch_up: Option<CatchUp>,
    /// With --catch-up all: at most this many, the latest ones [default: 100].
    #[arg(long, value_name = "N", help_heading = "When")]
    catch_up_max: Option<u32>,
    /// What to do while the previous item is unfinished [default: allow].
    #[arg(long, value_name = "POLICY", help_heading = "When")]
    overlap: Option<Overlap>,
    /// Create the schedule paused. Start it with `schedule resume`.
    #[arg(long, help_heading = "When")]
    paused: bool,
    #[command(flatten)]
    item: ItemArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CatchUp {
    /// None that is more than a minute late.
    None,
    /// Only the latest.
    One,
    /// All, up to --catch-up-max.
    All,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Overlap {
    /// Submit anyway.
    Allow,
    /// Skip the occurrence.
    Skip,
    /// Cancel the previous item.
    Cancel,
}

fn word(value: impl ValueEnum) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().to_owned())
}

/// Create a schedule, or change it to this, and print what changed.
///
/// A change of the timing restarts it from now; any other change keeps the next occurrence.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    schedule: CreateArgs,
    /// Change nothing: print what would change.
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let (name, body) = args.put()?;
    let answer = session.client.put_schedule(&name, &body).await?;
    output::say_all(&answer.notes);
    session.output.name_or_json(&answer.schedule.name, &answer)
}

pub async fn apply(session: &Session, args: ApplyArgs) -> Result<(), Failure> {
    let (name, body) = args.schedule.put()?;
    let answer = session.client.apply_schedule(&name, &body, args.dry_run).await?;
    output::say_all(&answer.notes);
    let text = outcome(answer.created, &answer.changed);
    session.output.name_or_json(text, &answer)
}

impl CreateArgs {
    fn put(self) -> Result<(String, PutSchedule), Failure> {
        let body = PutSchedule {
            queue: self.queue,
            cron: self.cron,
            every: self.every.map(Span::from),
            time_zone: self.time_zone,
            start: self.start,
            end: self.end,
            jitter: self.jitter.map(Span::from),
            catch_up: self.catch_up.and_then(word),
            catch_up_max: self.catch_up_max.map(i64::from),
            overlap: self.overlap.and_then(word),
            paused: self.paused.then_some(true),
            item: self.item.item()?,
        };
        Ok((self.name, body))
    }
}
