//! Import of an export into the store of this server.

use crate::app::App;
use crate::request::{BodyMemory, NoQuery, broken_off, silent};
use crate::response::{ProblemResponse, Responder};
use crate::transfer::{self, LINE_BYTES_MAX, LineSource, TransferError};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use std::time::Duration;
use towline_api::{Code, TransferSummary};

/// Longer than for other bodies: the program that writes the export may be slow.
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// How long an import waits for the memory of a line before it fails.
const MEMORY_WAIT: Duration = Duration::from_secs(30);

/// Import an export.
///
/// The body is what `GET /v1/export` or `towline export` wrote. The store must have no queues, schedules, records and groups. Until the
/// import ends, the server answers every other call that changes something with 503 `busy`, and schedules submit nothing. An import
/// that fails has imported a part: start again with an empty store.
#[utoipa::path(post, path = "/v1/import", operation_id = "import", tag = "server", security(("token" = ["admin"])),
    request_body(content = String, content_type = "application/x-ndjson", description = "The lines of the export, of any length"),
    responses(
        (status = 200, description = "Everything was imported.", body = TransferSummary),
        (status = 409, description = "The store is not empty."),
        (status = 503, description = "A backup, an export or an import is under way."),
    ))]
pub(super) async fn import(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    request: Request,
) -> Result<Response, ProblemResponse> {
    let copy = app.begin_copy().await?;
    let running = app.begin_import();
    // In a separate task: a batch under way is finished and wakes its waiters, even if the client disconnects.
    let imported = tokio::spawn(async move {
        let (guards, app) = ((copy, running), app);
        let lines = RequestLines::new(request.into_body(), app.clone());
        let imported = tokio::select! {
            imported = transfer::receive(&app.broker, lines) => imported.map_err(ProblemResponse::from),
            () = app.stopped() => {
                let detail = "the server is stopping; the import is incomplete: start again with an empty store";
                Err(ProblemResponse::new(Code::Stopping, detail))
            }
        };
        drop(guards);
        imported
    });
    let imported =
        imported.await.map_err(|error| ProblemResponse::new(Code::Internal, error.to_string()))??;
    respond.with(&imported)
}

fn failed(problem: ProblemResponse) -> TransferError {
    let (code, detail) = problem.into_code_and_detail();
    TransferError::Request { code, detail }
}

/// The lines of a request body.
struct RequestLines {
    body: Body,
    app: App,
    /// For the last line, until the next one is read.
    memory: BodyMemory,
    /// What has arrived after the last line.
    rest: Bytes,
}

impl RequestLines {
    fn new(body: Body, app: App) -> RequestLines {
        let memory = BodyMemory::new(&app.body_room);
        RequestLines { body, app, memory, rest: Bytes::new() }
    }

    /// `None` at the end of the body.
    async fn data(&mut self) -> Result<Option<Bytes>, TransferError> {
        if self.rest.has_remaining() {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        loop {
            let frame = tokio::time::timeout(SILENCE_MAX, self.body.frame()).await;
            let frame = frame.map_err(|_| failed(silent(SILENCE_MAX)))?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| failed(broken_off(&error)))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

impl LineSource for RequestLines {
    async fn next(&mut self) -> Result<Vec<u8>, TransferError> {
        let mut line = Vec::new();
        self.memory = BodyMemory::new(&self.app.body_room);
        while let Some(mut data) = self.data().await? {
            let end = data.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let room = LINE_BYTES_MAX - line.len();
            let taken = end.unwrap_or(data.len()).min(room);
            self.memory.grow_within(MEMORY_WAIT, line.len() + taken).await.map_err(failed)?;
            line.extend_from_slice(&data.split_to(taken));
            self.rest = data;
            if end.is_some_and(|end| end == taken) || line.len() == LINE_BYTES_MAX {
                break;
            }
        }
        Ok(line)
    }
}
