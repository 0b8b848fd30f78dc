//! What belongs to items and is kept in object storage: the buffers in their slots, and payload fields that are large.
//!
//! Everything named by an item is put there before the item says so, and is removed when no item names it any more: a
//! crash between the two leaves something to collect, never a name without a thing.

use crate::entropy;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use towline_buffers::{BufferError, BufferState as State, Buffers, NewBuffer, Position, WriterId};
use towline_domain::command::{Verb, When};
use towline_domain::{
    BufferId, Field, FieldEdits, Fields, Item, ItemId, Millis, OutputSet, Reference, Refusal, SlotName,
    Submission, Timestamp, limits,
};
use towline_store::{Operation, Store, StoreError};

/// Calls to the storage at a time, of one batch.
pub(crate) const AT_ONCE: usize = 16;

/// Which payload fields are kept in object storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffloadRule {
    /// Fields of more bytes than this.
    pub above: usize,
    /// Items that are not ready for so long take no place meanwhile:
    pub delayed_by: Millis,
    /// of theirs, fields of more bytes than this.
    pub delayed_above: usize,
}

impl Default for OffloadRule {
    fn default() -> OffloadRule {
        OffloadRule { above: 64 << 10, delayed_by: Millis::days(1), delayed_above: 4 << 10 }
    }
}

impl OffloadRule {
    pub(super) fn threshold(&self, ready: When, now: Timestamp) -> usize {
        if ready.resolve(now).since(now) >= self.delayed_by {
            self.delayed_above.min(self.above)
        } else {
            self.above
        }
    }
}

#[derive(Debug)]
pub(crate) struct Attachments {
    pub(crate) buffers: Buffers,
    pub(crate) offload: OffloadRule,
}

/// An operation on its way to the store, and what was put into the storage for it.
pub(crate) struct Prepared {
    pub(crate) operation: Operation,
    pub(crate) keys: Vec<String>,
}

impl Attachments {
    /// Whether an operation names buffers or has fields to offload: few do.
    pub(crate) fn concerns(&self, operation: &Operation, now: Timestamp) -> bool {
        match operation {
            Operation::Submit { submission, .. } => {
                !submission.body.inputs.is_empty()
                    || self.offloads(submission, now).is_some()
                    || has_references(&submission.fields)
            }
            Operation::Lease { call, .. } => {
                matches!(&call.verb, Verb::Commit(outcome) if !outcome.outputs.is_empty())
                    || !call.adjust.edits.is_empty()
            }
            _ => false,
        }
    }

    /// From how many bytes on fields of a new item are put into the storage, if any is.
    fn offloads(&self, submission: &Submission, now: Timestamp) -> Option<usize> {
        // What is put there is named after its item, and which item that is, is not known before the store has it.
        if submission.body.replace_key.is_some() {
            return None;
        }
        let threshold = self.offload.threshold(submission.ready, now);
        let heavy = |field: &Field| is_heavy(submission.fields.get(*field), threshold);
        Field::ALL.iter().any(heavy).then_some(threshold)
    }

    /// Looks at the buffers that operations name, and puts heavy fields into the storage.
    pub(crate) async fn prepare(
        &self,
        store: &dyn Store,
        batch: Vec<Operation>,
        now: Timestamp,
    ) -> Result<Vec<Result<Prepared, Refusal>>, StoreError> {
        let prepared = stream::iter(batch).map(|operation| self.prepare_one(store, operation, now));
        let prepared: Vec<Result<Result<Prepared, Refusal>, StoreError>> =
            prepared.buffered(AT_ONCE).collect().await;
        prepared.into_iter().collect()
    }

    async fn prepare_one(
        &self,
        store: &dyn Store,
        mut operation: Operation,
        now: Timestamp,
    ) -> Result<Result<Prepared, Refusal>, StoreError> {
        let mut keys = Vec::new();
        match &mut operation {
            Operation::Submit { submission, .. } => {
                for (slot, id) in &submission.body.inputs {
                    if let Err(refusal) = self.check_input(store, slot, id, now).await? {
                        return Ok(Err(refusal));
                    }
                }
                if submission.body.replace_key.is_some() && has_references(&submission.fields) {
                    let message = "a payload field begins like what stands for one that is kept elsewhere; \
                                   submit it without the key"
                        .to_owned();
                    return Ok(Err(Refusal::Invalid { what: "replace_key", message }));
                }
                if let Some(threshold) = self.offloads(submission, now) {
                    let id = *submission.id.get_or_insert_with(|| ItemId(entropy::uuid(now)));
                    let stored = self.offload_fields(id, &mut submission.fields, threshold, &mut keys).await;
                    if let Err(refusal) = stored {
                        return Ok(Err(refusal));
                    }
                }
            }
            Operation::Lease { id, call } => {
                if let Verb::Commit(outcome) = &call.verb {
                    for (slot, buffer) in &outcome.outputs {
                        if let Err(refusal) = self.check_output(store, *id, (slot, buffer), now).await? {
                            return Ok(Err(refusal));
                        }
                    }
                }
                let stored = self.offload_edits(*id, &mut call.adjust.edits, &mut keys).await;
                if let Err(refusal) = stored {
                    return Ok(Err(refusal));
                }
            }
            _ => {}
        }
        Ok(Ok(Prepared { operation, keys }))
    }

