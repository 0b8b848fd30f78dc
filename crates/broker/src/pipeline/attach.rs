//! The broker's dealings with object storage: before and after an update, and before items are delivery over.

use crate::broker::{Broker, Shared};
use crate::collection::{Collected, CollectionRule};
use crate::delivery::Delivery;
use crate::entropy;
use crate::ownership::is_own_place;
use crate::pipeline::attachments::{AT_ONCE, Attachments, OffloadRule, Prepared, kept_bytes};
use futures::{StreamExt, stream};
use std::sync::Arc;
use towline_buffers::{BufferError, Buffers};
use towline_domain::change::Answer;
use towline_domain::command::{Verb, When};
use towline_domain::{Adjust, BufferId, Item, ItemId, LeaseCall, Millis, Refusal};
use towline_store::{Answered, Operation, Received, Reply, Result, StoredItem};

/// How long an item whose payload cannot be had is left alone before it is given out again.
const UNREADABLE_FOR: Millis = Millis(1000);

/// Payload fetched for one answer.
const FETCH_BYTES_MAX: u64 = 64 << 20;

/// Object storage, and what it is used for.
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

    /// Whether somebody may write to a buffer now. One made for an attempt is written while the attempt lasts.
    pub async fn admit_writer(&self, id: &str) -> Result<std::result::Result<(), BufferError>> {
        match self.ask(id) {
            Ok((attachments, id)) => attachments.admit_writer(&*self.0.store, &id).await,
            Err(error) => Ok(Err(error)),
        }
    }

    /// Whether somebody may read a buffer now. One made for an attempt is read while the attempt lasts, or once it was
    /// committed.
    pub async fn admit_reader(&self, id: &str) -> Result<std::result::Result<(), BufferError>> {
        match self.ask(id) {
            Ok((attachments, id)) => attachments.admit_reader(&*self.0.store, &id).await,
            Err(error) => Ok(Err(error)),
        }
    }

    fn ask(&self, id: &str) -> std::result::Result<(&Attachments, BufferId), BufferError> {
        let id = id.parse().map_err(|_| BufferError::BadId { id: id.to_owned() })?;
        let attachments = self.0.attachments.as_ref();
        Ok((attachments.ok_or(BufferError::NotSupported { what: "this" })?, id))
    }

    /// Brings the payload fields along that are kept in object storage.
    pub async fn fetch(&self, items: &mut [StoredItem]) -> std::result::Result<(), Refusal> {
        let Some(attachments) = &self.0.attachments else { return Ok(()) };
        let bytes: u64 = items.iter().map(|stored| kept_bytes(&stored.item.fields)).sum();
        if bytes > FETCH_BYTES_MAX && items.len() > 1 {
            let message = format!(
                "the payloads of these items have {bytes} bytes, more than the {FETCH_BYTES_MAX} of one answer; ask \
                 for fewer items, or without fields"
            );
            return Err(Refusal::Invalid { what: "limit", message });
        }
        for stored in items {
            let fetched = attachments.fetch(&mut stored.item.fields).await;
            fetched.inspect_err(|refusal| self.0.note_damage(stored.item.head.id, refusal))?;
        }
        Ok(())
    }

    /// How many items have been met since the start whose payload in object storage is gone or damaged.
    #[must_use]
    pub fn damaged(&self) -> u64 {
        self.0.damaged.count()
    }

    /// What was removed from object storage since the start, because nothing named it any more.
    #[must_use]
    pub fn collected(&self) -> Collected {
        self.0.collected.read()
    }
}

