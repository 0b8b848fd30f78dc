//! Updates: splits a batch by shard, carries out the parts in parallel, and merges the replies.

use crate::route::Route;
use crate::{Shards, merge};
use futures::future::join_all;
use std::collections::BTreeMap;
use towline_domain::{Effects, FieldSet, FullKeys, ItemId, Millis, Refusal, Throttle, TokenSeed};
use towline_store::{
    Answered, Operation, OperationError, ReceiveCall, Received, Reply, Result, StoreError, Updated,
};

/// Poll interval of a receiver that waits for the rate limit of one shard while another shard could wake it earlier.
const POLL_INTERVAL: Millis = Millis(100);

/// An operation of a batch, with the replies so far.
struct PendingOperation {
    operation: Operation,
    route: Route,
    /// One reply from each shard that was called.
    answers: Vec<Answered>,
}

impl Shards {
    pub(crate) async fn carry_out(&self, batch: Vec<Operation>) -> Result<Updated> {
        if let [only] = &self.shards[..] {
            return only.observe(only.store.update(batch).await);
        }
        let shards_by_item = self.find(&batch).await;
        let turn = self.turn();
        let mut pending: Vec<PendingOperation> = Vec::with_capacity(batch.len());
        for operation in batch {
            let route = match self.route(&operation) {
                Route::Item(id) => {
                    shards_by_item.get(&id).map_or(Route::Item(id), |&shard| Route::One(shard))
                }
                route => route,
            };
            let refused = match route {
                Route::One(shard) => self.check_hand_off(&operation, shard).err(),
                _ => None,
            };
            pending.push(match refused {
                Some(refusal) => {
                    PendingOperation { operation, route: Route::Refused, answers: vec![Err(refusal.into())] }
                }
                None => PendingOperation { operation, route, answers: Vec::new() },
            });
        }
        self.refuse_impossible(&mut pending).await;
        let count = self.shards.len();
        let mut effects = Effects::default();
        self.shards.iter().for_each(|shard| effects.merge(shard.take_effects()));
        for round in 0..count {
            let current = (turn + round) % count;
            let mut parts: Vec<Vec<(usize, Operation)>> = vec![Vec::new(); count];
            for (at, pending) in pending.iter().enumerate() {
                for shard in self.shards_for(pending, round, current) {
                    parts[shard].push((at, pending.operation_for(shard)));
                }
            }
            let parts = parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty());
            let done = join_all(parts.map(|(shard, part)| self.part(shard, part))).await;
            for (answers, of_shard) in done {
                effects.merge(of_shard);
                for (at, answered) in answers {
                    pending[at].answers.push(answered);
                }
            }
        }
        let answers = pending.into_iter().map(|pending| pending.finish(count)).collect();
        Ok(Updated { answers, effects })
    }

    /// The shards that get this operation in a round whose current shard is `current`.
    fn shards_for(&self, pending: &PendingOperation, round: usize, current: usize) -> Vec<usize> {
        let first = round == 0;
        let up = self.shards[current].health.is_up();
        match pending.route {
            Route::One(shard) if first => vec![shard],
            Route::All if first && pending.answers.is_empty() => (0..self.shards.len()).collect(),
            Route::Any => {
                let full = pending
                    .answers
                    .iter()
                    .all(|answer| matches!(answer, Err(OperationError::Refused(Refusal::QueueFull { .. }))));
                if first || full && up { vec![current] } else { Vec::new() }
            }
            Route::From if pending.missing() > 0 && (first || up) => vec![current],
            _ => Vec::new(),
        }
    }

    /// Carries out one shard's part of a batch. If the shard is down, every operation in the part fails.
    async fn part(&self, shard: usize, part: Vec<(usize, Operation)>) -> (Vec<(usize, Answered)>, Effects) {
        let shard = &self.shards[shard];
        let (at, operations): (Vec<usize>, Vec<Operation>) = part.into_iter().unzip();
        let result = match shard.health.down() {
            Some(cause) => Err(StoreError::Unavailable { cause }),
            None => shard.observe(shard.store.update(operations).await),
        };
        match result {
            Ok(updated) => (at.into_iter().zip(updated.answers).collect(), updated.effects),
            Err(error) => {
                let fault = StoreError::Unavailable { cause: shard.unavailable(&error.to_string()) };
                let failed = |at| (at, Err(fault.clone().into()));
                (at.into_iter().map(failed).collect(), Effects::default())
            }
        }
    }

    /// The shard of each item that the batch names. The id says which shard issued it. An id that the submitter chose is
    /// looked up in every shard.
    async fn find(&self, batch: &[Operation]) -> BTreeMap<ItemId, usize> {
        let mut shards_by_item = BTreeMap::new();
        let mut unknown = Vec::new();
        for operation in batch {
            let Route::Item(id) = self.route(operation) else { continue };
            match self.issuer(id) {
                Some(shard) => drop(shards_by_item.insert(id, shard)),
                None => unknown.push(id),
            }
        }
        if !unknown.is_empty() {
            let found = self.get_from_all(&unknown, FieldSet::NONE).await;
            for (at, id) in unknown.into_iter().enumerate() {
                let shard =
                    found.iter().position(|of_shard| matches!(of_shard, Ok(found) if found[at].is_some()));
                // An item that may be in a shard that is down goes to that shard, which is reported as down. An item
                // that no shard has goes to the shard of its id, which reports that it does not exist.
                let down = || found.iter().position(Result::is_err);
                shards_by_item.insert(id, shard.or_else(down).unwrap_or_else(|| self.shard_of_id(id)));
            }
        }
        shards_by_item
    }

    pub(crate) fn issuer(&self, id: ItemId) -> Option<usize> {
        self.shards.iter().position(|shard| shard.store.issued(id))
    }

    /// Refuses operations that need every shard while one is down, and the deletion of a queue that another shard would
    /// refuse.
    async fn refuse_impossible(&self, pending: &mut [PendingOperation]) {
        for operation in pending
            .iter_mut()
            .filter(|pending| pending.route == Route::All && !matches!(pending.operation, Operation::Sweep))
        {
            if let Some(shard) = self.shards.iter().find(|shard| !shard.health.is_up()) {
                let cause = shard.health.down().unwrap_or_default();
                let fault = StoreError::Unavailable { cause: shard.unavailable(&cause) };
                operation.answers.push(Err(fault.into()));
                continue;
            }
            if let Operation::DeleteQueue { queue, force: false } = &operation.operation
                && let Ok(Some(view)) = self.view(queue.clone()).await
                && view.counts.unfinished() > 0
            {
                let (name, unfinished) = (queue.to_string(), view.counts.unfinished());
                operation.answers.push(Err(Refusal::QueueBusy { name, unfinished }.into()));
            }
        }
    }
}

