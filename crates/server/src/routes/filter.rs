//! The filter in the query string of lists, counts and bulk actions.

use crate::app::App;
use crate::request::{Query, excerpt, invalid};
use crate::response::ProblemResponse;
use std::str::FromStr;
use towline_domain::{FailureKind, HeadFilter, QueueName, Refusal, StateName};
use towline_store::{Cursor, ErrorText, Filter};

/// Parses the filter. Without a queue, it selects items of all queues.
pub(super) async fn filter(
    app: &App,
    queue: Option<QueueName>,
    query: &mut Query,
) -> Result<Filter, ProblemResponse> {
    let (state, failure) = state(query)?;
    let (priority_min, priority_max) = range(query, "priority", ["priority_min", "priority_max"])?;
    let (attempt_min, attempt_max) = range(query, "attempt", ["attempt_min", "attempt_max"])?;
    let mut tags = pairs(query, "tag")?;
    tags.extend(query.one("type")?.map(|kind| ("type".to_owned(), kind)));
    let error = query.one("error")?;
    if error.as_ref().is_some_and(String::is_empty) {
        return Err(invalid("error", "the text is empty; give the text to look for"));
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

fn pairs(query: &mut Query, name: &'static str) -> Result<Vec<(String, String)>, ProblemResponse> {
    let pair = |text: String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(invalid(name, format!("{:?}; use key=value", excerpt(&text)))),
    };
    query.all(name).into_iter().map(pair).collect()
}

/// Parses an exact number, or a minimum and a maximum.
fn range<T: FromStr<Err: std::fmt::Display> + Copy>(
    query: &mut Query,
    name: &'static str,
    [min, max]: [&'static str; 2],
) -> Result<(Option<T>, Option<T>), ProblemResponse> {
    match (query.parse(name)?, query.parse(min)?, query.parse(max)?) {
        (None, min, max) => Ok((min, max)),
        (exact @ Some(_), None, None) => Ok((exact, exact)),
        (Some(_), _, _) => Err(invalid(name, format!("`{min}` or `{max}` is also given; choose one"))),
    }
}

/// Parses the state and the kind of failure. A kind of failure is also accepted as a state.
fn state(query: &mut Query) -> Result<(Option<StateName>, Option<FailureKind>), ProblemResponse> {
    // `status` is an alias of `state`.
    let text = match (query.one("state")?, query.one("status")?) {
        (Some(_), Some(_)) => return Err(invalid("status", "`state` is also given; choose one")),
        (one, other) => one.or(other),
    };
    let kinds = FailureKind::ALL.map(FailureKind::name).join(", ");
    let failure = match query.one("failure")? {
        None => None,
        Some(text) => match FailureKind::parse(&text) {
            None => return Err(invalid("failure", format!("{:?} is not one of {kinds}", excerpt(&text)))),
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
        None => Err(invalid("state", format!("{:?} is not one of {names}", excerpt(&text)))),
    }
}

pub(super) fn cursor(query: &mut Query) -> Result<Option<Cursor>, ProblemResponse> {
    Ok(query.parse("cursor")?.map(Cursor))
}

pub(super) fn next(cursor: Option<Cursor>) -> Option<String> {
    cursor.map(|cursor| cursor.0.to_string())
}
