//! Backup of the store of a running server.

use crate::app::App;
use crate::backup::{self, BackupError};
use crate::request::NoQuery;
use crate::response::{ProblemResponse, streamed};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use http::header::CONTENT_TYPE;
use towline_api::Code;

const TAR: &str = "application/x-tar";

/// Back up the store.
///
/// The response is a tar archive of a data directory: the log, and the buffers if they are in a directory. Clients continue
/// meanwhile. An archive without the last entry `towline.backup.end` is not complete. `towline backup` unpacks and checks it.
#[utoipa::path(get, path = "/v1/backup", operation_id = "backup", tag = "server", security(("token" = ["admin"])),
    responses(
        (status = 200, description = "The archive.", body = Vec<u8>, content_type = "application/x-tar"),
        (status = 422, description = "The store is not embedded. Use the tools of its database."),
        (status = 503, description = "A backup, an export or an import is under way."),
    ))]
pub(super) async fn backup(State(app): State<App>, _: NoQuery) -> Result<Response, ProblemResponse> {
    let place = app
        .backup_place()
        .ok_or_else(|| ProblemResponse::new(Code::NotSupported, BackupError::Postgres.to_string()))?;
    let pieces = backup::send(place, app.begin_copy().await?);
    let pieces = stream::unfold(pieces, |mut pieces| async move { Some((pieces.recv().await?, pieces)) });
    // A client recognises an incomplete archive: its last entry is missing.
    let body = streamed(pieces.take_until(app.stopped()));
    Ok(([(CONTENT_TYPE, TAR)], body).into_response())
}
