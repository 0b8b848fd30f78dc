//! `towline queue tally`.

use crate::connect::Session;
use crate::exit::Failure;
use crate::value::time;
use clap::{Args, ValueEnum};
use towline_api::client::TallyQuery;
use towline_api::{TallyRowShown, Time};

/// Count finished items by hour or day and by outcome. Counts are kept for 30 days.
#[derive(Debug, Args)]
pub struct TallyArgs {
    /// The queue's name.
    #[arg(value_name = "QUEUE")]
    name: String,
    /// Start of the period [default: all that is kept].
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Time>,
    /// End of the period [default: now].
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<Time>,
    /// Count by hour, or by day in UTC.
    #[arg(long, value_enum, default_value_t = Period::Hour)]
    by: Period,
    /// Count separately for each value of this tag, or for each pair of values if it is given twice. The queue's
    /// --tally-tags must name it, for two tags as `team+type`.
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Period {
    Hour,
    Day,
}

const ALL: &[&str] =
    &["FROM", "COMPLETED", "FAILED", "EXPLICIT", "RETRIES EXHAUSTED", "EXPIRED", "CANCELLED", "POISON"];
const BY_TAG: &[&str] = &[
    "FROM",
    "VALUE",
    "COMPLETED",
    "FAILED",
    "EXPLICIT",
    "RETRIES EXHAUSTED",
    "EXPIRED",
    "CANCELLED",
    "POISON",
];

pub async fn run(session: &Session, args: TallyArgs) -> Result<(), Failure> {
    let by_tag = !args.tag.is_empty();
    let by_day = args.by == Period::Day;
    let query = TallyQuery { from: args.from, to: args.to, by_day, tags: args.tag };
    let tally = session.client.tally(&args.name, &query).await?;
    let mut listing = session.output.listing(if by_tag { BY_TAG } else { ALL });
    for counted in &tally.rows {
        listing.push(counted, |counted| row(counted, by_tag))?;
    }
    listing.finish()
}

fn row(counted: &TallyRowShown, by_tag: bool) -> Vec<String> {
    let pair = || counted.values.iter().map(|(tag, value)| format!("{tag}={value}")).collect::<Vec<_>>();
    let value = match &counted.value {
        Some(value) => value.clone(),
        None if counted.values.is_empty() => "(other values)".to_owned(),
        None => pair().join(" "),
    };
    let numbers = [
        counted.completed,
        counted.failed,
        counted.explicit,
        counted.retries_exhausted,
        counted.expired,
        counted.cancelled,
        counted.poison,
    ];
    let numbers = numbers.iter().map(u64::to_string);
    [counted.from.to_string()].into_iter().chain(by_tag.then_some(value)).chain(numbers).collect()
}
