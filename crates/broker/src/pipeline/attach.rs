//! The broker's dealings with object storage: before and after an update, and before items are delivery over.

use crate::broker::{Broker, Shared};
use crate::collection::{Collected, CollectionRule};
use crate::delivery::Delivery;
use crate::pipeline::attachments::{AT_ONCE, Attachments, OffloadRule, Prepared, kept_bytes};
use futures::{StreamExt, stream};
use std::sync::Arc;
use towline_buffers::{BufferError, Buffers};
use towline_domain::change::Answer;
use towline_domain::command::When;
use towline_domain::{BufferId, Item, Millis, Refusal};
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
            attachments.fetch(&mut stored.item.fields).await?;
        }
        Ok(())
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

    /// Hands over what was received, with its payload. Items whose payload cannot be had go back, as they were.
    pub(crate) async fn fetch_attachments(
        self: &Arc<Self>,
        mut delivery: Delivery,
    ) -> std::result::Result<Received, Refusal> {
        let Some(attachments) = &self.attachments else { return Ok(delivery.accept()) };
        let too_many = affordable(delivery.items_mut());
        let too_many = delivery.items_mut().split_off(too_many);
        if !too_many.is_empty() {
            Arc::clone(self).give_back(too_many, When::NOW);
        }
        let failed = attachments.fetch_all(delivery.items_mut(), self.clock.now()).await;
        if failed.is_empty() {
            return Ok(delivery.accept());
        }
        let mut unreadable: Vec<Item> = Vec::new();
        let mut why = None;
        for (at, refusal) in failed.into_iter().rev() {
            unreadable.push(delivery.items_mut().remove(at));
            why = Some(refusal);
        }
        Arc::clone(self).give_back(unreadable, When::After(UNREADABLE_FOR));
        match why {
            Some(refusal) if delivery.items_mut().is_empty() => Err(refusal),
            _ => Ok(delivery.accept()),
        }
    }
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
