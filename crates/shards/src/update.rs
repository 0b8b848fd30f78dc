//! Batches: taken apart by shard, carried out at the same time, put together again.

use crate::route::Route;
use crate::{Shards, merge};
use futures::future::join_all;
use std::collections::BTreeMap;
use towline_domain::{FieldSet, FullKeys, ItemId, Millis, Refusal, Throttle, TokenSeed};
use towline_store::{Answered, Operation, ReceiveCall, Received, Reply, Result, StoreError};

/// How long one who waits for a time of one shard does not look at the others.
const LOOK: Millis = Millis(100);

/// An operation on its way through the shards.
struct Under {
    operation: Operation,
    route: Route,
    /// What has been answered so far: by several shards, if it goes to several.
    answers: Vec<Answered>,
}

impl Shards {
    pub(crate) async fn carry_out(&self, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        if let [only] = &self.shards[..] {
            return only.seen(only.store.update(batch).await);
        }
        let homes = self.find(&batch).await;
        let turn = self.turn();
        let mut under: Vec<Under> = Vec::with_capacity(batch.len());
        for operation in batch {
            let route = match self.route(&operation) {
                Route::Item(id) => homes.get(&id).map_or(Route::Item(id), |&home| Route::One(home)),
                route => route,
            };
            under.push(Under { operation, route, answers: Vec::new() });
        }
        self.refuse_what_cannot_be(&mut under).await;
        let count = self.shards.len();
        for round in 0..count {
            let asked = (turn + round) % count;
            let mut parts: Vec<Vec<(usize, Operation)>> = vec![Vec::new(); count];
            for (at, under) in under.iter().enumerate() {
                for shard in self.goes_to(under, round, asked) {
                    parts[shard].push((at, under.asked(shard)));
                }
            }
            let parts = parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty());
            let done = join_all(parts.map(|(shard, part)| self.part(shard, part))).await;
            for (at, answered) in done.into_iter().flatten() {
                under[at].answers.push(answered);
            }
        }
        Ok(under.into_iter().map(|under| under.end(count)).collect())
    }

    /// Which shards take this in a round in which `asked` is the one to be asked.
    fn goes_to(&self, under: &Under, round: usize, asked: usize) -> Vec<usize> {
        let first = round == 0;
        let up = self.shards[asked].health.is_up();
        match under.route {
            Route::One(shard) if first => vec![shard],
            Route::All if first && under.answers.is_empty() => (0..self.shards.len()).collect(),
            Route::Any => {
                let full =
                    under.answers.iter().all(|answer| matches!(answer, Err(Refusal::QueueFull { .. })));
                if first || full && up { vec![asked] } else { Vec::new() }
            }
            Route::From if under.missing() > 0 && (first || up) => vec![asked],
            _ => Vec::new(),
        }
    }

    /// One shard's part of a batch. If the shard cannot answer, everybody in it is told so.
    async fn part(&self, shard: usize, part: Vec<(usize, Operation)>) -> Vec<(usize, Answered)> {
        let shard = &self.shards[shard];
        let (at, operations): (Vec<usize>, Vec<Operation>) = part.into_iter().unzip();
        let gone = match shard.health.gone() {
            Some(cause) => Err(StoreError::Unavailable { cause }),
            None => shard.seen(shard.store.update(operations).await),
        };
        match gone {
            Ok(answers) => at.into_iter().zip(answers).collect(),
            Err(error) => {
                let detail = shard.unavailable(&error.to_string());
                let refusal = Refusal::StoreUnavailable { detail };
                at.into_iter().map(|at| (at, Err(refusal.clone()))).collect()
            }
        }
    }

    /// The shards of the items that are named. An id that a shard made tells which; others are looked for where ids like
    /// it go, and then everywhere.
    async fn find(&self, batch: &[Operation]) -> BTreeMap<ItemId, usize> {
        let mut homes = BTreeMap::new();
        let mut unknown = Vec::new();
        for operation in batch {
            let Route::Item(id) = self.route(operation) else { continue };
            match self.maker(id) {
                Some(home) => drop(homes.insert(id, home)),
                None => unknown.push(id),
            }
        }
        if !unknown.is_empty() {
            let found = self.look_for(&unknown, FieldSet::NONE).await;
            for (at, id) in unknown.into_iter().enumerate() {
                let home =
                    found.iter().position(|of_shard| matches!(of_shard, Ok(found) if found[at].is_some()));
                // Of what is nowhere, somebody has to say so; of what may be in a shard that is gone, that shard.
                let gone = || found.iter().position(Result::is_err);
                homes.insert(id, home.or_else(gone).unwrap_or_else(|| self.of_id(id)));
            }
        }
        homes
    }

    pub(crate) fn maker(&self, id: ItemId) -> Option<usize> {
        self.shards.iter().position(|shard| shard.store.issued(id))
    }

    /// Answers what needs every shard while one is gone, and what one shard would do that another refuses.
    async fn refuse_what_cannot_be(&self, under: &mut [Under]) {
        for one in under
            .iter_mut()
            .filter(|one| one.route == Route::All && !matches!(one.operation, Operation::Sweep))
        {
            if let Some(shard) = self.shards.iter().find(|shard| !shard.health.is_up()) {
                let cause = shard.health.gone().unwrap_or_default();
                let detail = shard.unavailable(&cause);
                one.answers.push(Err(Refusal::StoreUnavailable { detail }));
                continue;
            }
            if let Operation::DeleteQueue { queue, force: false } = &one.operation
                && let Ok(Some(view)) = self.view(queue.clone()).await
                && view.counts.unfinished() > 0
            {
                let (name, unfinished) = (queue.to_string(), view.counts.unfinished());
                one.answers.push(Err(Refusal::QueueBusy { name, unfinished }));
            }
        }
    }
}

