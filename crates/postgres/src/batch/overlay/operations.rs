//! Operations: what each is about, what is decided, and what is answered.

use super::{KeyOwner, NeedsLock, Overlay, Slot, TurnSlot};
use crate::batch::outcome::{DeliveredItem, Outcome};
use crate::batch::receive_hints::START;
use towline_domain as domain;
use towline_domain::change::{Answer, QueueChange};
use towline_domain::command::{NewQueue, Receive};
use towline_domain::kv::{self, KvCommand, KvRecord};
use towline_domain::{
    Command, Context, Head, ItemId, KeyTag, QueueId, QueueName, RateState, Refusal, RoundRobin, Submission,
    Weights, decide, limits,
};
use towline_store::{Answered, Operation, QueueLookup, ReceiveCall, Reply, Restore};

/// Payload that one call may bring along: a receive gives out no more, but at least one item.
pub(crate) const READ_BYTES_MAX: u64 = 64 << 20;

/// Touched by time, by calls about items, by the first receive.
pub(super) const BY_TIME: u32 = 1;
const BY_CALLS: u32 = 2;
const FIRST_RECEIVE: u32 = 3;

impl Overlay {
    /// `number` is that of the operation in its batch.
    pub(crate) fn run(
        &mut self,
        operation: Operation,
        number: usize,
        swept: u64,
    ) -> Result<Outcome, NeedsLock> {
        // Each receive has its own holder, who comes back for all of it.
        self.touch = match operation {
            Operation::Receive(_) => u32::try_from(number).unwrap_or(u32::MAX).saturating_add(FIRST_RECEIVE),
            _ => BY_CALLS,
        };
        let operation = match operation.of_item() {
            Ok((id, command)) => return self.on_id(id, command).map(Outcome::Answered),
            Err(operation) => operation,
        };
        let answered = match operation {
            Operation::Receive(call) => return self.receive(&call),
            Operation::Submit { queue, submission } => self.submit(&queue, submission)?,
            Operation::CreateQueue { queue, schema, policy } => match self.fresh_queue {
                Some(id) => {
                    let new = NewQueue { id, name: queue.clone(), schema: *schema, policy: *policy };
                    self.create_queue(&queue, new)
                }
                None => unreachable!("a queue is created in a batch that has a number for it"),
            },
            Operation::ChangePolicy { queue, patch } => self.on_queue(&queue, Command::ChangePolicy(patch)),
            Operation::CloseQueue { queue } => self.on_queue(&queue, Command::CloseQueue),
            Operation::PauseQueue { queue } => self.on_queue(&queue, Command::PauseQueue),
            Operation::ResumeQueue { queue } => self.on_queue(&queue, Command::ResumeQueue),
            Operation::DeleteQueue { queue, force } => self.on_queue(&queue, Command::DeleteQueue { force }),
            Operation::Restore(restore) => self.restore(*restore),
            Operation::Sweep => Ok(Reply::Swept { changed: swept }),
            Operation::Kv { key, command } => self.kv(&key, command),
            other => Err(other.without_item()),
        };
        Ok(Outcome::Answered(answered))
    }

    fn on_id(&mut self, id: ItemId, command: Command) -> Result<Answered, NeedsLock> {
        match self.by_id.get(&id) {
            Some(&seq) => self.on_item(seq, command),
            None => Ok(Err(Refusal::ItemNotFound { id })),
        }
    }

