//! What items keep in object storage: buffers in their slots, and offloaded payload fields.
//!
//! **Invariant:** an object is stored before an item names it, and deleted after no item names it any more. A crash in
//! between leaves an unused object to collect, never a name without an object.

use crate::entropy;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use towline_buffers::{
    BufferError, BufferState as State, BufferStatus, Buffers, NewBuffer, Position, WriterId,
};
use towline_domain::command::{Verb, When};
use towline_domain::{
    BufferId, BufferStateKind, Field, FieldEdits, FieldSet, Fields, Item, ItemId, LeaseToken, Millis,
    OutputSet, Reference, Refusal, SlotName, Submission, Timestamp, limits,
};
use towline_store::{Operation, OperationError, OperationResult, Store, StoreError};

/// Maximum number of concurrent calls to object storage for one batch.
pub(crate) const AT_ONCE: usize = 16;

/// Which payload fields are kept in object storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffloadRule {
    /// Fields larger than this, in bytes.
    pub above: usize,
    /// Items that become ready after at least this delay use `delayed_above`.
    pub delayed_by: Millis,
    /// Fields of delayed items larger than this, in bytes.
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

/// An operation for the store, and the keys of the fields that were offloaded for it.
pub(crate) struct Prepared {
    pub(crate) operation: Operation,
    pub(crate) keys: Vec<String>,
}

impl Attachments {
    /// Whether an operation names buffers or has fields to offload.
    pub(crate) fn concerns(&self, operation: &Operation, now: Timestamp) -> bool {
        let settles = match operation {
            Operation::Lease { call, .. } => {
                matches!(&call.verb, Verb::Commit(outcome) if !outcome.outputs.is_empty())
                    || !call.adjust.edits.is_empty()
            }
            _ => false,
        };
        settles
            || operation.submissions().any(|submission| {
                !submission.body.inputs.is_empty()
                    || self.offloads(submission, now).is_some()
                    || has_references(&submission.fields)
            })
    }

    /// The size above which fields of a new item are offloaded. `None`: no field is.
    fn offloads(&self, submission: &Submission, now: Timestamp) -> Option<usize> {
        // The key of an offloaded field contains the item's id. With a replace key, only the store knows that id.
        if submission.body.replace_key.is_some() {
            return None;
        }
        let threshold = self.offload.threshold(submission.ready, now);
        let is_large = |field: &Field| should_offload(submission.fields.get(*field), threshold);
        Field::ALL.iter().any(is_large).then_some(threshold)
    }

    /// Checks the buffers that operations name, and offloads large fields.
    pub(crate) async fn prepare(
        &self,
        store: &dyn Store,
        batch: Vec<Operation>,
        now: Timestamp,
    ) -> Vec<OperationResult<Prepared>> {
        let prepared = stream::iter(batch).map(|operation| self.prepare_one(store, operation, now));
        prepared.buffered(AT_ONCE).collect().await
    }

    async fn prepare_one(
        &self,
        store: &dyn Store,
        mut operation: Operation,
        now: Timestamp,
    ) -> OperationResult<Prepared> {
        let mut keys = Vec::new();
        let hands_off = !operation.handed_off().is_empty();
        for (index, submission) in operation.submissions_mut().enumerate() {
            let prepared = self.prepare_submission(store, submission, now, &mut keys).await;
            prepared.map_err(|error| match error {
                OperationError::Refused(refusal) if hands_off => refusal.of_hand_off(index).into(),
                error => error,
            })?;
        }
        if let Operation::Lease { id, call } = &mut operation {
            if let Verb::Commit(outcome) = &call.verb {
                let attempt = made_for_call(store, *id, call.token, &outcome.outputs).await?;
                for output in &outcome.outputs {
                    self.check_output(store, *id, output, &attempt, now).await?;
                }
            }
            self.offload_edits(*id, &mut call.adjust.edits, &mut keys).await?;
        }
        Ok(Prepared { operation, keys })
    }

    async fn prepare_submission(
        &self,
        store: &dyn Store,
        submission: &mut Submission,
        now: Timestamp,
        keys: &mut Vec<String>,
    ) -> OperationResult<()> {
        for (slot, id) in &submission.body.inputs {
            self.check_input(store, slot, id, now).await?;
        }
        if submission.body.replace_key.is_some() && has_references(&submission.fields) {
            let message =
                "a payload field starts with the reserved prefix of offloaded fields; submit the item \
                           without the replace key"
                    .to_owned();
            return Err(Refusal::Invalid { what: "replace_key", message }.into());
        }
        if let Some(threshold) = self.offloads(submission, now) {
            let id = *submission.id.get_or_insert_with(|| ItemId(entropy::uuid(now)));
            self.offload_fields(id, &mut submission.fields, threshold, keys).await?;
        }
        Ok(())
    }