    pub(super) async fn offload_fields(
        &self,
        id: ItemId,
        fields: &mut Fields,
        threshold: usize,
        keys: &mut Vec<String>,
    ) -> Result<(), Refusal> {
        for field in Field::ALL {
            if let Some(content) = fields.get(field).filter(|_| is_heavy(fields.get(field), threshold)) {
                let reference = self.put(id, field, content.clone(), keys).await?;
                fields.set(field, Some(reference.write()));
            }
        }
        Ok(())
    }

    async fn offload_edits(
        &self,
        id: ItemId,
        edits: &mut FieldEdits,
        keys: &mut Vec<String>,
    ) -> Result<(), Refusal> {
        for field in Field::ALL {
            let Some(Some(content)) = edits.get(field) else { continue };
            if is_heavy(Some(content), self.offload.above) {
                let reference = self.put(id, field, content.clone(), keys).await?;
                *edits = std::mem::take(edits).set(field, reference.write());
            }
        }
        Ok(())
    }

    async fn put(
        &self,
        id: ItemId,
        field: Field,
        content: bytes::Bytes,
        keys: &mut Vec<String>,
    ) -> Result<Reference, Refusal> {
        let key = FieldKey { id, field, unique: entropy::number() }.to_string();
        let reference = Reference::to(&content, key);
        self.buffers.put_blob(&reference.key, content).await.map_err(refusal)?;
        keys.push(reference.key.clone());
        Ok(reference)
    }

    /// Brings back the fields of an item that are kept in the storage.
    pub(crate) async fn fetch(&self, fields: &mut Fields) -> Result<(), Refusal> {
        for field in Field::ALL {
            let Some(reference) = fields.get(field).and_then(|bytes| Reference::read(bytes)) else {
                continue;
            };
            let content = self.buffers.get_blob(&reference.key, reference.bytes).await.map_err(refusal)?;
            if Reference::to(&content, reference.key.clone()) != reference {
                let detail = format!(
                    "{}: what is kept under {} is not what was put there",
                    field.name(),
                    reference.key
                );
                return Err(Refusal::BuffersDamaged { detail });
            }
            fields.set(field, Some(content));
        }
        Ok(())
    }

    /// Makes the buffers of the attempts at many items, and fetches their payload; answers which could not be had, and
    /// why.
    pub(crate) async fn fetch_all(&self, items: &mut [Item], now: Timestamp) -> Vec<(usize, Refusal)> {
        let all = items.iter().enumerate();
        let all = all.filter(|(_, item)| has_references(&item.fields) || made_for(item).is_some());
        let heavy: Vec<(usize, Fields, OutputSet)> = all
            .map(|(at, item)| (at, item.fields.clone(), made_for(item).cloned().unwrap_or_default()))
            .collect();
        let mut fetching = stream::iter(heavy)
            .map(|(at, mut fields, made)| async move {
                let had = match self.make(&made, now).await {
                    Ok(()) => self.fetch(&mut fields).await,
                    Err(refusal) => Err(refusal),
                };
                (at, had.map(|()| fields))
            })
            .buffered(AT_ONCE);
        let mut failed = Vec::new();
        while let Some((at, fetched)) = fetching.next().await {
            match fetched {
                Ok(fields) => items[at].fields = fields,
                Err(refusal) => failed.push((at, refusal)),
            }
        }
        failed
    }

    /// An input may still be written, or not be begun: its reader waits.
    async fn check_input(
        &self,
        store: &dyn Store,
        slot: &SlotName,
        id: &BufferId,
        now: Timestamp,
    ) -> Result<Result<(), Refusal>, StoreError> {
        let what = format!("inputs.{}", slot.as_str());
        Ok(self.look(store, &what, id, now).await?.and_then(|state| match state {
            State::Failed { .. } => Err(not_ready(what, id, "failed", "write another one and name that")),
            _ => Ok(()),
        }))
    }

