//! Key-value records of clients.

use super::unexpected;
use crate::app::App;
use crate::auth::Caller;
use crate::request::{DecodedBody, KeyPath, NoQuery, Query};
use crate::response::{ProblemResponse, Responder, run_blocking_if_large};
use axum::extract::State;
use axum::response::Response;
use towline_api::{
    Code, IncrementRecord, RecordDeleted, RecordNumber, RecordPage, RecordSet, RecordShown, SetRecord,
};
use towline_domain::kv::{KvAnswer, KvCommand};
use towline_domain::limits::KV_PAGE_MAX;

/// List records in byte order of their keys.
#[utoipa::path(get, path = "/v1/kv", operation_id = "list_records", tag = "records", security(("token" = ["kv:{prefix}:read"])),
    params(
        ("prefix" = Option<String>, Query, description = "Only records whose keys have this prefix. Default: all"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page"),
        ("limit" = Option<usize>, Query, description = "Maximum number of records, up to 64. Default: 64", minimum = 1, maximum = 64),
    ),
    responses(
        (status = 200, description = "A page.", body = RecordPage),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    respond: Responder,
    caller: Caller,
    mut query: Query,
) -> Result<Response, ProblemResponse> {
    let (prefix, cursor) = (query.one("prefix")?.unwrap_or_default(), query.one("cursor")?);
    let limit = query.number("limit", KV_PAGE_MAX, KV_PAGE_MAX)?;
    query.end()?;
    caller.check_records(&prefix)?;
    let found = app.broker.kv_list(&prefix, cursor.as_deref(), limit).await?;
    let next = found.last().filter(|_| found.len() >= limit).map(|(key, _)| key.clone());
    let bytes: usize = found.iter().map(|(_, record)| record.value.len()).sum();
    let records = found.into_iter().map(|(key, record)| RecordShown::new(key, &record)).collect();
    run_blocking_if_large(bytes, || respond.with(&RecordPage { records, next }))
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
    let Some(record) = app.broker.kv_get(&key).await? else {
        let detail = format!("there is no record {key:?}; it was never set, or it has expired");
        return Err(ProblemResponse::new(Code::RecordNotFound, detail));
    };
    respond.with(&RecordShown::new(key, &record))
}

/// Set a record. With `if_absent`, set it only if it does not exist.
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
    (status = 200, description = "Whether the record existed.", body = RecordDeleted),
))]
pub(super) async fn delete(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    KeyPath(key): KeyPath,
) -> Result<Response, ProblemResponse> {
    let KvAnswer::Deleted(deleted) = app.broker.kv(&key, KvCommand::Delete).await? else {
        return Err(unexpected());
    };
    respond.with(&RecordDeleted { deleted })
}
