//! `towline schedule`.

mod create;

use crate::connect::Session;
use crate::exit::Failure;
use clap::{Args, Subcommand};
use towline_api::{ScheduleShown, Time};

#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    Create(Box<create::CreateArgs>),
    Apply(Box<create::ApplyArgs>),
    /// List schedules.
    List,
    /// Show a schedule: its item, its timing and its counters.
    Show(ScheduleArg),
    /// Delete a schedule. The items that it submitted stay.
    Delete(ScheduleArg),
    /// Pause a schedule.
    Pause(ScheduleArg),
    /// Resume a schedule. Occurrences during the pause are not submitted.
    Resume(ScheduleArg),
    /// Submit an item now and print its id. The next occurrences stay as they are.
    Run(ScheduleArg),
    /// Print the next occurrences.
    Next(NextArgs),
}

#[derive(Debug, Args)]
pub struct ScheduleArg {
    /// The schedule's name.
    #[arg(value_name = "SCHEDULE")]
    name: String,
}

#[derive(Debug, Args)]
pub struct NextArgs {
    /// The schedule's name.
    #[arg(value_name = "SCHEDULE")]
    name: String,
    /// How many [default: 5].
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<usize>,
}

pub async fn run(session: &Session, command: ScheduleCommand) -> Result<(), Failure> {
    let Session { client, output } = session;
    match command {
        ScheduleCommand::Create(args) => create::run(session, *args).await,
        ScheduleCommand::Apply(args) => create::apply(session, *args).await,
        ScheduleCommand::List => list(session).await,
        ScheduleCommand::Show(args) => output.object(&client.schedule(&args.name).await?),
        ScheduleCommand::Delete(args) => Ok(client.delete_schedule(&args.name).await?),
        ScheduleCommand::Pause(args) => output.json_only(&client.pause_schedule(&args.name).await?),
        ScheduleCommand::Resume(args) => output.json_only(&client.resume_schedule(&args.name).await?),
        ScheduleCommand::Run(args) => {
            let run = client.run_schedule(&args.name).await?;
            output.name_or_json(&run.id, &run)
        }
        ScheduleCommand::Next(args) => {
            let next = client.next_times(&args.name, args.count).await?;
            let mut listing = output.listing(&["TIME"]);
            for time in &next.times {
                listing.push(time, |time| vec![time.to_string()])?;
            }
            listing.finish()
        }
    }
}

async fn list(session: &Session) -> Result<(), Failure> {
    let headers = &["NAME", "QUEUE", "WHEN", "NEXT", "LAST", "SUBMITTED", "ERROR"];
    let mut listing = session.output.listing(headers);
    let mut cursor = None;
    loop {
        let page = session.client.schedules(cursor.as_deref()).await?;
        for schedule in &page.schedules {
            listing.push(schedule, row)?;
        }
        cursor = page.next;
        if cursor.is_none() {
            return listing.finish();
        }
    }
}

fn row(schedule: &ScheduleShown) -> Vec<String> {
    let when = match (&schedule.cron, &schedule.every) {
        (Some(cron), _) => format!("{cron} {}", schedule.time_zone.as_deref().unwrap_or_default()),
        (None, Some(every)) => format!("every {every}"),
        (None, None) => String::new(),
    };
    let time = |time: &Option<Time>| time.as_ref().map_or_else(String::new, ToString::to_string);
    let next = match &schedule.next_at {
        None if schedule.paused => "paused".to_owned(),
        None => "over".to_owned(),
        next => time(next),
    };
    vec![
        schedule.name.clone(),
        schedule.queue.clone(),
        when,
        next,
        time(&schedule.last_at),
        schedule.submitted.to_string(),
        schedule.error.as_ref().map_or_else(String::new, |error| error.code.clone()),
    ]
}
