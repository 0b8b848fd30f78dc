//! Key-value records of clients.

use super::unexpected;
use crate::app::App;
use crate::auth::audit::AuditSubject;
use crate::auth::{Caller, Right};
use crate::request::{DecodedBody, KeyPath, NoQuery, Query, excerpt};
use crate::response::{ProblemResponse, Responder, run_blocking_if_large};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use std::collections::BTreeSet;
use towline_api::{
    Code, Element, IncrementRecord, RecordAction, RecordDeleted, RecordNumber, RecordPage, RecordResult,
    RecordSet, RecordShown, RecordsAnswer, RecordsBody, RecordsRequest, RefusedElement, SetRecord,
};
use towline_domain::kv::{KvAnswer, KvCommand};
use towline_domain::limits::{self, KV_PAGE_MAX};
use towline_store::StoreError;

/// A page of records ends after values of this size.
const PAGE_BYTES: usize = 4 << 20;
/// The audit log has no more keys of a call after this many bytes of them.
const AUDITED_BYTES: usize = 1000;

/// List records in byte order of their keys.
#[utoipa::path(get, path = "/v1/kv", operation_id = "list_records", tag = "records", security(("token" = ["kv:{prefix}:read"])),
    params(
        ("prefix" = Option<String>, Query, description = "Only records whose keys have this prefix. Default: all"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "Maximum number of entries, up to 1000. Default: 100", minimum = 1, maximum = 1000),
    ),
    responses(
        (status = 200, description = "A page. It ends early when its values are large.", body = RecordPage),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    respond: Responder,
    caller: Caller,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let (prefix, cursor) = (query.one("prefix")?.unwrap_or_default(), query.one("cursor")?);
    let limit = query.limit()?;
    query.end()?;
    caller.check_records(&prefix, Right::Read)?;
    let (mut records, mut after, mut bytes) = (Vec::new(), cursor, 0);
    let next = loop {
        let wanted = KV_PAGE_MAX.min(limit - records.len());
        let found = app.broker.kv_list(&prefix, after.as_deref(), wanted).await?;
        let Some((last, _)) = found.last() else { break None };
        after = Some(last.clone());
        bytes += found.iter().map(|(_, record)| record.value.len()).sum::<usize>();
        records.extend(found.into_iter().map(|(key, record)| RecordShown::new(key, &record)));
        if records.len() >= limit || bytes >= PAGE_BYTES {
            break after;
        }
    };
    run_blocking_if_large(bytes, || respond.with(&RecordPage { records, next }))
}

/// Make calls about many records: get, set, increment, delete.
///
/// The response contains a result for each call, in the same order. The server makes the calls in order, so a `get` shows what the
/// calls before it wrote. The calls are not a transaction: each succeeds or is refused by itself.
#[utoipa::path(post, path = "/v1/kv", operation_id = "act_on_records", tag = "records", security(("token" = ["kv:{key of each call}:<read|write>"])), request_body = RecordsRequest, responses(
    (status = 200, description = "The result for each call.", body = RecordsAnswer),
    (status = 413, description = "Too many calls, or the body is too large."),
))]
pub(super) async fn act(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    caller: Caller,
    DecodedBody(body, ..): DecodedBody<RecordsBody>,
) -> Result<Response, ProblemResponse> {
    let prepare = |Element(action): Element<RecordAction>| match action {
        Ok(action) => {
            let (key, command) = action.into_domain()?;
            caller.check_records(&key, if command.is_some() { Right::Write } else { Right::Read })?;
            Ok((key, command))
        }
        Err(malformed) => Err(ProblemResponse::from(malformed)),
    };
    let calls: Vec<_> = body.actions.into_iter().map(prepare).collect();
    let gets = calls.iter().flatten().filter(|(_, command)| command.is_none()).count();
    StoreError::check_size("actions", calls.len(), limits::BATCH_MAX)?;
    StoreError::check_size("gets among the actions", gets, KV_PAGE_MAX)?;
    let subject = audit_subject(&calls);
    let mut response = carry_out(&app, respond, calls).await.into_response();
    if let Some(subject) = subject {
        response.extensions_mut().insert(subject);
    }
    Ok(response)
}

type Checked<T> = Result<T, ProblemResponse>;
/// A command, or `None` to get the record.
type Call = (String, Option<KvCommand>);

/// The keys of the records that calls may change. `None` if they change none.
fn audit_subject(calls: &[Checked<Call>]) -> Option<AuditSubject> {
    let changed = calls.iter().flatten().filter(|(_, command)| command.is_some());
    let keys: BTreeSet<&str> = changed.map(|(key, _)| key.as_str()).collect();
    let mut subject = String::new();
    for (index, key) in keys.iter().enumerate() {
        if subject.len() > AUDITED_BYTES {
            subject += &format!(" and {} more", keys.len() - index);
            break;
        }
        subject += &format!("{}{:?}", if index == 0 { "" } else { " " }, excerpt(key));
    }
    (!keys.is_empty()).then_some(AuditSubject(subject))
}

