//! Records that callers keep: small, by key, each for its time.

use super::unexpected;
use crate::answer::Reply;
use crate::app::App;
use crate::body::Wire;
use crate::path::KeyPath;
use crate::query::{NoQuery, Query};
use crate::refuse::Refused;
use axum::extract::State;
use axum::response::Response;
use towline_api::{
    Code, IncrementRecord, Problem, RecordDeleted, RecordNumber, RecordPage, RecordSet, RecordShown,
    SetRecord,
};
use towline_domain::kv::{KvAnswer, KvCommand};
use towline_domain::limits::KV_PAGE_MAX;

/// Records whose keys begin with `prefix`, in byte order of key.
#[utoipa::path(get, path = "/v1/kv", operation_id = "list_records", tag = "records", security(("token" = ["kv:read"])),
    params(
        ("prefix" = Option<String>, Query, description = "What the keys begin with: anything"),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, description = "At most so many: 64, and no more", minimum = 1, maximum = 64),
    ),
    responses(
        (status = 200, description = "A page of them.", body = RecordPage),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    reply: Reply,
    mut query: Query,
) -> Result<Response, Refused> {
    let (prefix, cursor) = (query.one("prefix")?.unwrap_or_default(), query.one("cursor")?);
    let limit = query.parse("limit")?.unwrap_or(KV_PAGE_MAX);
    query.end()?;
    if !(1..=KV_PAGE_MAX).contains(&limit) {
        let detail = format!("limit: {limit} is out of range; use 1 to {KV_PAGE_MAX}");
        return Err(Refused::new(Code::Invalid, detail));
    }
    let found = app.broker.kv_list(&prefix, cursor.as_deref(), limit).await??;
    let next = found.last().filter(|_| found.len() >= limit).map(|(key, _)| key.clone());
    let bytes: usize = found.iter().map(|(_, record)| record.value.len()).sum();
    let records = found.into_iter().map(|(key, record)| RecordShown::new(key, &record)).collect();
    crate::answer::aside(bytes, || reply.with(&RecordPage { records, next }))
}

/// A record as it is now.
#[utoipa::path(get, path = "/v1/kv/{key}", operation_id = "get_record", tag = "records", security(("token" = ["kv:read"])), params(("key" = String, Path)), responses(
    (status = 200, description = "The record.", body = RecordShown),
    (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    (status = 404, description = "There is none, or its time is over.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn get(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    KeyPath(key): KeyPath,
) -> Result<Response, Refused> {
    let Some(record) = app.broker.kv_get(&key).await?? else {
        let detail = format!("no record {key:?}; it was never set, or its time is over");
        return Err(Refused::new(Code::RecordNotFound, detail));
    };
    reply.with(&RecordShown::new(key, &record))
}

/// Sets a record: always, or with `if_absent` only if there is none.
#[utoipa::path(put, path = "/v1/kv/{key}", operation_id = "set_record", tag = "records", security(("token" = ["kv:write"])), params(("key" = String, Path)), request_body = SetRecord, responses(
    (status = 200, description = "Whether it was set.", body = RecordSet),
    (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    (status = 507, description = "The store holds as much as it may.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn set(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    KeyPath(key): KeyPath,
    Wire(body): Wire<SetRecord>,
) -> Result<Response, Refused> {
    let set = match app.broker.kv(&key, KvCommand::try_from(body)?).await?? {
        KvAnswer::Done => true,
        KvAnswer::Won(won) => won,
        _ => return Err(unexpected()),
    };
    reply.with(&RecordSet { set })
}

/// Adds to a record, which counts from 0; with `once`, each thing is counted once.
#[utoipa::path(post, path = "/v1/kv/{key}/increment", operation_id = "increment_record", tag = "records", security(("token" = ["kv:write"])), params(("key" = String, Path)), request_body = IncrementRecord, responses(
    (status = 200, description = "The number afterwards.", body = RecordNumber),
    (status = 400, description = "Refused: what is there is no number, or it would be too large for one.", body = Problem, content_type = "application/problem+json"),
    (status = 507, description = "The store holds as much as it may.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn increment(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    KeyPath(key): KeyPath,
    Wire(body): Wire<IncrementRecord>,
) -> Result<Response, Refused> {
    let KvAnswer::Number(value) = app.broker.kv(&key, KvCommand::try_from(body)?).await?? else {
        return Err(unexpected());
    };
    reply.with(&RecordNumber { value })
}

/// Deletes a record.
#[utoipa::path(delete, path = "/v1/kv/{key}", operation_id = "delete_record", tag = "records", security(("token" = ["kv:write"])), params(("key" = String, Path)), responses(
    (status = 200, description = "Whether there was one.", body = RecordDeleted),
    (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn delete(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    KeyPath(key): KeyPath,
) -> Result<Response, Refused> {
    let KvAnswer::Deleted(deleted) = app.broker.kv(&key, KvCommand::Delete).await?? else {
        return Err(unexpected());
    };
    reply.with(&RecordDeleted { deleted })
}
