//! Checks the counts of groups against what happened to their members: invariant 17.

use super::Violation;
use std::collections::BTreeMap;
use towline_domain::change::Answer;
use towline_domain::{GroupCounts, ItemId, ItemState, QueueName};
use towline_store::{Answered, Operation, Reply};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Completed,
    Failed,
    Removed,
}

#[derive(Debug)]
struct Member {
    group: String,
    queue: QueueName,
    end: Option<End>,
}

/// The members of groups by the replies to one client that calls one operation after another. Items whose time passes are
/// outside of what it follows.
#[derive(Debug, Default)]
pub struct GroupLedger {
    members: BTreeMap<ItemId, Member>,
}

impl GroupLedger {
    /// An operation and its reply.
    pub fn answered(&mut self, operation: &Operation, answer: &Answered) {
        let Ok(Reply::Answer(answer)) = answer else { return };
        match (operation, answer) {
            (Operation::Submit { queue, submission }, Answer::Submitted { id, created: true }) => {
                if let Some(group) = submission.body.group.clone() {
                    self.members.insert(*id, Member { group, queue: queue.clone(), end: None });
                }
            }
            (Operation::DeleteQueue { queue, .. }, Answer::QueueDeleted) => {
                for member in self.members.values_mut().filter(|member| member.queue == *queue) {
                    member.end.get_or_insert(End::Removed);
                }
            }
            (_, answer) => {
                let member = operation.item().and_then(|id| self.members.get_mut(&id));
                let Some(member) = member.filter(|member| member.end != Some(End::Removed)) else { return };
                match (operation, answer) {
                    (Operation::Move { to, .. }, _) => member.queue = to.clone(),
                    (_, Answer::Removed) => drop(member.end.get_or_insert(End::Removed)),
                    (_, Answer::State(ItemState::Completed)) => member.end = Some(End::Completed),
                    (_, Answer::State(ItemState::Failed)) => member.end = Some(End::Failed),
                    (Operation::Redrive { .. }, _) => member.end = None,
                    _ => {}
                }
            }
        }
    }

    /// Whether the counts that the server shows at a quiet moment are those of the members.
    pub fn check(&self, group: &str, shown: &GroupCounts) -> Result<(), Violation> {
        let ends = || self.members.values().filter(|member| member.group == group).map(|member| member.end);
        let of = |end| ends().filter(|one| *one == Some(end)).count() as u64;
        let counts = GroupCounts {
            members: ends().count() as u64,
            completed: of(End::Completed),
            failed: of(End::Failed),
            removed: of(End::Removed),
        };
        match *shown == counts {
            true => Ok(()),
            false => {
                let message = format!("group {group:?} shows {shown:?}, and its members are {counts:?}");
                Err(Violation { invariant: 17, message })
            }
        }
    }

    /// Whether an item that waits for all members of the group to complete may be delivered.
    #[must_use]
    pub fn has_succeeded(&self, group: &str) -> bool {
        let mut members = self.members.values().filter(|member| member.group == group).peekable();
        members.peek().is_some() && members.all(|member| member.end == Some(End::Completed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_domain::Submission;

    #[test]
    fn unfinished_members_of_a_deleted_queue_are_removed() {
        let mut ledger = GroupLedger::default();
        let queue: QueueName = "jobs".parse().expect("a name");
        let ids = [1, 2].map(|n| ItemId(uuid::Uuid::from_u128(n)));
        for id in ids {
            let mut submission = Box::<Submission>::default();
            submission.body.group = Some("g".to_owned());
            let submit = Operation::Submit { queue: queue.clone(), submission };
            ledger.answered(&submit, &Ok(Reply::Answer(Answer::Submitted { id, created: true })));
        }
        let redrive = Operation::Redrive { id: ids[0] };
        ledger.answered(&redrive, &Ok(Reply::Answer(Answer::State(ItemState::Completed))));
        let shown = |completed, removed| GroupCounts { members: 2, completed, failed: 0, removed };
        assert!(ledger.check("g", &shown(1, 0)).is_ok());
        ledger.answered(
            &Operation::DeleteQueue { queue, force: true },
            &Ok(Reply::Answer(Answer::QueueDeleted)),
        );
        assert!(ledger.check("g", &shown(1, 1)).is_ok());
        for (completed, removed) in [(1, 0), (0, 2), (0, 1), (2, 0)] {
            let violation = ledger.check("g", &shown(completed, removed)).expect_err("the counts are wrong");
            assert_eq!(violation.invariant, 17);
        }
        assert!(!ledger.has_succeeded("g") && !ledger.has_succeeded("other"));
    }
}