    fn submit(&mut self, name: &QueueName, submission: Box<Submission>) -> Result<Answered, NeedsLock> {
        let Some(queue) = self.by_name(name) else {
            return Ok(Err(Refusal::QueueNotFound { name: name.to_string() }));
        };
        if queue.policy.depth_limit.is_some() {
            self.need(queue.id)?;
        }
        let key = submission.body.idempotency_key.clone();
        let owner = key.and_then(|key| self.keys.get(&(queue.id, key)));
        let key_owner = owner.filter(|owner| self.owns(owner)).map(|owner| (owner.id, owner.content));
        let taken = submission.id.and_then(|id| self.by_id.get(&id)).and_then(|seq| self.entries.get(seq));
        let replaces = submission.body.replace_key.as_ref().and_then(|key| self.replaceable(queue.id, key));
        let seq = replaces.map_or(self.fresh.start, |(seq, _)| seq);
        if self.fresh.is_empty() {
            unreachable!("a number was drawn for every submit");
        }
        let context = Context {
            queue: Some(queue),
            counts: self.counts(queue.id),
            item: taken.map(|entry| &entry.head),
            key_owner,
            replaces: replaces.map(|(_, head)| head),
            record: submission.record_guard.as_ref().and_then(|once| self.kv.get(&once.key)?.record.as_ref()),
            new_id: Some(ItemId::derive(self.salt, self.now, seq)),
            ..Context::default()
        };
        let chosen_id = submission.id.is_some();
        match decide(&context, Command::Submit(submission), self.now) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(change) => {
                if change.before().is_some() {
                    self.apply(seq, &change);
                } else if !change.is_empty() {
                    self.fresh.start += 1;
                    self.add(seq, chosen_id, &change);
                    if let Some((key, record)) = change.record() {
                        self.put_kv(key.clone(), Some(record.clone()));
                    }
                }
                Ok(Ok(Reply::Answer(change.answer().clone())))
            }
        }
    }

    fn restore(&mut self, restore: Restore) -> Answered {
        let name = restore.queue.clone();
        let item = restore.item(self);
        let Some(queue) = self.by_name(&name) else {
            return Err(Refusal::QueueNotFound { name: name.to_string() });
        };
        let id = item.head.id;
        let key = item.body.claim.map(|claim| claim.queue).zip(item.body.idempotency_key.clone());
        let owner = key.and_then(|key| self.keys.get(&key)).filter(|owner| self.owns(owner));
        let taken = self.by_id.get(&id).and_then(|seq| self.entries.get(seq));
        let claimed_in = item.body.claim.map(|claim| claim.queue);
        let replaces = claimed_in.zip(item.body.replace_key.as_ref());
        let replaces = replaces.and_then(|(queue, key)| self.replaceable(queue, key));
        let context = Context {
            queue: Some(queue),
            item: taken.map(|entry| &entry.head),
            key_owner: owner.map(|owner| (owner.id, owner.content)),
            replaces: replaces.map(|(_, head)| head),
            ..Context::default()
        };
        let changes = domain::restore(&context, item)?;
        let seq = self.fresh.next().unwrap_or_else(|| unreachable!("a number was drawn for every item"));
        for change in &changes {
            match change.submitted() {
                Some(_) => self.add(seq, true, change),
                None => self.apply(seq, change),
            }
        }
        Ok(Reply::Answer(Answer::Submitted { id, created: true }))
    }

    /// The item that a submit with this key takes the place of.
    fn replaceable(&self, queue: QueueId, key: &str) -> Option<(u64, &Head)> {
        let owner = self.replace_keys.get(&(queue, key.to_owned()))?;
        let entry = self.entries.get(&owner.seq).filter(|entry| entry.head.is_replaceable())?;
        Some((owner.seq, &entry.head))
    }

    /// Whether the key's owner is still there.
    pub(crate) fn owns(&self, owner: &KeyOwner) -> bool {
        let seq = owner.seq.cast_signed();
        match owner.stored {
            true => {
                !self.removed.contains_key(&owner.seq)
                    && !self.gone.iter().any(|(first, last)| (*first..=*last).contains(&seq))
            }
            false => self.entries.contains_key(&owner.seq),
        }
    }

    fn receive(&mut self, call: &ReceiveCall) -> Result<Outcome, NeedsLock> {
        let refuse = |refusal| Ok(Outcome::Answered(Err(refusal)));
        let Some(queue) = self.by_name(&call.queue) else {
            return refuse(Refusal::QueueNotFound { name: call.queue.to_string() });
        };
        if let Err(refusal) = call.check() {
            return refuse(refusal);
        }
        let (id, paused, flow) = (queue.id, queue.paused, queue.policy.flow.clone());
        if flow.is_limited() {
            self.need(id)?;
        }
        let spent = self.spent.get(&id).map_or(RateState::default(), |spent| spent.0);
        let allowed = flow.allowance(self.counts(id).processing, spent, self.now);
        let max = usize::try_from(allowed.min(u64::from(call.max))).unwrap_or(0);
        let (takes_turns, weights) = (flow.takes_turns(), Weights::of(&flow));
        let mut turn = self.turns.get(&id).map_or(RoundRobin::default(), |slot| slot.turn);
        let mut given = Vec::new();
        while !paused && given.len() < max {
            let first = self.ready.get(&id).and_then(|ready| {
                if !takes_turns {
                    return ready.first().copied();
                }
                let from = |key: KeyTag| ready.range((key, START)..).next().copied();
                let open = |key: KeyTag| {
                    let mut next = from(key)?.0;
                    while !flow.has_room(self.leased_of(id, next)) {
                        next = from(next.after())?.0;
                    }
                    Some(next)
                };
                from(turn.next(&weights, open)?)
            });
            let Some((whose, place @ (_, seq))) = first else { break };
            let bytes = match self.entries.get(&seq) {
                Some(entry) if call.fields.has_any() => entry.bytes(),
                _ => 0,
            };
            // At least one, however large.
            if bytes > self.read_budget && !given.is_empty() {
                break;
            }
            let command = Command::Receive(Receive {
                token: call.seed.token(u32::try_from(given.len()).unwrap_or(u32::MAX), self.now),
                visibility: call.visibility,
                assigned: call.assigned,
                make_buffers: call.make_buffers,
            });
            match self.on_item(seq, command)? {
                Ok(_) => {
                    self.read_budget = self.read_budget.saturating_sub(bytes);
                    if let Some(entry) = self.entries.get(&seq) {
                        given.push(DeliveredItem::of(seq, place, entry));
                    }
                    turn = turn.record_delivery(whose, &weights);
                }
                // Its expiry is due, and the sweep has not come to it.
                Err(Refusal::NotDue { .. }) => {
                    if let Err(refusal) = self.on_item(seq, Command::Elapse)? {
                        return refuse(refusal);
                    }
                }
                Err(refusal) => return refuse(refusal),
            }
        }
        if takes_turns && !given.is_empty() {
            let slot = self.turns.entry(id).or_default();
            (slot.turn, slot.changed) = (turn, true);
        }
        let before = spent;
        let spent = flow.record_delivery(given.len(), before, self.now);
        if spent != before {
            self.spent.insert(id, (spent, true));
        }
        let counts = self.counts(id);
        let full = || match given.len() < call.max as usize {
            true => self.full_keys(id, &flow).throttle(),
            false => None,
        };
        let throttle = flow.throttle(counts.processing, spent, self.now).or_else(full);
        let more = flow.more(&counts, spent, self.now);
        match self.by_name(&call.queue) {
            Some(queue) => {
                let (queue, state) = (queue.id, queue.state);
                Ok(Outcome::Received { queue, state, given, throttle, more, fields: call.fields })
            }
            None => refuse(Refusal::QueueNotFound { name: call.queue.to_string() }),
        }
    }

    fn create_queue(&mut self, name: &QueueName, new: NewQueue) -> Answered {
        let queue = self.by_name(name);
        if queue.is_none() && self.catalog.len() >= limits::QUEUES_MAX {
            return Err(Refusal::StoreFull { what: "queues", held: self.catalog.len() as u64 });
        }
        let context = Context { queue, ..Context::default() };
        let change = decide(&context, Command::CreateQueue(Box::new(new)), self.now)?;
        self.tell(&change, None);
        self.apply_queue(&change);
        Ok(Reply::Answer(change.answer().clone()))
    }

    fn on_queue(&mut self, name: &QueueName, command: Command) -> Answered {
        let Some(queue) = self.by_name(name) else {
            return Err(Refusal::QueueNotFound { name: name.to_string() });
        };
        let id = queue.id;
        let took_turns = queue.policy.flow.takes_turns();
        let context = Context { queue: Some(queue), counts: self.counts(id), ..Context::default() };
        let change = decide(&context, command, self.now)?;
        self.tell(&change, Some(id));
        if let Some(QueueChange::Put(after)) = change.queue()
            && after.policy.flow.takes_turns()
            && !took_turns
        {
            self.turns.insert(id, TurnSlot { turn: RoundRobin::default(), changed: true, begins: true });
        }
        if change.queue() == Some(&QueueChange::Deleted) {
            self.queues.insert(id, None);
        }
        self.apply_queue(&change);
        Ok(Reply::Answer(change.answer().clone()))
    }

    fn kv(&mut self, key: &str, command: KvCommand) -> Answered {
        let find = |key: &str| self.kv.get(key).and_then(|slot| slot.record.as_ref());
        let decision = kv::decide(key, find, command, self.now)?;
        for (key, after) in decision.after {
            self.put_kv(key, after);
        }
        Ok(Reply::Kv(decision.answer))
    }

    fn put_kv(&mut self, key: String, record: Option<KvRecord>) {
        let stored = self.kv.get(&key).is_some_and(|slot| slot.stored);
        self.kv.insert(key, Slot { record, stored, changed: true });
    }
}
