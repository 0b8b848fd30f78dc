//! The filter in the query string of lists, counts and bulk actions.

use crate::app::App;
use crate::request::{Query, excerpt, invalid};
use crate::response::ProblemResponse;
use std::str::FromStr;
use towline_domain::{FailureKind, FailureSet, HeadFilter, QueueName, Refusal, StateName, StateSet};
use towline_store::{Cursor, ErrorText, Exclusions, Filter};

/// Parses the filter. Without a queue, it selects items of all queues.
pub(super) async fn filter(
    app: &App,
    queue: Option<QueueName>,
    query: &mut Query,
) -> Result<Filter, ProblemResponse> {
    let (state, failure) = state(query)?;
    let (priority_min, priority_max) = range(query, "priority", ["priority_min", "priority_max"])?;
    let (attempt_min, attempt_max) = range(query, "attempt", ["attempt_min", "attempt_max"])?;
    let (deliveries_min, deliveries_max) = range(query, "deliveries", ["deliveries_min", "deliveries_max"])?;
    let mut tags = pairs(query, "tag")?;
    tags.extend(query.one("type")?.map(|kind| ("type".to_owned(), kind)));
    let (not_states, not_failures) = not_states(query)?;
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
            ready_from: query.time("ready_from")?,
            ready_before: query.time("ready_before")?,
            deliveries_min,
            deliveries_max,
            not_states,
            not_failures,
        },
        tags,
        tag_prefixes: prefixes(query, "tag_prefix")?,
        group: query.one("group")?,
        idempotency_key: query.one("idempotency_key")?,
        error: error.as_deref().map(ErrorText::new),
        not: exclusions(query)?,
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

/// Paths. An empty one would match every path.
fn prefixes(query: &mut Query, name: &'static str) -> Result<Vec<(String, String)>, ProblemResponse> {
    let pairs = pairs(query, name)?;
    match pairs.iter().find(|(_, top)| top.is_empty()) {
        Some((tag, _)) => {
            let tag = excerpt(tag);
            Err(invalid(
                name,
                format!("\"{tag}=\" has no path; give one, or / for every path that begins with it"),
            ))
        }
        None => Ok(pairs),
    }
}

fn exclusions(query: &mut Query) -> Result<Exclusions, ProblemResponse> {
    let mut tags = pairs(query, "not_tag")?;
    tags.extend(query.all("not_type").into_iter().map(|kind| ("type".to_owned(), kind)));
    let tag_names = query.all("no_tag");
    if tag_names.iter().any(String::is_empty) {
        return Err(invalid("no_tag", "the name is empty; give the name of a tag"));
    }
    let (tag_prefixes, groups) = (prefixes(query, "not_tag_prefix")?, query.all("not_group"));
    Ok(Exclusions { tags, tag_prefixes, tag_names, groups })
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
    let failure = query.one("failure")?.map(|text| failure_kind("failure", &text)).transpose()?;
    let Some(text) = text else { return Ok((None, failure)) };
    if let Some(kind) = FailureKind::parse(&text) {
        return match failure {
            Some(other) if other != kind => Err(invalid("failure", "`state` names another kind; choose one")),
            _ => Ok((Some(StateName::Failed), Some(kind))),
        };
    }
    Ok((Some(state_name("state", &text)?), failure))
}

/// Parses the excluded states and kinds of failure. A kind of failure is also accepted as a state.
fn not_states(query: &mut Query) -> Result<(StateSet, FailureSet), ProblemResponse> {
    let (mut states, mut failures) = (StateSet::default(), FailureSet::default());
    for text in query.all("not_state") {
        match FailureKind::parse(&text) {
            Some(kind) => failures = failures.with(kind),
            None => states = states.with(state_name("not_state", &text)?),
        }
    }
    for text in query.all("not_failure") {
        failures = failures.with(failure_kind("not_failure", &text)?);
    }
    Ok((states, failures))
}

fn state_name(what: &'static str, text: &str) -> Result<StateName, ProblemResponse> {
    let names = "pending, ready, scheduled, processing, paused, completed, failed, unfinished";
    StateName::parse(text).ok_or_else(|| invalid(what, format!("{:?} is not one of {names}", excerpt(text))))
}

fn failure_kind(what: &'static str, text: &str) -> Result<FailureKind, ProblemResponse> {
    let kinds = FailureKind::ALL.map(FailureKind::name).join(", ");
    FailureKind::parse(text)
        .ok_or_else(|| invalid(what, format!("{:?} is not one of {kinds}", excerpt(text))))
}

pub(super) fn cursor(query: &mut Query) -> Result<Option<Cursor>, ProblemResponse> {
    let Some(text) = query.one("cursor")? else { return Ok(None) };
    let number = text.parse().map_err(|_| {
        invalid(
            "cursor",
            format!("{:?} is not a cursor; send `next` of the previous response", excerpt(&text)),
        )
    })?;
    Ok(Some(Cursor(number)))
}

pub(super) fn next(cursor: Option<Cursor>) -> Option<String> {
    cursor.map(|cursor| cursor.0.to_string())
}
