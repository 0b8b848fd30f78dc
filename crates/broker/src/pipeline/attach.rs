//! Checks buffers and offloads fields before an update; fetches offloaded fields before a delivery.

use crate::broker::{Broker, Shared};
use crate::collection::{Collected, CollectionRule};
use crate::delivery::Delivery;
use crate::entropy;
use crate::ownership::is_own_place;
use crate::pipeline::attachments::{AT_ONCE, AccessError, Attachments, OffloadRule, Prepared, kept_bytes};
use crate::pipeline::payloads::Payloads;
use futures::{StreamExt, stream};
use std::sync::Arc;
use towline_buffers::{BufferError, Buffers};
use towline_domain::change::{Answer, BufferCheck};
use towline_domain::command::{Verb, When};
use towline_domain::{Adjust, BufferId, FieldSet, Item, ItemId, LeaseCall, LeaseToken, Millis, Refusal};
use towline_store::{
    Answered, Operation, OperationError, OperationResult, Received, Reply, Result, StoreError, StoredItem,
};

/// Delay before an item whose payload cannot be fetched is delivered again.
const UNREADABLE_FOR: Millis = Millis(1000);

/// Maximum size of the payload fetched for one answer.
const FETCH_BYTES_MAX: u64 = 64 << 20;

/// Object storage, and the rules for using it.
#[derive(Debug, Clone)]
pub struct Storage {
    pub buffers: Buffers,
    pub offload: OffloadRule,
    pub collection: CollectionRule,
}

impl Broker {
    #[must_use]
    pub fn buffers(&self) -> Option<&Buffers> {
        self.0.attachments.as_ref().map(|attachments| &attachments.buffers)
    }

    /// Reads payload fields from object storage, for an export.
    #[must_use]
    pub fn payloads(&self) -> Option<Payloads> {
        let attachments = self.0.attachments.as_ref()?;
        Some(Payloads::new(attachments.buffers.clone(), attachments.offload))
    }

    /// Whether a client may write to a buffer now. A buffer made for an attempt can be written during the attempt.
    pub async fn admit_writer(&self, id: &str) -> std::result::Result<(), AccessError> {
        let (attachments, id) = self.ask(id)?;
        attachments.admit_writer(&*self.0.store, &id).await
    }

    /// Whether a client may read a buffer now. A buffer made for an attempt can be read during the attempt, or after it
    /// was committed.
    pub async fn admit_reader(&self, id: &str) -> std::result::Result<(), AccessError> {
        let (attachments, id) = self.ask(id)?;
        attachments.admit_reader(&*self.0.store, &id).await
    }

    /// Whether a lease on an item is valid and the item names a buffer: its inputs and the outputs of this attempt to read, the outputs
    /// of this attempt to write.
    pub async fn holder_may_use(
        &self,
        item: ItemId,
        lease: LeaseToken,
        buffer: &BufferId,
        writes: bool,
    ) -> Result<bool> {
        let found = self.0.store.get(vec![item], FieldSet::NONE).await?.pop().flatten();
        let Some(item) = found.map(|stored| stored.item) else { return Ok(false) };
        let held = item.head.lease().filter(|held| held.token == lease && self.now() < held.deadline);
        Ok(held.is_some_and(|held| {
            let made = held.buffers.iter().any(|made| made.values().any(|made| made == buffer));
            made || !writes && item.body.inputs.values().any(|input| input == buffer)
        }))
    }

    fn ask(&self, id: &str) -> std::result::Result<(&Attachments, BufferId), BufferError> {
        let id = id.parse().map_err(|_| BufferError::BadId { id: id.to_owned() })?;
        let attachments = self.0.attachments.as_ref();
        Ok((attachments.ok_or(BufferError::NotSupported { what: "this" })?, id))
    }

