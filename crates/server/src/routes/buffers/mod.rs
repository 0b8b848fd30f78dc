//! Buffers. The routes ask the broker first whether the client may use a buffer now, because a buffer of an attempt is only
//! usable during the attempt.

pub(super) mod chunks;
pub(super) mod content;
pub(super) mod manage;
mod range;
pub(super) mod sign;
pub(super) mod upload;
pub(super) mod write;

use crate::app::App;
use crate::response::ProblemResponse;
use towline_api::buffer::BufferShown;
use towline_api::{Code, Time};
use towline_buffers::{BufferState, BufferStatus, Buffers, Meta, WriterId};
use towline_domain::Timestamp;

/// The buffer storage.
fn storage(app: &App) -> Result<&Buffers, ProblemResponse> {
    let detail = "this server has no buffer storage; configure it with --buffers";
    app.broker.buffers().ok_or_else(|| ProblemResponse::new(Code::NotSupported, detail))
}

/// The buffer storage, if clients may write this buffer now.
async fn writable<'a>(app: &'a App, id: &str) -> Result<&'a Buffers, ProblemResponse> {
    let buffers = storage(app)?;
    app.broker.admit_writer(id).await?;
    Ok(buffers)
}

/// The buffer storage, if clients may read this buffer now.
async fn readable<'a>(app: &'a App, id: &str) -> Result<&'a Buffers, ProblemResponse> {
    let buffers = storage(app)?;
    app.broker.admit_reader(id).await?;
    Ok(buffers)
}

fn writer(text: &str) -> Result<WriterId, ProblemResponse> {
    Ok(text.parse()?)
}

fn time(ms: u64) -> Time {
    Timestamp(ms).into()
}

fn describe(buffer: BufferStatus) -> BufferShown {
    let BufferStatus { id, meta: Meta { created_at_ms, tags, expires_at_ms }, state, position } = buffer;
    let mut shown = BufferShown {
        id,
        state: state.kind().name().to_owned(),
        created_at: time(created_at_ms),
        expires_at: expires_at_ms.map(time),
        tags,
        bytes: position.bytes,
        chunks: position.chunks,
        chain: position.chain.into(),
        begun_at: None,
        last_sign_at: None,
        finished_at: None,
        reason: None,
    };
    match state {
        BufferState::Empty => {}
        BufferState::Writing { begun_at_ms, last_activity_ms } => {
            shown.begun_at = Some(time(begun_at_ms));
            shown.last_sign_at = Some(time(last_activity_ms));
        }
        BufferState::Complete { finished_at_ms } => shown.finished_at = Some(time(finished_at_ms)),
        BufferState::Failed { finished_at_ms, reason } => {
            shown.finished_at = Some(time(finished_at_ms));
            shown.reason = Some(reason);
        }
    }
    shown
}