impl PendingOperation {
    /// The operation as this shard gets it. A receive asks for the items that are still missing.
    fn operation_for(&self, shard: usize) -> Operation {
        let Operation::Receive(call) = &self.operation else { return self.operation.clone() };
        // Each shard uses its own seed, so that lease tokens differ between shards.
        let mut seed = call.seed.0;
        seed[31] ^= shard as u8;
        let max = if self.answers.is_empty() {
            call.max
        } else {
            u32::try_from(self.missing()).unwrap_or(call.max)
        };
        Operation::Receive(Box::new(ReceiveCall { max, seed: TokenSeed(seed), ..(**call).clone() }))
    }

    /// How many items a receive still wants. None after a refusal that every other shard would repeat.
    fn missing(&self) -> usize {
        let Operation::Receive(call) = &self.operation else { return 0 };
        let mut wanted = call.max as usize;
        for answer in &self.answers {
            match answer {
                Ok(Reply::Received(received)) => wanted = wanted.saturating_sub(received.items.len()),
                Err(OperationError::Failed(_)) => {}
                _ => return 0,
            }
        }
        // One shard must check even a call with `max` 0.
        if self.answers.is_empty() { wanted.max(1) } else { wanted }
    }

    /// Merges the replies. `shards` is the number of all shards, called or not.
    fn finish(self, shards: usize) -> Answered {
        let missing = self.missing();
        let mut answers = self.answers;
        let answered = match self.route {
            Route::From => received(answers, missing, shards),
            Route::All => merge::answers(answers),
            _ => answers.pop(),
        };
        answered
            .unwrap_or_else(|| Err(StoreError::Unavailable { cause: "no shard replied".to_owned() }.into()))
    }
}