    /// An output is readable from the moment the commit is answered.
    async fn check_output(
        &self,
        store: &dyn Store,
        by: ItemId,
        (slot, id): (&SlotName, &BufferId),
        now: Timestamp,
    ) -> Result<Result<(), Refusal>, StoreError> {
        let what = format!("outputs.{}", slot.as_str());
        let state = match self.look(store, &what, id, now).await? {
            Ok(state) => state,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match (unfinished(&state), id.attempted()) {
            (Some((state, remedy)), _) => Ok(Err(not_ready(what, id, state, remedy))),
            (None, Some(item)) if item == by => Ok(self.keep(id).await),
            (None, Some(_)) => self.claim(store, id, by).await,
            (None, None) => Ok(Ok(())),
        }
    }

    async fn look(
        &self,
        store: &dyn Store,
        what: &str,
        id: &BufferId,
        now: Timestamp,
    ) -> Result<Result<State, Refusal>, StoreError> {
        let shown = match self.admit_reader(store, id).await? {
            Ok(()) => self.buffers.show(id.as_str(), now.0).await,
            Err(error) => Err(error),
        };
        Ok(match shown {
            Ok(shown) => Ok(shown.state),
            Err(BufferError::NotFound { .. } | BufferError::BadId { .. }) => {
                Err(Refusal::BufferNotFound { what: what.to_owned(), id: id.to_string() })
            }
            Err(error) => Err(refusal(error)),
        })
    }

    /// Looks at the buffers made for an attempt before a commit uses them. One that was never written is empty.
    pub(crate) async fn finish(&self, made: &OutputSet, now: Timestamp) -> Result<(), Refusal> {
        for (slot, id) in made {
            let what = format!("outputs.{}", slot.as_str());
            let state = match self.buffers.show(id.as_str(), now.0).await {
                Ok(shown) => shown.state,
                Err(BufferError::NotFound { .. }) => {
                    return Err(Refusal::BufferGone { what, id: id.to_string() });
                }
                Err(error) => return Err(refusal(error)),
            };
            if state == State::Empty {
                let writer = WriterId::from_bytes(entropy::bytes());
                let begun = self.buffers.begin(id.as_str(), writer, now.0).await;
                // Somebody began to write just now, or finished.
                begun.map_err(|error| match error {
                    BufferError::BeingWritten { .. } => not_ready(what.clone(), id, "being written", FINISH),
                    error => refusal(error),
                })?;
                self.buffers.finish(id.as_str(), writer, Position::START, now.0).await.map_err(refusal)?;
            } else if let Some((state, remedy)) = unfinished(&state) {
                return Err(not_ready(what, id, state, remedy));
            }
            self.keep(id).await?;
        }
        Ok(())
    }

    /// Says of an attempt's buffer, before the commit that names it, that it outlives the item.
    async fn keep(&self, id: &BufferId) -> Result<(), Refusal> {
        self.buffers.put_blob(&kept_key(id), bytes::Bytes::new()).await.map_err(refusal)
    }

    /// Makes the buffers of an attempt when it begins, and at no other time: a buffer that is missing at the commit was
    /// deleted, and must not be taken for one that was never written.
    async fn make(&self, made: &OutputSet, now: Timestamp) -> Result<(), Refusal> {
        for id in made.values() {
            let tags = id.attempted().map(|item| ("item".to_owned(), item.to_string()));
            let new = NewBuffer { tags: BTreeMap::from_iter(tags), expires_at_ms: None };
            match self.buffers.create(id.as_str(), new, now.0).await {
                Ok(_) | Err(BufferError::Exists { .. }) => {}
                Err(error) => return Err(refusal(error)),
            }
        }
        Ok(())
    }

    /// Buffers made for an attempt are written while the attempt lasts.
    pub(crate) async fn admit_writer(
        &self,
        store: &dyn Store,
        id: &BufferId,
    ) -> Result<Result<(), BufferError>, StoreError> {
        Ok(match self.tie(store, id).await? {
            BufferBinding::Free | BufferBinding::Held => Ok(()),
            BufferBinding::Committed | BufferBinding::Kept => {
                Err(BufferError::AlreadyWritten { id: id.to_string() })
            }
            BufferBinding::Cut | BufferBinding::Gone => Err(BufferError::NotFound { id: id.to_string() }),
        })
    }

    /// And read while it lasts, or once it was committed.
    pub(crate) async fn admit_reader(
        &self,
        store: &dyn Store,
        id: &BufferId,
    ) -> Result<Result<(), BufferError>, StoreError> {
        Ok(match self.tie(store, id).await? {
            BufferBinding::Free | BufferBinding::Held | BufferBinding::Committed | BufferBinding::Kept => {
                Ok(())
            }
            BufferBinding::Cut | BufferBinding::Gone => Err(BufferError::NotFound { id: id.to_string() }),
        })
    }

    pub(crate) async fn tie(&self, store: &dyn Store, id: &BufferId) -> Result<BufferBinding, StoreError> {
        let Some(item) = id.attempted() else { return Ok(BufferBinding::Free) };
        let found = store.get(vec![item], towline_domain::FieldSet::NONE).await?.pop().flatten();
        self.tie_to(store, id, found.as_ref().map(|stored| &stored.item)).await
    }

    /// What binds an attempt's buffer to its item, which may be gone.
    pub(crate) async fn tie_to(
        &self,
        store: &dyn Store,
        id: &BufferId,
        item: Option<&Item>,
    ) -> Result<BufferBinding, StoreError> {
        let names = |outputs: &OutputSet| outputs.values().any(|output| output == id);
        let end = match item {
            Some(item) if made_for(item).is_some_and(names) => return Ok(BufferBinding::Held),
            Some(item) if names(&item.outcome.outputs) => return Ok(BufferBinding::Committed),
            Some(_) => BufferBinding::Cut,
            None if self.is_kept(id).await? => return Ok(BufferBinding::Kept),
            None => BufferBinding::Gone,
        };
        Ok(if self.is_claimed(store, id).await? { BufferBinding::Kept } else { end })
    }

    async fn is_kept(&self, id: &BufferId) -> Result<bool, StoreError> {
        match self.buffers.get_blob(&kept_key(id), 0).await {
            Ok(_) => Ok(true),
            Err(BufferError::BlobNotFound { .. }) => Ok(false),
            Err(error) => Err(StoreError::Unavailable { cause: error.to_string() }),
        }
    }
}

/// What binds a buffer to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BufferBinding {
    /// It was not made for an attempt: somebody created it.
    Free,
    /// The attempt it was made for goes on.
    Held,
    /// It is the item's output.
    Committed,
    /// It outlives the attempt: its item committed it and is gone, or another item committed it.
    Kept,
    /// The attempt ended otherwise.
    Cut,
    /// The item is gone, and never committed it.
    Gone,
}

