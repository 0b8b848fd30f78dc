//! Buffers: one file for each kind of caller. The storage decides what is allowed; the broker is asked first, because a
//! buffer made for an attempt lasts as long as the attempt.

pub(super) mod chunks;
pub(super) mod content;
pub(super) mod manage;
mod range;
pub(super) mod sign;
pub(super) mod upload;
pub(super) mod write;

use crate::app::App;
use crate::refuse::Refused;
use towline_api::buffer::BufferShown;
use towline_api::{Code, Time};
use towline_buffers::{BufferState, BufferStatus, Buffers, Meta, WriterId};
use towline_domain::Timestamp;

/// The storage, for who does not name a buffer yet.
fn storage(app: &App) -> Result<&Buffers, Refused> {
    let detail = "this server has no buffers; name a place for them with --buffers";
    app.broker.buffers().ok_or_else(|| Refused::new(Code::NotSupported, detail))
}

/// The storage, for who may write this buffer now.
async fn to_write<'a>(app: &'a App, id: &str) -> Result<&'a Buffers, Refused> {
    let buffers = storage(app)?;
    app.broker.admit_writer(id).await??;
    Ok(buffers)
}

/// The storage, for who may read this buffer now.
async fn to_read<'a>(app: &'a App, id: &str) -> Result<&'a Buffers, Refused> {
    let buffers = storage(app)?;
    app.broker.admit_reader(id).await??;
    Ok(buffers)
}

fn writer(text: &str) -> Result<WriterId, Refused> {
    Ok(text.parse()?)
}

fn time(ms: u64) -> Time {
    Timestamp(ms).into()
}

fn shown(shown: BufferStatus) -> BufferShown {
    let BufferStatus { id, meta: Meta { created_at_ms, tags, expires_at_ms }, state, position } = shown;
    let mut shown = BufferShown {
        id,
        state: String::new(),
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
    shown.state = match state {
        BufferState::Empty => "empty",
        BufferState::Writing { begun_at_ms, last_activity_ms } => {
            shown.begun_at = Some(time(begun_at_ms));
            shown.last_sign_at = Some(time(last_activity_ms));
            "writing"
        }
        BufferState::Complete { finished_at_ms } => {
            shown.finished_at = Some(time(finished_at_ms));
            "complete"
        }
        BufferState::Failed { finished_at_ms, reason } => {
            shown.finished_at = Some(time(finished_at_ms));
            shown.reason = Some(reason);
            "failed"
        }
    }
    .to_owned();
    shown
}
