//! The one filter of lists, counts and acts: read from the address, whatever the route.

use crate::app::App;
use crate::query::{Query, invalid, shown};
use crate::refuse::Refused;
use std::str::FromStr;
use towline_domain::{FailureKind, HeadFilter, QueueName, Refusal, StateName};
use towline_store::{Cursor, ErrorText, Filter};

/// Which items are meant, of a queue that must be there; without one, of all queues.
pub(super) async fn filter(
    app: &App,
    queue: Option<QueueName>,
    query: &mut Query,
) -> Result<Filter, Refused> {
    let (state, failure) = state(query)?;
    let (priority_min, priority_max) = range(query, "priority", ["priority_min", "priority_max"])?;
    let (attempt_min, attempt_max) = range(query, "attempt", ["attempt_min", "attempt_max"])?;
    let mut tags = pairs(query, "tag")?;
    tags.extend(query.one("type")?.map(|kind| ("type".to_owned(), kind)));
    let error = query.one("error")?;
    if error.as_ref().is_some_and(String::is_empty) {
        return Err(invalid("error", "an empty text is in every error; say what to look for"));
    }
    let filter = Filter {
        queue: queue.clone(),
        head: HeadFilter {
            state,
            failure,
            priority_min,
            priority_max,
            attempt_min,
            attempt_max,
            created_from: query.time("created_from")?,
            created_before: query.time("created_before")?,
            finished_from: query.time("finished_from")?,
            finished_before: query.time("finished_before")?,
        },
        tags,
        tag_prefixes: pairs(query, "tag_prefix")?,
        group: query.one("group")?,
        idempotency_key: query.one("idempotency_key")?,
        error: error.as_deref().map(ErrorText::new),
    };
    filter.check()?;
    if let Some(queue) = queue
        && app.broker.store().queue(queue.clone()).await?.is_none()
    {
        return Err(Refusal::QueueNotFound { name: queue.to_string() }.into());
    }
    Ok(filter)
}

fn pairs(query: &mut Query, name: &'static str) -> Result<Vec<(String, String)>, Refused> {
    let pair = |text: String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(invalid(name, format!("{:?}; use key=value", shown(&text)))),
    };
    query.all(name).into_iter().map(pair).collect()
}

/// One number, or the least and the most.
fn range<T: FromStr<Err: std::fmt::Display> + Copy>(
    query: &mut Query,
    name: &'static str,
    [min, max]: [&'static str; 2],
) -> Result<(Option<T>, Option<T>), Refused> {
    match (query.parse(name)?, query.parse(min)?, query.parse(max)?) {
        (None, min, max) => Ok((min, max)),
        (exactly @ Some(_), None, None) => Ok((exactly, exactly)),
        (Some(_), _, _) => Err(invalid(name, format!("`{min}` or `{max}` is given too; choose one"))),
    }
}

/// The state, and the kind of failure, which some call a state.
fn state(query: &mut Query) -> Result<(Option<StateName>, Option<FailureKind>), Refused> {
    // The Tyger document's word for it, and ours.
    let text = match (query.one("state")?, query.one("status")?) {
        (Some(_), Some(_)) => return Err(invalid("status", "`state` is given too; choose one")),
        (one, other) => one.or(other),
    };
    let kinds = FailureKind::ALL.map(FailureKind::name).join(", ");
    let failure = match query.one("failure")? {
        None => None,
        Some(text) => match FailureKind::parse(&text) {
            None => return Err(invalid("failure", format!("{:?} is not one of {kinds}", shown(&text)))),
            kind => kind,
        },
    };
    let Some(text) = text else { return Ok((None, failure)) };
    if let Some(kind) = FailureKind::parse(&text) {
        return match failure {
            Some(other) if other != kind => Err(invalid("failure", "`state` names another kind; choose one")),
            _ => Ok((Some(StateName::Failed), Some(kind))),
        };
    }
    let names = "pending, ready, scheduled, processing, paused, completed, failed, unfinished";
    match StateName::parse(&text) {
        Some(state) => Ok((Some(state), failure)),
        None => Err(invalid("state", format!("{:?} is not one of {names}", shown(&text)))),
    }
}

pub(super) fn cursor(query: &mut Query) -> Result<Option<Cursor>, Refused> {
    Ok(query.parse("cursor")?.map(Cursor))
}

pub(super) fn next(cursor: Option<Cursor>) -> Option<String> {
    cursor.map(|cursor| cursor.0.to_string())
}