    pub(super) async fn offload_fields(
        &self,
        id: ItemId,
        fields: &mut Fields,
        threshold: usize,
        keys: &mut Vec<String>,
    ) -> OperationResult<()> {
        for field in Field::ALL {
            if let Some(content) = fields.get(field).filter(|_| should_offload(fields.get(field), threshold))
            {
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
    ) -> OperationResult<()> {
        for field in Field::ALL {
            let Some(Some(content)) = edits.get(field) else { continue };
            if should_offload(Some(content), self.offload.above) {
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
    ) -> OperationResult<Reference> {
        let key = FieldKey { id, field, unique: entropy::number() }.to_string();
        let reference = Reference::to(&content, key);
        self.buffers.put_blob(&reference.key, content).await.map_err(operation_error)?;
        keys.push(reference.key.clone());
        Ok(reference)
    }

    /// Fetches the offloaded fields of an item.
    pub(crate) async fn fetch(&self, fields: &mut Fields) -> OperationResult<()> {
        for field in Field::ALL {
            let Some(reference) = fields.get(field).and_then(|bytes| Reference::read(bytes)) else {
                continue;
            };
            let content =
                self.buffers.get_blob(&reference.key, reference.bytes).await.map_err(operation_error)?;
            if Reference::to(&content, reference.key.clone()) != reference {
                let detail = format!(
                    "{}: the object {} differs from the field that was offloaded",
                    field.name(),
                    reference.key
                );
                return Err(StoreError::PayloadDamaged { detail }.into());
            }
            fields.set(field, Some(content));
        }
        Ok(())
    }

    /// Makes the buffers of the attempts at many items, and fetches their payload. Returns the failed ones and why.
    pub(crate) async fn fetch_all(&self, items: &mut [Item], now: Timestamp) -> Vec<(usize, OperationError)> {
        let all = items.iter().enumerate();
        let all = all.filter(|(_, item)| has_references(&item.fields) || made_for(item).is_some());
        let wanted: Vec<(usize, Fields, OutputSet)> = all
            .map(|(at, item)| (at, item.fields.clone(), made_for(item).cloned().unwrap_or_default()))
            .collect();
        let mut fetching = stream::iter(wanted)
            .map(|(at, mut fields, made)| async move {
                let fetched = match self.make(&made, now).await {
                    Ok(()) => self.fetch(&mut fields).await,
                    Err(error) => Err(error),
                };
                (at, fetched.map(|()| fields))
            })
            .buffered(AT_ONCE);
        let mut failed = Vec::new();
        while let Some((at, fetched)) = fetching.next().await {
            match fetched {
                Ok(fields) => items[at].fields = fields,
                Err(error) => failed.push((at, error)),
            }
        }
        failed
    }

    /// An input may be incomplete: its reader waits for the writer.
    async fn check_input(
        &self,
        store: &dyn Store,
        slot: &SlotName,
        id: &BufferId,
        now: Timestamp,
    ) -> OperationResult<()> {
        let what = format!("inputs.{}", slot.as_str());
        match self.look(store, &what, id, now).await?.state {
            state @ State::Failed { .. } => {
                Err(not_ready(what, id, state.kind(), "write another buffer and name it").into())
            }
            _ => Ok(()),
        }
    }

    /// An output must be complete: it is readable as soon as the commit is answered.
    async fn check_output(
        &self,
        store: &dyn Store,
        by: ItemId,
        (slot, id): (&SlotName, &BufferId),
        attempt: &AttemptOutputs,
        now: Timestamp,
    ) -> OperationResult<()> {
        let what = format!("outputs.{}", slot.as_str());
        let shown = self.look(store, &what, id, now).await?;
        match (unfinished(&shown.state), id.attempted()) {
            (Some(remedy), _) => Err(not_ready(what, id, shown.state.kind(), remedy).into()),
            (None, Some(item)) if item == by => {
                self.keep(id).await?;
                match attempt.buffers.values().any(|made| made == id) {
                    true => self.expire(id, shown.meta.expires_at_ms, attempt.ttl, now).await,
                    false => Ok(()),
                }
            }
            (None, Some(_)) => self.claim(store, id, shown.meta.expires_at_ms, by).await,
            (None, None) => Ok(()),
        }
    }

    async fn look(
        &self,
        store: &dyn Store,
        what: &str,
        id: &BufferId,
        now: Timestamp,
    ) -> OperationResult<BufferStatus> {
        let shown = match self.admit_reader(store, id).await {
            Ok(()) => self.buffers.show(id.as_str(), now.0).await,
            Err(AccessError::Buffer(error)) => Err(error),
            Err(AccessError::Store(fault)) => return Err(fault.into()),
        };
        match shown {
            Ok(shown) => Ok(shown),
            Err(BufferError::NotFound { .. } | BufferError::BadId { .. }) => {
                Err(Refusal::BufferNotFound { what: what.to_owned(), id: id.to_string() }.into())
            }
            Err(error) => Err(operation_error(error)),
        }
    }

    /// Checks the buffers made for an attempt before a commit uses them. One that was never written is empty.
    pub(crate) async fn finish(
        &self,
        made: &OutputSet,
        output_ttl: Option<Millis>,
        now: Timestamp,
    ) -> OperationResult<()> {
        for (slot, id) in made {
            let what = format!("outputs.{}", slot.as_str());
            let BufferStatus { state, meta, .. } = match self.buffers.show(id.as_str(), now.0).await {
                Ok(shown) => shown,
                Err(BufferError::NotFound { .. }) => {
                    return Err(Refusal::BufferGone { what, id: id.to_string() }.into());
                }
                Err(error) => return Err(operation_error(error)),
            };
            if state == State::Empty {
                let writer = WriterId::from_bytes(entropy::bytes());
                let begun = self.buffers.begin(id.as_str(), writer, now.0).await;
                // A writer may have begun or finished just now.
                begun.map_err(|error| match error {
                    BufferError::BeingWritten { .. } => {
                        not_ready(what.clone(), id, BufferStateKind::Writing, FINISH).into()
                    }
                    error => operation_error(error),
                })?;
                self.buffers
                    .finish(id.as_str(), writer, Position::START, now.0)
                    .await
                    .map_err(operation_error)?;
            } else if let Some(remedy) = unfinished(&state) {
                return Err(not_ready(what, id, state.kind(), remedy).into());
            }
            self.keep(id).await?;
            self.expire(id, meta.expires_at_ms, output_ttl, now).await?;
        }
        Ok(())
    }

    /// Limits how long a buffer of an attempt is kept, before the commit of that attempt. If the commit is refused, or a crash
    /// comes before it, the limit does nothing: collection applies it to committed buffers only.
    async fn expire(
        &self,
        id: &BufferId,
        present: Option<u64>,
        ttl: Option<Millis>,
        now: Timestamp,
    ) -> OperationResult<()> {
        let expires_at_ms = ttl.map(|ttl| now.after(ttl).0);
        if expires_at_ms == present {
            return Ok(());
        }
        self.buffers.set_expiry(id.as_str(), expires_at_ms).await.map_err(operation_error)
    }

    /// Marks an attempt's buffer, before the commit that names it, as outliving its item.
    async fn keep(&self, id: &BufferId) -> OperationResult<()> {
        self.buffers.put_blob(&kept_key(id), bytes::Bytes::new()).await.map_err(operation_error)
    }

    /// Makes the buffers of an attempt when it begins, and at no other time: a buffer that is missing at the commit was
    /// deleted, and must not be taken for one that was never written.
    async fn make(&self, made: &OutputSet, now: Timestamp) -> OperationResult<()> {
        for id in made.values() {
            let tags = id.attempted().map(|item| ("item".to_owned(), item.to_string()));
            let new = NewBuffer { tags: BTreeMap::from_iter(tags), expires_at_ms: None };
            match self.buffers.create(id.as_str(), new, now.0).await {
                Ok(_) | Err(BufferError::Exists { .. }) => {}
                Err(error) => return Err(operation_error(error)),
            }
        }
        Ok(())
    }

    /// A buffer made for an attempt can be written during the attempt.
    pub(crate) async fn admit_writer(&self, store: &dyn Store, id: &BufferId) -> Result<(), AccessError> {
        match self.binding(store, id).await? {
            BufferBinding::Free | BufferBinding::Held => Ok(()),
            BufferBinding::Committed | BufferBinding::Kept => {
                Err(BufferError::AlreadyWritten { id: id.to_string() }.into())
            }
            BufferBinding::Cut | BufferBinding::Gone => {
                Err(BufferError::NotFound { id: id.to_string() }.into())
            }
        }
    }

    /// A buffer made for an attempt can be read during the attempt, or after it was committed.
    pub(crate) async fn admit_reader(&self, store: &dyn Store, id: &BufferId) -> Result<(), AccessError> {
        match self.binding(store, id).await? {
            BufferBinding::Free | BufferBinding::Held | BufferBinding::Committed | BufferBinding::Kept => {
                Ok(())
            }
            BufferBinding::Cut | BufferBinding::Gone => {
                Err(BufferError::NotFound { id: id.to_string() }.into())
            }
        }
    }

    pub(crate) async fn binding(
        &self,
        store: &dyn Store,
        id: &BufferId,
    ) -> Result<BufferBinding, StoreError> {
        let Some(item) = id.attempted() else { return Ok(BufferBinding::Free) };
        let found = store.get(vec![item], FieldSet::NONE).await?.pop().flatten();
        self.binding_to(store, id, found.as_ref().map(|stored| &stored.item)).await
    }

    /// `item`: the item of the attempt, if it still exists.
    pub(crate) async fn binding_to(
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
            Err(error) => Err(StoreError::ObjectStorage { cause: error.to_string() }),
        }
    }
}

/// The outputs that the server made for the attempt under this lease, and how long the queue keeps them. None, if the lease is not
/// the present one: a commit that is repeated or refused must not change buffers that an earlier one kept.
async fn made_for_call(
    store: &dyn Store,
    id: ItemId,
    token: LeaseToken,
    outputs: &OutputSet,
) -> Result<AttemptOutputs, StoreError> {
    if !outputs.values().any(|output| output.attempted() == Some(id)) {
        return Ok(AttemptOutputs::default());
    }
    let Some(stored) = store.get(vec![id], FieldSet::NONE).await?.pop().flatten() else {
        return Ok(AttemptOutputs::default());
    };
    let lease = stored.item.head.lease().filter(|lease| lease.token == token);
    let Some(buffers) = lease.and_then(|lease| lease.buffers.as_deref()) else {
        return Ok(AttemptOutputs::default());
    };
    let ttl = store.queue(stored.queue).await?.and_then(|view| view.queue.policy.output_ttl);
    Ok(AttemptOutputs { buffers: buffers.clone(), ttl })
}

/// The buffers that the server made for an attempt, and how long they are kept after its commit.
#[derive(Debug, Default)]
struct AttemptOutputs {
    buffers: OutputSet,
    ttl: Option<Millis>,
}

/// Why a buffer cannot be written or read now.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(transparent)]
    Buffer(#[from] BufferError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a buffer belongs to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BufferBinding {
    /// A client created it, not an attempt.
    Free,
    /// Its attempt is under way.
    Held,
    /// It is the item's output.
    Committed,
    /// The buffer outlives the attempt: its item committed it and was removed, or another item committed it.
    Kept,
    /// Its attempt ended without committing it.
    Cut,
    /// The item was removed without committing it.
    Gone,
}

/// The buffers made for the present attempt at an item.
fn made_for(item: &Item) -> Option<&OutputSet> {
    item.head.lease().and_then(|lease| lease.buffers.as_deref())
}

const FINISH: &str = "finish writing it, then commit";

/// The remedy if a buffer cannot be committed yet.
fn unfinished(state: &State) -> Option<&'static str> {
    match state {
        State::Complete { .. } => None,
        State::Empty => Some("write it, then commit"),
        State::Writing { .. } => Some(FINISH),
        State::Failed { .. } => Some("write another buffer and name it, or fail the item"),
    }
}

fn not_ready(what: String, id: &BufferId, state: BufferStateKind, remedy: &'static str) -> Refusal {
    Refusal::BufferNotReady { what, id: id.to_string(), state, remedy }
}

fn should_offload(field: Option<&bytes::Bytes>, threshold: usize) -> bool {
    // The store refuses fields above the limit.
    field.is_some_and(|bytes| {
        bytes.len() <= limits::FIELD_BYTES_MAX && (bytes.len() > threshold || Reference::is_marked(bytes))
    })
}

pub(crate) fn has_references(fields: &Fields) -> bool {
    Field::ALL.iter().any(|&field| fields.get(field).is_some_and(|bytes| Reference::is_marked(bytes)))
}

/// The size of an item's offloaded fields.
pub(crate) fn kept_bytes(fields: &Fields) -> u64 {
    let references = Field::ALL.iter().filter_map(|&field| Reference::read(fields.get(field)?));
    references.map(|reference| reference.bytes).sum()
}

/// The key of the mark that an attempt's buffer outlives its item.
pub(crate) fn kept_key(id: &BufferId) -> String {
    format!("{KEPT}{id}")
}

pub(crate) const KEPT: &str = "kept.";

/// The key of an offloaded field. It contains the item's id, so that collection can check that item.
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

pub(crate) fn operation_error(error: BufferError) -> OperationError {
    let detail = error.to_string();
    match error {
        BufferError::Full { .. } => Refusal::DiskFull { detail }.into(),
        BufferError::Damaged { .. } | BufferError::BlobNotFound { .. } => {
            StoreError::PayloadDamaged { detail }.into()
        }
        _ => StoreError::ObjectStorage { cause: detail }.into(),
    }
}