impl Under {
    /// What is asked of this shard.
    fn asked(&self, shard: usize) -> Operation {
        let Operation::Receive(call) = &self.operation else { return self.operation.clone() };
        // Another shard's items have other tokens.
        let mut seed = call.seed.0;
        seed[31] ^= shard as u8;
        let max = if self.answers.is_empty() {
            call.max
        } else {
            u32::try_from(self.missing()).unwrap_or(call.max)
        };
        Operation::Receive(Box::new(ReceiveCall { max, seed: TokenSeed(seed), ..(**call).clone() }))
    }

    /// How many items a receive still wants; nothing after a refusal that another shard would repeat.
    fn missing(&self) -> usize {
        let Operation::Receive(call) = &self.operation else { return 0 };
        let mut wanted = call.max as usize;
        for answer in &self.answers {
            match answer {
                Ok(Reply::Received(received)) => wanted = wanted.saturating_sub(received.items.len()),
                Err(Refusal::StoreUnavailable { .. }) => {}
                _ => return 0,
            }
        }
        // Also a call that asks for nothing is checked by somebody.
        if self.answers.is_empty() { wanted.max(1) } else { wanted }
    }

    /// `shards`: how many there are, also those that were not asked.
    fn end(self, shards: usize) -> Answered {
        let missing = self.missing();
        let mut answers = self.answers;
        let answered = match self.route {
            Route::From => received(answers, missing, shards),
            Route::All => merge::answers(answers),
            _ => answers.pop(),
        };
        answered.unwrap_or_else(|| {
            Err(Refusal::StoreUnavailable { detail: "no shard was there to answer".to_owned() })
        })
    }
}

/// Items of all shards that gave some.
fn received(answers: Vec<Answered>, missing: usize, shards: usize) -> Option<Answered> {
    let mut refused = None;
    let mut states = Vec::new();
    let mut items = Vec::new();
    let mut throttle = Vec::new();
    let mut more: usize = 0;
    for answer in answers {
        match answer {
            Ok(Reply::Received(received)) => {
                states.push(received.queue);
                throttle.push(received.throttle);
                more = more.saturating_add(received.more);
                items.extend(received.items);
            }
            other => refused = Some(other),
        }
    }
    match merge::state(states) {
        // What one shard refuses matters if no other gave anything.
        Some(queue) if !items.is_empty() || refused.is_none() => {
            // Who got all it wanted did not ask every shard.
            let throttle = if missing == 0 { None } else { all_hold(&throttle, shards) };
            Some(Ok(Reply::Received(Received { queue, items, throttle, more })))
        }
        _ => refused,
    }
}

/// What whoever waits has to look out for. Where one names a time and another would be woken by something else, nobody waits for long:
/// whoever waits for a time is woken by nothing else.
fn all_hold(throttle: &[Option<Throttle>], shards: usize) -> Option<Throttle> {
    let times = throttle.iter().filter_map(|throttle| match throttle {
        Some(Throttle::Rate(span)) => Some(*span),
        _ => None,
    });
    let named = times.clone().count();
    if let Some(soonest) = times.min() {
        return Some(Throttle::Rate(if named == throttle.len() { soonest } else { soonest.min(LOOK) }));
    }
    let full = throttle.iter().filter(|throttle| **throttle == Some(Throttle::Concurrency)).count();
    match throttle.iter().flatten().count() {
        0 => None,
        _ if full == throttle.len() => Some(Throttle::Concurrency),
        _ => Some(Throttle::Keys(full_everywhere(throttle, shards))),
    }
}

/// What comes of a key may come to any shard, also to one that is gone for now: a key is full if it is in each.
fn full_everywhere(throttle: &[Option<Throttle>], shards: usize) -> FullKeys {
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

    /// Some keys are at their limit.
    fn partly(keys: &[&str]) -> Option<Throttle> {
        Some(Throttle::Keys(keys.iter().map(|key| KeyTag::of(key)).collect()))
    }

    #[test]
    fn what_one_shard_waits_for_is_looked_out_for() {
        let full = Some(Throttle::Concurrency);
        let after = |ms| Some(Throttle::Rate(Millis(ms)));
        for (throttle, all) in [
            (vec![None, None], None),
            (vec![full.clone(), full.clone()], full.clone()),
            // Something may come to the other, and a lease may end here.
            (vec![full.clone(), None], partly(&[])),
            (vec![None, partly(&["a"])], partly(&[])),
            (vec![full.clone(), partly(&["a"])], partly(&["a"])),
            (vec![partly(&["a", "b"]), partly(&["b", "c"])], partly(&["b"])),
            (vec![after(5), after(3), after(9)], after(3)),
            (vec![full.clone(), after(3)], after(3)),
            (vec![after(3), None, partly(&["a"])], after(3)),
            (vec![after(3_600_000), after(4_000_000)], after(3_600_000)),
            // What comes to the other, or a lease that ends there, is not kept waiting for that.
            (vec![after(3_600_000), None], Some(Throttle::Rate(LOOK))),
            (vec![full, after(3_600_000)], Some(Throttle::Rate(LOOK))),
        ] {
            assert_eq!(all_hold(&throttle, throttle.len()), all, "{throttle:?}");
        }
    }

    #[test]
    fn of_a_shard_that_is_gone_nobody_says_that_a_key_is_full() {
        assert_eq!(all_hold(&[partly(&["a"]), partly(&["a"])], 3), partly(&[]));
    }
}