    /// Fetches the offloaded payload fields of items.
    pub async fn fetch(&self, items: &mut [StoredItem]) -> OperationResult<()> {
        let Some(attachments) = &self.0.attachments else { return Ok(()) };
        let bytes: u64 = items.iter().map(|stored| kept_bytes(&stored.item.fields)).sum();
        if bytes > FETCH_BYTES_MAX && items.len() > 1 {
            let message = format!(
                "the payloads of these items have {bytes} bytes; one answer has {FETCH_BYTES_MAX} at most; ask for \
                 fewer items, or without fields"
            );
            return Err(Refusal::Invalid { what: "limit", message }.into());
        }
        for stored in items {
            let fetched = attachments.fetch(&mut stored.item.fields).await;
            fetched.inspect_err(|error| self.0.note_damage(stored.item.head.id, error))?;
        }
        Ok(())
    }

    /// How many items were found since the start whose payload in object storage is gone or damaged.
    #[must_use]
    pub fn damaged(&self) -> u64 {
        self.0.damaged.count()
    }

    /// What was deleted from object storage since the start because no item used it.
    #[must_use]
    pub fn collected(&self) -> Collected {
        self.0.collected.read()
    }
}

impl Shared {
    /// Checks the buffers that a batch names and offloads large fields, then carries out the batch.
    pub(crate) async fn update_attached(self: Arc<Self>, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        let Some(attachments) = &self.attachments else {
            let mut answers = Arc::clone(&self).update(batch).await?;
            answers.iter_mut().for_each(refuse_check);
            return Ok(answers);
        };
        let now = self.clock.now();
        if !batch.iter().any(|operation| attachments.concerns(operation, now)) {
            let mut answers = Arc::clone(&self).update(batch).await?;
            self.finish_buffers(attachments, &mut answers).await?;
            return Ok(answers);
        }
        let (mut ready, mut put, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for (at, prepared) in attachments.prepare(&*self.store, batch, now).await.into_iter().enumerate() {
            match prepared {
                Ok(Prepared { operation, keys }) => {
                    ready.push(operation);
                    put.push((at, keys));
                }
                Err(error) => answers.push((at, Err(error))),
            }
        }
        let mut answered = Arc::clone(&self).update(ready).await?;
        self.finish_buffers(attachments, &mut answered).await?;
        for ((at, keys), answer) in put.into_iter().zip(answered) {
            if !was_applied(&answer) {
                delete_fields(attachments, keys).await;
            }
            answers.push((at, answer));
        }
        answers.sort_by_key(|(at, _)| *at);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Checks the attempts' buffers of commits that ask for it, and sends these commits again.
    async fn finish_buffers(
        self: &Arc<Self>,
        attachments: &Attachments,
        answers: &mut [Answered],
    ) -> Result<()> {
        let mut unchecked = Vec::new();
        for (at, answer) in answers.iter().enumerate() {
            if let Ok(Reply::Answer(Answer::CheckBuffers(check))) = answer {
                unchecked.push((at, check.clone()));
            }
        }
        let now = self.clock.now();
        let mut checks = stream::iter(unchecked)
            .map(|(at, check)| async move {
                let finished = attachments.finish(&check.buffers, check.output_ttl, now).await;
                (at, check, finished)
            })
            .buffered(AT_ONCE);
        let (mut again, mut places) = (Vec::new(), Vec::new());
        while let Some((at, check, finished)) = checks.next().await {
            match finished {
                Ok(()) => {
                    let BufferCheck { id, mut call, .. } = *check;
                    call.adjust.buffers_whole = true;
                    again.push(Operation::Lease { id, call: Box::new(call) });
                    places.push(at);
                }
                Err(error) => answers[at] = Err(error),
            }
        }
        if !again.is_empty() {
            for (at, answer) in places.into_iter().zip(Arc::clone(self).update(again).await?) {
                answers[at] = answer;
            }
        }
        Ok(())
    }

    /// Fetches the payload of a delivery. Items whose payload cannot be fetched now go back, as they were. If a payload is
    /// lost, the attempt has failed. `None`: all attempts have.
    pub(crate) async fn fetch_attachments(
        self: &Arc<Self>,
        mut delivery: Delivery,
    ) -> OperationResult<Option<Received>> {
        let Some(attachments) = &self.attachments else { return Ok(Some(delivery.accept())) };
        let count = fitting(delivery.items_mut());
        let excess = delivery.items_mut().split_off(count);
        if !excess.is_empty() {
            Arc::clone(self).give_back(excess, When::NOW);
        }
        let failed = attachments.fetch_all(delivery.items_mut(), self.clock.now()).await;
        if failed.is_empty() {
            return Ok(Some(delivery.accept()));
        }
        let is_damage = failed.iter().any(|(_, error)| is_damage(error));
        let is_lost = is_damage && is_own_place(&attachments.buffers, &self.store.identity()).await;
        let (mut unreadable, mut lost, mut why) = (Vec::new(), Vec::new(), None);
        for (at, error) in failed.into_iter().rev() {
            let item = delivery.items_mut().remove(at);
            match is_lost && self::is_damage(&error) {
                true => lost.push((item, error)),
                false => {
                    unreadable.push(item);
                    why = Some(match error {
                        OperationError::Failed(StoreError::PayloadDamaged { detail }) => {
                            let reason = "the place for buffers is away, or belongs to another store";
                            StoreError::ObjectStorage { cause: format!("{reason}: {detail}") }.into()
                        }
                        error => error,
                    });
                }
            }
        }
        Arc::clone(self).give_back(unreadable, When::After(UNREADABLE_FOR));
        self.fail_attempts(lost).await;
        match (delivery.items_mut().is_empty(), why) {
            (true, Some(error)) => Err(error),
            (true, None) => Ok(None),
            (false, _) => Ok(Some(delivery.accept())),
        }
    }

    /// Counts an attempt at each item whose payload is lost, and keeps the reason. After its retries the item has failed.
    async fn fail_attempts(self: &Arc<Self>, lost: Vec<(Item, OperationError)>) {
        let retry = |(item, error): (Item, OperationError)| {
            self.note_damage(item.head.id, &error);
            let token = item.head.lease()?.token;
            let verb = Verb::Retry { error: error.to_string(), delay: None, seed: entropy::number() };
            let call = Box::new(LeaseCall { token, verb, adjust: Adjust::default() });
            Some(Operation::Lease { id: item.head.id, call })
        };
        let batch: Vec<Operation> = lost.into_iter().filter_map(retry).collect();
        if !batch.is_empty() {
            // In a task, because the receiver may go away. If this fails the leases lapse, which counts, too.
            let _ = tokio::spawn(Arc::clone(self).update(batch)).await;
        }
    }

    fn note_damage(&self, id: ItemId, error: &OperationError) {
        if is_damage(error) {
            self.damaged.note(id, error);
        }
    }
}

/// Whether the payload is gone or damaged: trying again later does not help.
fn is_damage(error: &OperationError) -> bool {
    matches!(error, OperationError::Failed(StoreError::PayloadDamaged { .. }))
}

/// How many of these items, at least one, fit into one answer with their payload.
fn fitting(items: &[Item]) -> usize {
    let mut bytes = 0;
    let fits = |item: &&Item| {
        bytes += kept_bytes(&item.fields);
        bytes <= FETCH_BYTES_MAX
    };
    items.iter().take_while(fits).count().max(1).min(items.len())
}

/// Without object storage no buffer can be checked.
fn refuse_check(answer: &mut Answered) {
    if matches!(answer, Ok(Reply::Answer(Answer::CheckBuffers(_)))) {
        let message = "this server has no storage for buffers; configure `buffers`, then commit".to_owned();
        *answer = Err(Refusal::Invalid { what: "outputs", message }.into());
    }
}

/// Whether the store carried out the operation, as far as its answer says.
fn was_applied(answer: &Answered) -> bool {
    match answer {
        Ok(Reply::Answer(Answer::Submitted { created, .. })) => *created,
        Ok(_) => true,
        Err(_) => false,
    }
}

/// Deletes fields that no item names. If this fails, they are collected later.
async fn delete_fields(attachments: &Attachments, keys: Vec<String>) {
    for key in keys {
        let _ = attachments.buffers.delete_blob(&key).await;
    }
}
