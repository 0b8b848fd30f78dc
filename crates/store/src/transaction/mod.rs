//! The transaction driver: carries out one operation, the same way for every store.
//!
//! It finds the queue and the item of the operation, calls `decide`, selects the items of a receive, records the effects,
//! and has the [`Workspace`] apply the change.
//!
//! **Invariant:** a refused operation changes nothing.

mod hand_off;
mod items;
mod queues;
mod receive;
mod records;
mod submit;
mod workspace;

pub use items::elapse;
pub use receive::Deliveries;
pub use workspace::{ItemChange, Workspace};

use crate::{Operation, Reply};
use towline_domain::{Command, Refusal};

/// What `decide` made of an operation.
pub type Decided = Result<Reply, Refusal>;

/// The result of an operation. Delivered items are read back later, once the batch is durable.
#[derive(Debug)]
pub enum Outcome<D> {
    Decided(Decided),
    Received(Deliveries<D>),
}

/// Carries out one operation of a batch.
pub fn run<W: Workspace>(workspace: &mut W, operation: Operation) -> Result<Outcome<W::Delivery>, W::Fault> {
    let operation = match operation {
        // Below, because it changes more than its item.
        operation if !operation.handed_off().is_empty() => Err(operation),
        operation => operation.of_item(),
    };
    let operation = match operation {
        Ok((id, command)) => return items::change_by_id(workspace, id, command).map(Outcome::Decided),
        Err(operation) => operation,
    };
    let answered = match operation {
        Operation::Lease { id, call } => hand_off::commit(workspace, id, call)?,
        Operation::Receive(call) => return receive::receive(workspace, &call),
        Operation::Submit { queue, submission } => submit::submit(workspace, &queue, submission)?,
        Operation::Restore(restore) => submit::restore(workspace, *restore)?,
        Operation::CreateQueue { queue, schema, policy } => {
            queues::create(workspace, queue, *schema, *policy)?
        }
        Operation::ChangePolicy { queue, patch } => {
            queues::change(workspace, &queue, Command::ChangePolicy(patch))?
        }
        Operation::CloseQueue { queue } => queues::change(workspace, &queue, Command::CloseQueue)?,
        Operation::PauseQueue { queue } => queues::change(workspace, &queue, Command::PauseQueue)?,
        Operation::ResumeQueue { queue } => queues::change(workspace, &queue, Command::ResumeQueue)?,
        Operation::DeleteQueue { queue, force } => {
            queues::change(workspace, &queue, Command::DeleteQueue { force })?
        }
        Operation::Sweep => Ok(Reply::Swept { changed: workspace.swept() }),
        Operation::Kv { key, command } => records::change(workspace, &key, command)?,
        other => Err(other.without_item()),
    };
    Ok(Outcome::Decided(answered))
}
