//! Operations: what each is about, what is decided, and what is answered.

use super::{Engine, READ_BYTES_MAX};
use crate::index::update::IndexUpdate;
use crate::log::record::{self, Indexed};
use crate::outcome::Outcome;
use crate::plant::Bug;
use towline_domain as domain;
use towline_domain::change::Answer;
use towline_domain::command::{NewQueue, Receive};
use towline_domain::kv::{self, KvCommand, KvRecord};
use towline_domain::{
    Command, Context, Head, ItemId, QueueId, QueueName, Refusal, Submission, Timestamp, decide, digest,
    limits,
};
use towline_store::{
    Answered, Operation, QueueLookup, ReceiveCall, Reply, Restore, StoreError, item_context,
};

/// Expired items that one receive passes on its way; the next one goes on.
const EXPIRED_MAX: usize = 8192;

impl Engine {
    /// Carries out one operation. An error means that the store is poisoned.
    pub fn run(&mut self, operation: Operation) -> Result<Outcome, StoreError> {
        self.check_poison()?;
        self.sweep()?;
        if let Some(refusal) = self.check_room(&operation) {
            return Ok(Outcome::Answered(Err(refusal)));
        }
        let operation = match operation.of_item() {
            Ok((id, mut command)) => {
                if self.plant(Bug::NoLeaseCheck)
                    && let Command::Lease(call) = &mut command
                    && let Some(lease) = self.index.find(id).and_then(|sequence| self.index.head(sequence))
                    && let Some(lease) = lease.lease()
                {
                    call.token = lease.token;
                }
                return self.on_item(id, command).map(Outcome::Answered);
            }
            Err(operation) => operation,
        };
        let answered = match operation {
            Operation::Receive(call) => return self.receive(&call),
            Operation::Submit { queue, submission } => self.submit(&queue, submission)?,
            Operation::CreateQueue { queue, schema, policy } => {
                let new = NewQueue {
                    id: QueueId(self.next_queue),
                    name: queue.clone(),
                    schema: *schema,
                    policy: *policy,
                };
                self.create_queue(&queue, new)?
            }
            Operation::ChangePolicy { queue, patch } => {
                self.on_queue(&queue, Command::ChangePolicy(patch))?
            }
            Operation::CloseQueue { queue } => self.on_queue(&queue, Command::CloseQueue)?,
            Operation::PauseQueue { queue } => self.on_queue(&queue, Command::PauseQueue)?,
            Operation::ResumeQueue { queue } => self.on_queue(&queue, Command::ResumeQueue)?,
            Operation::DeleteQueue { queue, force } => {
                self.on_queue(&queue, Command::DeleteQueue { force })?
            }
            Operation::Restore(restore) => self.restore(*restore)?,
            Operation::Sweep => Ok(Reply::Swept { changed: self.swept }),
            Operation::Kv { key, command } => self.kv(&key, command)?,
            other => Err(other.without_item()),
        };
        Ok(Outcome::Answered(answered))
    }