impl Shared {
    /// An update, with what it names looked at and what is heavy put away first.
    pub(crate) async fn update_attached(self: Arc<Self>, batch: Vec<Operation>) -> Result<Vec<Answered>> {
        let Some(attachments) = &self.attachments else { return Arc::clone(&self).update(batch).await };
        let now = self.clock.now();
        if !batch.iter().any(|operation| attachments.concerns(operation, now)) {
            let mut answers = Arc::clone(&self).update(batch).await?;
            self.finish_buffers(attachments, &mut answers).await?;
            return Ok(answers);
        }
        let (mut ready, mut put, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        for (at, prepared) in attachments.prepare(&*self.store, batch, now).await?.into_iter().enumerate() {
            match prepared {
                Ok(Prepared { operation, keys }) => {
                    ready.push(operation);
                    put.push((at, keys));
                }
                Err(refusal) => answers.push((at, Err(refusal))),
            }
        }
        let mut answered = Arc::clone(&self).update(ready).await?;
        self.finish_buffers(attachments, &mut answered).await?;
        for ((at, keys), answer) in put.into_iter().zip(answered) {
            if !took(&answer) {
                forget(attachments, keys).await;
            }
            answers.push((at, answer));
        }
        answers.sort_by_key(|(at, _)| *at);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Commits that were refused because nobody had looked at their attempt's buffers are looked at, and sent again.
    async fn finish_buffers(
        self: &Arc<Self>,
        attachments: &Attachments,
        answers: &mut [Answered],
    ) -> Result<()> {
        let mut unseen = Vec::new();
        for (at, answer) in answers.iter().enumerate() {
            if let Err(Refusal::BuffersUnseen { id, buffers, call }) = answer {
                unseen.push((at, *id, buffers.clone(), call.clone()));
            }
        }
        let now = self.clock.now();
        let mut looking =
            stream::iter(unseen)
                .map(|(at, id, buffers, call)| async move {
                    (at, id, call, attachments.finish(&buffers, now).await)
                })
                .buffered(AT_ONCE);
        let (mut again, mut places) = (Vec::new(), Vec::new());
        while let Some((at, id, mut call, finished)) = looking.next().await {
            match finished {
                Ok(()) => {
                    call.adjust.buffers_whole = true;
                    again.push(Operation::Lease { id, call });
                    places.push(at);
                }
                Err(refusal) => answers[at] = Err(refusal),
            }
        }
        if !again.is_empty() {
            for (at, answer) in places.into_iter().zip(Arc::clone(self).update(again).await?) {
                answers[at] = answer;
            }
        }
        Ok(())
    }

    /// Hands over what was received, with its payload. Items whose payload cannot be had now go back, as they were. If it is
    /// lost, the attempt has failed. `None`: all attempts have.
    pub(crate) async fn fetch_attachments(
        self: &Arc<Self>,
        mut delivery: Delivery,
    ) -> std::result::Result<Option<Received>, Refusal> {
        let Some(attachments) = &self.attachments else { return Ok(Some(delivery.accept())) };
        let too_many = affordable(delivery.items_mut());
        let too_many = delivery.items_mut().split_off(too_many);
        if !too_many.is_empty() {
            Arc::clone(self).give_back(too_many, When::NOW);
        }
        let failed = attachments.fetch_all(delivery.items_mut(), self.clock.now()).await;
        if failed.is_empty() {
            return Ok(Some(delivery.accept()));
        }
        let is_damage = failed.iter().any(|(_, refusal)| is_damage(refusal));
        let is_lost = is_damage && is_own_place(&attachments.buffers, &self.store.identity()).await;
        let (mut unreadable, mut lost, mut why) = (Vec::new(), Vec::new(), None);
        for (at, refusal) in failed.into_iter().rev() {
            let item = delivery.items_mut().remove(at);
            match is_lost && self::is_damage(&refusal) {
                true => lost.push((item, refusal)),
                false => {
                    unreadable.push(item);
                    why = Some(match refusal {
                        Refusal::BuffersDamaged { detail } => {
                            let cause = "the place for buffers is away, or belongs to another store";
                            Refusal::BuffersUnavailable { detail: format!("{cause}: {detail}") }
                        }
                        refusal => refusal,
                    });
                }
            }
        }
        Arc::clone(self).give_back(unreadable, When::After(UNREADABLE_FOR));
        self.fail_attempts(lost).await;
        match (delivery.items_mut().is_empty(), why) {
            (true, Some(refusal)) => Err(refusal),
            (true, None) => Ok(None),
            (false, _) => Ok(Some(delivery.accept())),
        }
    }

    /// Counts an attempt at each item whose payload is lost, and keeps the reason. After its retries the item has failed.
    async fn fail_attempts(self: &Arc<Self>, lost: Vec<(Item, Refusal)>) {
        let retry = |(item, refusal): (Item, Refusal)| {
            self.note_damage(item.head.id, &refusal);
            let token = item.head.lease()?.token;
            let verb = Verb::Retry { error: refusal.to_string(), delay: None, seed: entropy::number() };
            let call = Box::new(LeaseCall { token, verb, adjust: Adjust::default() });
            Some(Operation::Lease { id: item.head.id, call })
        };
        let batch: Vec<Operation> = lost.into_iter().filter_map(retry).collect();
        if !batch.is_empty() {
            // In a task, because the receiver may go away. If this fails the leases lapse, which counts, too.
            let _ = tokio::spawn(Arc::clone(self).update(batch)).await;
        }
    }

    fn note_damage(&self, id: ItemId, refusal: &Refusal) {
        if is_damage(refusal) {
            self.damaged.note(id, refusal);
        }
    }
}

/// Whether the payload is gone or damaged: trying again later does not help.
fn is_damage(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::BuffersDamaged { .. })
}

/// How many of these items, at least one, bring no more payload along than one answer may.
fn affordable(items: &[Item]) -> usize {
    let mut bytes = 0;
    let fits = |item: &&Item| {
        bytes += kept_bytes(&item.fields);
        bytes <= FETCH_BYTES_MAX
    };
    items.iter().take_while(fits).count().max(1).min(items.len())
}

/// Whether the store took the operation, as far as it says.
fn took(answer: &Answered) -> bool {
    match answer {
        Ok(Reply::Answer(Answer::Submitted { created, .. })) => *created,
        Ok(_) => true,
        Err(_) => false,
    }
}

/// What nobody names. If this fails it is collected later.
async fn forget(attachments: &Attachments, keys: Vec<String>) {
    for key in keys {
        let _ = attachments.buffers.delete_blob(&key).await;
    }
}
