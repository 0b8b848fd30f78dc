//! Export of everything in the store of a running server.

use crate::app::App;
use crate::request::Query;
use crate::response::{ProblemResponse, streamed};
use crate::transfer;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use http::header::CONTENT_TYPE;
use std::convert::Infallible;

const NDJSON: &str = "application/x-ndjson";

/// Export the store.
///
/// The response has one JSON object per line: queues, records, schedules and items with their payloads. The last line is `end` with
/// the counts, or `failed` with the reason. Items that change meanwhile are as they were when they were read. `towline import`
/// reads it.
#[utoipa::path(get, path = "/v1/export", operation_id = "export", tag = "server", security(("token" = ["admin"])),
    params(
        ("with_tokens" = Option<bool>, Query, description = "Include tokens: their names, scopes and hashes. Default: false"),
    ),
    responses(
        (status = 200, description = "The lines.", body = String, content_type = "application/x-ndjson"),
        (status = 503, description = "A backup, an export or an import is under way."),
    ))]
pub(super) async fn export(State(app): State<App>, mut query: Query) -> Result<Response, ProblemResponse> {
    let with_tokens = query.parse("with_tokens")?.unwrap_or(false);
    query.end()?;
    let guard = app.begin_copy().await?;
    let lines = transfer::send(app.broker.shared_store(), app.broker.payloads(), with_tokens, guard);
    let lines = stream::unfold(lines, |mut lines| async move { Some((lines.recv().await?, lines)) });
    // A client recognises an incomplete export: its last line is missing.
    let lines = lines.take_until(app.stopped()).map(Ok::<_, Infallible>);
    Ok(([(CONTENT_TYPE, NDJSON)], streamed(lines)).into_response())
}