/// Merges the replies to a receive.
fn received(answers: Vec<Answered>, missing: usize, shards: usize) -> Option<Answered> {
    let mut refused = None;
    let mut states = Vec::new();
    let mut items = Vec::new();
    let mut throttle = Vec::new();
    let mut paused = false;
    let mut more: usize = 0;
    for answer in answers {
        match answer {
            Ok(Reply::Received(received)) => {
                paused |= received.paused;
                states.push(received.queue);
                throttle.push(received.throttle);
                more = more.saturating_add(received.more);
                items.extend(received.items);
            }
            other => refused = Some(other),
        }
    }
    match merge::state(states) {
        // A refusal of one shard counts only if no other shard gave items.
        Some(queue) if !items.is_empty() || refused.is_none() => {
            // A receive that got all its items has not called every shard, so the throttle is unknown.
            let throttle = if missing == 0 { None } else { merge_throttles(&throttle, shards) };
            Some(Ok(Reply::Received(Received { queue, items, throttle, paused, more })))
        }
        _ => refused,
    }
}

/// Merges the reasons why the shards gave no more items. A receiver that waits for a rate limit gets no other wake-up. So
/// if only some shards name a time, the receiver polls.
fn merge_throttles(throttle: &[Option<Throttle>], shards: usize) -> Option<Throttle> {
    let times = throttle.iter().filter_map(|throttle| match throttle {
        Some(Throttle::Rate(span)) => Some(*span),
        _ => None,
    });
    let named = times.clone().count();
    if let Some(soonest) = times.min() {
        return Some(Throttle::Rate(if named == throttle.len() {
            soonest
        } else {
            soonest.min(POLL_INTERVAL)
        }));
    }
    let full = throttle.iter().filter(|throttle| **throttle == Some(Throttle::Concurrency)).count();
    match throttle.iter().flatten().count() {
        0 => None,
        _ if full == throttle.len() => Some(Throttle::Concurrency),
        _ => Some(Throttle::Keys(keys_full_in_every_shard(throttle, shards))),
    }
}

/// The keys that are full in every shard. A new item may go to any shard, also to one that is down now, so a key counts as
/// full only if every shard reports it.
fn keys_full_in_every_shard(throttle: &[Option<Throttle>], shards: usize) -> FullKeys {
    let mut keys: Option<FullKeys> = None;
    for throttle in throttle {
        match throttle {
            Some(Throttle::Keys(of_shard)) => {
                keys = Some(keys.map_or_else(|| of_shard.clone(), |keys| keys.shared_with(of_shard)));
            }
            Some(Throttle::Concurrency) => {}
            Some(Throttle::Rate(_)) | None => return FullKeys::default(),
        }
    }
    keys.filter(|_| throttle.len() == shards).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_domain::KeyTag;

    /// These keys are at their limit.
    fn keys(keys: &[&str]) -> Option<Throttle> {
        Some(Throttle::Keys(keys.iter().map(|key| KeyTag::of(key)).collect()))
    }

    #[test]
    fn throttles_of_several_shards_are_merged() {
        let full = Some(Throttle::Concurrency);
        let after = |ms| Some(Throttle::Rate(Millis(ms)));
        for (throttle, all) in [
            (vec![None, None], None),
            (vec![full.clone(), full.clone()], full.clone()),
            // The other shard may get an item, and a lease in this shard may end.
            (vec![full.clone(), None], keys(&[])),
            (vec![None, keys(&["a"])], keys(&[])),
            (vec![full.clone(), keys(&["a"])], keys(&["a"])),
            (vec![keys(&["a", "b"]), keys(&["b", "c"])], keys(&["b"])),
            (vec![after(5), after(3), after(9)], after(3)),
            (vec![full.clone(), after(3)], after(3)),
            (vec![after(3), None, keys(&["a"])], after(3)),
            (vec![after(3_600_000), after(4_000_000)], after(3_600_000)),
            // The other shard may have an item before this shard's rate allows one.
            (vec![after(3_600_000), None], Some(Throttle::Rate(POLL_INTERVAL))),
            (vec![full, after(3_600_000)], Some(Throttle::Rate(POLL_INTERVAL))),
        ] {
            assert_eq!(merge_throttles(&throttle, throttle.len()), all, "{throttle:?}");
        }
    }

    #[test]
    fn no_key_counts_as_full_while_a_shard_is_down() {
        assert_eq!(merge_throttles(&[keys(&["a"]), keys(&["a"])], 3), keys(&[]));
    }
}