    fn submit(&mut self, name: &QueueName, submission: Box<Submission>) -> Result<Answered, StoreError> {
        let Some(queue) = self.index.queue_named(name) else {
            return Ok(Err(Refusal::QueueNotFound { name: name.to_string() }));
        };
        let replaces = self.replaceable(queue.queue.id, submission.body.replace_key.as_deref());
        if replaces.is_none() && self.index.table.len() >= self.options.items_max {
            return Ok(Err(Refusal::StoreFull { what: "items", held: self.index.table.len() }));
        }
        let chosen_id = match &replaces {
            Some((sequence, _)) => self.index.chosen_id(*sequence),
            None => submission.id,
        };
        let key = submission.body.idempotency_key.as_deref().map(digest::key);
        let owner = key.and_then(|key| self.index.key_owner(queue.queue.id, key));
        let taken =
            submission.id.and_then(|id| self.index.find(id)).and_then(|sequence| self.index.head(sequence));
        let sequence = replaces.as_ref().map_or(self.next_item, |(sequence, _)| *sequence);
        let context = Context {
            queue: Some(&queue.queue),
            counts: queue.counts,
            item: taken.as_ref(),
            key_owner: owner,
            replaces: replaces.as_ref().map(|(_, head)| head),
            record: submission
                .record_guard
                .as_ref()
                .and_then(|once| self.index.kv.get(&once.key))
                .map(|slot| &slot.record),
            new_id: Some(ItemId::derive(self.salt, self.index.now, sequence)),
            ..Context::default()
        };
        match decide(&context, Command::Submit(submission), self.index.now) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(change) => {
                if !change.is_empty() {
                    if let Some((key, record)) = change.record()
                        && let Err(refusal) = self.check_kv_room([(key.as_str(), Some(record))].into_iter())
                    {
                        return Ok(Err(refusal));
                    }
                    self.next_item = self.next_item.max(sequence + 1);
                    let indexed = change.submitted().and_then(|(body, _)| Indexed::of(body, chosen_id));
                    return self
                        .append_item(sequence, change, indexed)
                        .map(|answer| Ok(Reply::Answer(answer)));
                }
                Ok(Ok(Reply::Answer(change.answer().clone())))
            }
        }
    }

    /// The item that a submit with this key takes the place of.
    fn replaceable(&self, queue: QueueId, key: Option<&str>) -> Option<(u64, Head)> {
        let sequence = self.index.replace_key_owner(queue, digest::replace_key(key?))?;
        let head = self.index.head(sequence).filter(Head::is_replaceable)?;
        Some((sequence, head))
    }

    fn restore(&mut self, restore: Restore) -> Result<Answered, StoreError> {
        let name = restore.queue.clone();
        let item = restore.item(&self.index);
        let Some(queue) = self.index.queue_named(&name) else {
            return Ok(Err(Refusal::QueueNotFound { name: name.to_string() }));
        };
        if self.index.table.len() >= self.options.items_max {
            return Ok(Err(Refusal::StoreFull { what: "items", held: self.index.table.len() }));
        }
        let id = item.head.id;
        let claim = item.body.claim.zip(item.body.idempotency_key.as_deref());
        let taken = self.index.find(id).and_then(|sequence| self.index.head(sequence));
        let claimed_in = item.body.claim.map(|claim| claim.queue);
        let replaces = claimed_in.and_then(|queue| self.replaceable(queue, item.body.replace_key.as_deref()));
        let context = Context {
            queue: Some(&queue.queue),
            item: taken.as_ref(),
            key_owner: claim.and_then(|(claim, key)| self.index.key_owner(claim.queue, digest::key(key))),
            replaces: replaces.as_ref().map(|(_, head)| head),
            ..Context::default()
        };
        let changes = match domain::restore(&context, item) {
            Err(refusal) => return Ok(Err(refusal)),
            Ok(changes) => changes,
        };
        let sequence = self.next_item;
        self.next_item += 1;
        for change in changes {
            let indexed = change.submitted().and_then(|(body, _)| Indexed::of(body, Some(id)));
            self.append_item(sequence, change, indexed)?;
        }
        Ok(Ok(Reply::Answer(Answer::Submitted { id, created: true })))
    }

    fn receive(&mut self, call: &ReceiveCall) -> Result<Outcome, StoreError> {
        let refuse = |refusal| Ok(Outcome::Answered(Err(refusal)));
        let Some(queue) = self.index.queue_named(&call.queue) else {
            return refuse(Refusal::QueueNotFound { name: call.queue.to_string() });
        };
        if let Err(refusal) = call.check() {
            return refuse(refusal);
        }
        let (id, paused) = (queue.queue.id, queue.queue.paused);
        let allowed = queue.allowance(self.index.now);
        let max = usize::try_from(allowed.min(u64::from(call.max))).unwrap_or(0);
        let mut given = Vec::new();
        let mut expired = 0;
        // A thousand leases are a thousand records; fewer are an answer, too.
        while !paused && given.len() < max && expired < EXPIRED_MAX && self.has_room() {
            let Some(sequence) = self.index.first_ready(id) else {
                break;
            };
            let bytes = if call.fields.has_any() { self.index.bytes_of(sequence) } else { 0 };
            // At least one, however large.
            if bytes > self.read_budget && self.read_budget < READ_BYTES_MAX {
                break;
            }
            let command = Command::Receive(Receive {
                token: call.seed.token(u32::try_from(given.len()).unwrap_or(u32::MAX), self.index.now),
                visibility: call.visibility,
                assigned: call.assigned,
                make_buffers: call.make_buffers,
            });
            match self.change_item(sequence, command)? {
                Ok(_) => {
                    self.read_budget = self.read_budget.saturating_sub(bytes.max(1));
                    self.index.gave(id, sequence);
                    given.push(sequence);
                }
                // Its expiry is due, and the sweep of this group has not come to it.
                Err(Refusal::NotDue { .. }) => {
                    expired += 1;
                    if let Err(refusal) = self.elapse(sequence)? {
                        return refuse(refusal);
                    }
                }
                Err(refusal) => return refuse(refusal),
            }
        }
        let items = self.unread(&given, false);
        let now = self.index.now;
        match self.index.queues.get_mut(&id) {
            Some(queue) => {
                let (throttle, more) = queue.spend(given.len(), call.max as usize, now);
                Ok(Outcome::Received { queue: queue.queue.state, items, throttle, more, fields: call.fields })
            }
            None => refuse(Refusal::QueueNotFound { name: call.queue.to_string() }),
        }
    }

    pub(super) fn elapse(&mut self, sequence: u64) -> Result<Answered, StoreError> {
        let counted = self.index.head(sequence).map(|head| head.retries);
        let answered = self.change_item(sequence, Command::Elapse)?;
        if self.plant(Bug::LapseNotCounted)
            && let Some(extra) = self.index.table.extra_mut(sequence)
        {
            extra.head.retries = counted.unwrap_or(0);
        }
        Ok(answered)
    }

    fn on_item(&mut self, id: ItemId, command: Command) -> Result<Answered, StoreError> {
        match self.index.find(id) {
            Some(sequence) => self.change_item(sequence, command),
            None => Ok(Err(Refusal::ItemNotFound { id })),
        }
    }

    fn change_item(&mut self, sequence: u64, command: Command) -> Result<Answered, StoreError> {
        let Some(head) = self.index.head(sequence) else {
            return Err(self.poison("the index names an item it does not hold"));
        };
        let mut now = self.index.now;
        if self.plant(Bug::DeadlineOffByOne) && matches!(command, Command::Lease(_)) {
            now = Timestamp(now.0.saturating_sub(1));
        }
        let context = item_context(&self.index, &head, &command);
        if context.queue.is_none() {
            // Of a deleted queue, and not reaped yet.
            self.index.apply(IndexUpdate::ItemRemoved { sequence }).map_err(|error| self.poison(error.0))?;
            return Ok(Err(Refusal::ItemNotFound { id: head.id }));
        }
        match decide(&context, command, now) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(change) if change.is_empty() => Ok(Ok(Reply::Answer(change.answer().clone()))),
            Ok(change) => self.append_item(sequence, change, None).map(|answer| Ok(Reply::Answer(answer))),
        }
    }

    fn create_queue(&mut self, name: &QueueName, new: NewQueue) -> Result<Answered, StoreError> {
        let queue = self.index.by_name(name);
        if queue.is_none() && self.index.queues.len() >= limits::QUEUES_MAX {
            let held = self.index.queues.len() as u64;
            return Ok(Err(Refusal::StoreFull { what: "queues", held }));
        }
        let context = Context { queue, ..Context::default() };
        match decide(&context, Command::CreateQueue(Box::new(new)), self.index.now) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(change) => {
                self.next_queue += u32::from(!change.is_empty());
                self.append_queue(None, &change)?;
                Ok(Ok(Reply::Answer(change.answer().clone())))
            }
        }
    }

    fn on_queue(&mut self, name: &QueueName, command: Command) -> Result<Answered, StoreError> {
        let Some(queue) = self.index.queue_named(name) else {
            return Ok(Err(Refusal::QueueNotFound { name: name.to_string() }));
        };
        let id = queue.queue.id;
        let context = Context { queue: Some(&queue.queue), counts: queue.counts, ..Context::default() };
        match decide(&context, command, self.index.now) {
            Err(refusal) => Ok(Err(refusal)),
            Ok(change) => {
                self.append_queue(Some(id), &change)?;
                Ok(Ok(Reply::Answer(change.answer().clone())))
            }
        }
    }

    /// Refuses records that would be one too many bytes, those they replace aside.
    fn check_kv_room<'a>(
        &self,
        after: impl Iterator<Item = (&'a str, Option<&'a KvRecord>)>,
    ) -> Result<(), Refusal> {
        let (mut held, mut more) = (self.index.kv_bytes, 0);
        for (key, record) in after {
            let before = self.index.kv.get(key);
            held -= before.map_or(0, |before| key.len() + before.record.value.len());
            more += record.map_or(0, |record| key.len() + record.value.len());
        }
        if more > 0 && held + more > self.options.kv_bytes_max {
            return Err(Refusal::StoreFull { what: "bytes of key-value records", held: held as u64 });
        }
        Ok(())
    }

    fn kv(&mut self, key: &str, command: KvCommand) -> Result<Answered, StoreError> {
        let find = |key: &str| self.index.kv.get(key).map(|slot| &slot.record);
        let decision = match kv::decide(key, find, command, self.index.now) {
            Err(refusal) => return Ok(Err(refusal)),
            Ok(decision) => decision,
        };
        let room = decision.after.iter().map(|(key, after)| (key.as_str(), after.as_ref()));
        if let Err(refusal) = self.check_kv_room(room) {
            return Ok(Err(refusal));
        }
        if decision.after.is_empty() {
            return Ok(Ok(Reply::Kv(decision.answer)));
        }
        // All of them lie in one frame: after a crash each is there, or none is.
        let first = self.frame.len();
        let lengths: Vec<u32> = decision
            .after
            .iter()
            .map(|(key, after)| match after {
                Some(record) => record::encode_kv(&mut self.frame, key, record, self.salt),
                None => record::encode_kv_deleted(&mut self.frame, key, self.salt),
            })
            .collect();
        let mut start = self.fit(first)?;
        for ((key, after), length) in decision.after.into_iter().zip(lengths) {
            let place = self.place(start, length);
            start += length as usize;
            self.apply(match after {
                Some(record) => IndexUpdate::Kv { key, record, place },
                None => IndexUpdate::KvDeleted { key },
            })?;
        }
        Ok(Ok(Reply::Kv(decision.answer)))
    }
}
