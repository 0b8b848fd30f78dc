//! Key-value records.

use super::{Decided, Workspace};
use crate::Reply;
use towline_domain::kv::{self, KvCommand};

pub(super) fn change<W: Workspace>(
    workspace: &mut W,
    key: &str,
    command: KvCommand,
) -> Result<Decided, W::Fault> {
    let decision = match kv::decide(key, |key| workspace.record(key), command, workspace.now()) {
        Err(refusal) => return Ok(Err(refusal)),
        Ok(decision) => decision,
    };
    if let Err(refusal) = workspace.check_record_room(&decision.after) {
        return Ok(Err(refusal));
    }
    if !decision.after.is_empty() {
        workspace.apply_records(decision.after)?;
    }
    Ok(Ok(Reply::Kv(decision.answer)))
}
