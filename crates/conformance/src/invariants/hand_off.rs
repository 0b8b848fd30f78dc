//! Checks commits that submit items: invariant 18.
//!
//! The checker sees each item of a hand-off as a submit of its own, right behind the commit. So all that holds for submits is
//! checked for them, too.

use super::history::Key;
use super::{Checker, Snapshot};
use std::collections::HashMap;
use std::sync::Arc;
use towline_domain::change::{Answer, HandedOffItem, Submitted};
use towline_domain::{HandOff, Item, ItemId, ItemState, Refusal, SettleVerb, State};
use towline_store::{Answered, Operation, Reply};

/// A batch in which each commit is followed by the submits that it carries.
pub(super) fn expanded(batch: &[Operation]) -> Arc<[Operation]> {
    let submits = |operation: &Operation| {
        let parent = operation.item();
        let items = operation.handed_off().to_vec();
        items.into_iter().map(move |HandOff { queue, mut submission }| {
            submission.body.parent = submission.body.parent.or(parent);
            Operation::Submit { queue, submission: Box::new(submission) }
        })
    };
    batch.iter().flat_map(|operation| std::iter::once(operation.clone()).chain(submits(operation))).collect()
}

/// The replies to an [`expanded`] batch. `None` if a commit submitted another number of items than it carries.
pub(super) fn expanded_answers(batch: &[Operation], answers: &[Answered]) -> Option<Vec<Answered>> {
    let (mut all, mut answers) = (Vec::with_capacity(batch.len()), answers.iter());
    let mut operations = batch.iter();
    while let Some(operation) = operations.next() {
        let answer = answers.next()?;
        let carried = operation.handed_off().len();
        match answer {
            Ok(Reply::Answer(Answer::HandedOff(handed_off))) => {
                if handed_off.items.len() != carried {
                    return None;
                }
                all.push(Ok(Reply::Answer(Answer::State(ItemState::Completed))));
                all.extend(handed_off.items.iter().map(submitted));
            }
            // The commit is repeated, or the buffers are to be checked first: this call submitted nothing.
            Ok(_) => {
                all.push(answer.clone());
                let id = operation.item().unwrap_or(ItemId(uuid::Uuid::nil()));
                let nothing = Refusal::AlreadySettled { id, settled: SettleVerb::Commit };
                all.extend((0..carried).map(|_| Err(nothing.clone().into())));
            }
            Err(error) => all.extend((0..=carried).map(|_| Err(error.clone()))),
        }
        operations.by_ref().take(carried).for_each(drop);
    }
    answers.next().is_none().then_some(all)
}

fn submitted(item: &HandedOffItem) -> Answered {
    let id = item.id;
    Ok(Reply::Answer(match item.submitted {
        Submitted::Created => Answer::Submitted { id, created: true },
        Submitted::Known => Answer::Submitted { id, created: false },
        Submitted::Replaced => Answer::Replaced { id },
    }))
}

/// The keys of the submits that commits carry, with the items that are committed.
pub(super) fn carried(call: u64, batch: &[Operation]) -> Vec<(Key, ItemId)> {
    let mut carried = Vec::new();
    let mut index = 0;
    while let Some(operation) = batch.get(index) {
        let count = operation.handed_off().len();
        let keys = (index + 1..=index + count).map(|index| Key::new(call, index));
        carried.extend(keys.zip(operation.item().into_iter().cycle()));
        index += 1 + count;
    }
    carried
}

impl Checker {
    /// An item that a commit submits is there only if the commit is.
    pub(super) fn hand_offs_observed(&mut self, snapshot: &Snapshot) {
        if self.carried.is_empty() {
            return;
        }
        let items: HashMap<ItemId, &Item> =
            snapshot.items.iter().map(|stored| (stored.item.head.id, &stored.item)).collect();
        let mut found = Vec::new();
        for (id, item) in &items {
            let origin = self.items.get(id).map(|record| record.origin);
            let Some(parent) = origin.and_then(|origin| self.carried.get(&origin)) else { continue };
            // A parent may be removed before its children.
            let Some(parent) =
                items.get(parent).filter(|parent| parent.head.created_at <= item.head.created_at)
            else {
                continue;
            };
            let committed = matches!(parent.head.state, State::Completed { .. });
            if !committed || !parent.outcome.handed_off.contains(id) {
                let (commit, state) = (parent.head.id, parent.head.item_state());
                found.push(format!(
                    "item {id} is there, which only the commit of item {commit} submits; that is {state} and handed off \
                     {:?}",
                    parent.outcome.handed_off
                ));
            }
        }
        found.into_iter().for_each(|message| self.report(18, message));
    }
}