async fn carry_out(app: &App, respond: Responder, calls: Vec<Checked<Call>>) -> Checked<Response> {
    let mut results = Vec::with_capacity(calls.len());
    let mut changes = Vec::new();
    for call in calls {
        match call {
            Ok((key, Some(command))) => changes.push(Ok((key, command))),
            Ok((key, None)) => {
                // It reads what the calls before it wrote.
                results.extend(change(app, std::mem::take(&mut changes)).await?);
                results.push(shown(app, key).await.map(RecordResult::Shown));
            }
            Err(refused) => changes.push(Err(refused)),
        }
    }
    results.extend(change(app, changes).await?);
    let refused = |problem: ProblemResponse| {
        RecordResult::Refused(RefusedElement { error: problem.into_element_error() })
    };
    let results: Vec<_> = results.into_iter().map(|result| result.unwrap_or_else(refused)).collect();
    let count = results.len();
    respond.with_many(&RecordsAnswer { results }, count)
}

/// Carries out the commands that were not refused, in order.
async fn change(
    app: &App,
    changes: Vec<Checked<(String, KvCommand)>>,
) -> Checked<Vec<Checked<RecordResult>>> {
    let commands: Vec<_> = changes.iter().flatten().cloned().collect();
    let mut answers = app.broker.kv_all(commands).await?.into_iter();
    let result = |change: Checked<(String, KvCommand)>| {
        let (_, command) = change?;
        let answer = answers.next().unwrap_or(Err(StoreError::Closed.into()))?;
        changed(&command, answer)
    };
    Ok(changes.into_iter().map(result).collect())
}

async fn shown(app: &App, key: String) -> Result<RecordShown, ProblemResponse> {
    match app.broker.kv_get(&key).await? {
        Some(record) => Ok(RecordShown::new(key, &record)),
        None => Err(not_found(&key)),
    }
}

fn not_found(key: &str) -> ProblemResponse {
    let key = excerpt(key);
    let detail = format!("there is no record {key:?}; it was never set, or it has expired");
    ProblemResponse::new(Code::RecordNotFound, detail)
}

fn changed(command: &KvCommand, answer: KvAnswer) -> Result<RecordResult, ProblemResponse> {
    match (command, answer) {
        (KvCommand::Replace { value: None, .. }, KvAnswer::Won(deleted))
        | (_, KvAnswer::Deleted(deleted)) => Ok(RecordResult::Deleted(RecordDeleted { deleted })),
        (_, KvAnswer::Done) => Ok(RecordResult::Set(RecordSet { set: true })),
        (_, KvAnswer::Won(set)) => Ok(RecordResult::Set(RecordSet { set })),
        (_, KvAnswer::Number(value)) => Ok(RecordResult::Number(RecordNumber { value })),
    }
}

/// Show a record.
#[utoipa::path(get, path = "/v1/kv/{key}", operation_id = "get_record", tag = "records", security(("token" = ["kv:{key}:read"])), params(("key" = String, Path)), responses(
    (status = 200, description = "The record.", body = RecordShown),
    (status = 404, description = "The record does not exist, or it has expired."),
))]
pub(super) async fn get(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    KeyPath(key): KeyPath,
) -> Result<Response, ProblemResponse> {
    respond.with(&shown(&app, key).await?)
}

/// Set a record. With `if_absent`, set it only if it does not exist; with `if_value`, only if it has this value.
#[utoipa::path(put, path = "/v1/kv/{key}", operation_id = "set_record", tag = "records", security(("token" = ["kv:{key}:write"])), params(("key" = String, Path)), request_body = SetRecord, responses(
    (status = 200, description = "Whether the record was set.", body = RecordSet),
    (status = 507, description = "The store is full."),
))]
pub(super) async fn set(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    KeyPath(key): KeyPath,
    DecodedBody(body, ..): DecodedBody<SetRecord>,
) -> Result<Response, ProblemResponse> {
    let set = match app.broker.kv(&key, KvCommand::try_from(body)?).await? {
        KvAnswer::Done => true,
        KvAnswer::Won(won) => won,
        _ => return Err(unexpected()),
    };
    respond.with(&RecordSet { set })
}

/// Add to the number in a record.
///
/// A record that does not exist counts as 0. With `once`, calls with the same `once` add only once.
#[utoipa::path(post, path = "/v1/kv/{key}/increment", operation_id = "increment_record", tag = "records", security(("token" = ["kv:{key}:write"])), params(("key" = String, Path)), request_body = IncrementRecord, responses(
    (status = 200, description = "The new number.", body = RecordNumber),
    (status = 400, description = "The record is not a number, or the sum is too large."),
    (status = 507, description = "The store is full."),
))]
pub(super) async fn increment(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    KeyPath(key): KeyPath,
    DecodedBody(body, ..): DecodedBody<IncrementRecord>,
) -> Result<Response, ProblemResponse> {
    let KvAnswer::Number(value) = app.broker.kv(&key, KvCommand::try_from(body)?).await? else {
        return Err(unexpected());
    };
    respond.with(&RecordNumber { value })
}

/// Delete a record.
#[utoipa::path(delete, path = "/v1/kv/{key}", operation_id = "delete_record", tag = "records", security(("token" = ["kv:{key}:write"])), params(("key" = String, Path)), responses(
    (status = 204, description = "Deleted."),
    (status = 404, description = "The record does not exist, or it has expired."),
))]
pub(super) async fn delete(
    State(app): State<App>,
    _: NoQuery,
    KeyPath(key): KeyPath,
) -> Result<Response, ProblemResponse> {
    match app.broker.kv(&key, KvCommand::Delete).await? {
        KvAnswer::Deleted(true) => Ok(StatusCode::NO_CONTENT.into_response()),
        KvAnswer::Deleted(false) => Err(not_found(&key)),
        _ => Err(unexpected()),
    }
}