/// The buffers made for the present attempt at an item.
fn made_for(item: &Item) -> Option<&OutputSet> {
    item.head.lease().and_then(|lease| lease.buffers.as_deref())
}

const FINISH: &str = "finish writing it, then commit";

/// Why a buffer is no output yet.
fn unfinished(state: &State) -> Option<(&'static str, &'static str)> {
    match state {
        State::Complete { .. } => None,
        State::Empty => Some(("not written", "write it, then commit")),
        State::Writing { .. } => Some(("being written", FINISH)),
        State::Failed { .. } => Some(("failed", "write another one and name that, or fail the item")),
    }
}

fn not_ready(what: String, id: &BufferId, state: &'static str, remedy: &'static str) -> Refusal {
    Refusal::BufferNotReady { what, id: id.to_string(), state, remedy }
}

fn is_heavy(field: Option<&bytes::Bytes>, threshold: usize) -> bool {
    // What is too large altogether is left to be refused.
    field.is_some_and(|bytes| {
        bytes.len() <= limits::FIELD_BYTES_MAX && (bytes.len() > threshold || Reference::is_marked(bytes))
    })
}

pub(crate) fn has_references(fields: &Fields) -> bool {
    Field::ALL.iter().any(|&field| fields.get(field).is_some_and(|bytes| Reference::is_marked(bytes)))
}

/// How many bytes of an item's payload are kept elsewhere.
pub(crate) fn kept_bytes(fields: &Fields) -> u64 {
    let references = Field::ALL.iter().filter_map(|&field| Reference::read(fields.get(field)?));
    references.map(|reference| reference.bytes).sum()
}

/// The key of the mark that an attempt's buffer outlives its item.
pub(crate) fn kept_key(id: &BufferId) -> String {
    format!("{KEPT}{id}")
}

pub(crate) const KEPT: &str = "kept.";

/// The key of an offloaded field: it names the item, so that it can be asked whether it still names the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FieldKey {
    pub(crate) id: ItemId,
    pub(crate) field: Field,
    pub(crate) unique: u64,
}

impl std::fmt::Display for FieldKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{:016x}", self.id, self.field.name(), self.unique)
    }
}

impl FieldKey {
    pub(crate) fn read(key: &str) -> Option<FieldKey> {
        let mut parts = key.split('.');
        let (id, field, unique) = (parts.next()?, parts.next()?, parts.next()?);
        let field = Field::ALL.into_iter().find(|known| known.name() == field)?;
        Some(FieldKey { id: id.parse().ok()?, field, unique: u64::from_str_radix(unique, 16).ok()? })
    }
}

pub(crate) fn refusal(error: BufferError) -> Refusal {
    let detail = error.to_string();
    match error {
        BufferError::Full { .. } => Refusal::DiskFull { detail },
        BufferError::Damaged { .. } | BufferError::BlobNotFound { .. } => Refusal::BuffersDamaged { detail },
        _ => Refusal::BuffersUnavailable { detail },
    }
}
