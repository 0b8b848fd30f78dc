//! The queue: items of one queue of the store.

use super::{millis, refused, unavailable};
use crate::ports::{Again, Answer, DeadLetter, KEY_KEPT, Lease, PortError, Pulled, Push, Queue, cut};
use std::time::Duration;
use towline_broker::store::{Cursor, Filter, Operation, Page, Reply, StoreError};
use towline_broker::{Broker, ReceiveRequest, entropy};
use towline_domain::change::Answer as Answered;
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, Body, Counts, Field, FieldEdits, FieldSet, Fields, HeadFilter, Item, ItemId, LeaseCall,
    LeaseToken, Millis, Outcome, Overrides, Policy, QueueName, Refusal, Schema, StateName, Submission,
    limits,
};

/// Nobody waits for longer in one call.
const WAIT: Duration = Duration::from_secs(300);
/// How long a dead letter can be looked at, and redriven.
const LETTERS_KEPT: Millis = Millis::days(7);

pub(super) struct BrokerQueue {
    broker: Broker,
    name: QueueName,
}

impl BrokerQueue {
    pub(super) fn new(broker: Broker, name: QueueName) -> BrokerQueue {
        BrokerQueue { broker, name }
    }

    /// One submit each, to the queue, which is made if it is not there.
    async fn submit(&self, submits: Vec<Operation>) -> Result<Vec<bool>, PortError> {
        let mut answers = self.broker.update(submits.clone()).await.map_err(unavailable)?;
        if answers.iter().all(|answer| matches!(answer, Err(Refusal::QueueNotFound { .. }))) {
            self.make().await?;
            answers = self.broker.update(submits).await.map_err(unavailable)?;
        }
        answers.into_iter().map(is_new).collect()
    }

    fn submission(&self, push: Push) -> Operation {
        let overrides = Overrides {
            max_retries: Some(limits::RETRIES_MAX),
            // A key is known for as long as its item is.
            completed_ttl: Some(push.dedupe_key.as_ref().map_or(Millis::ZERO, |_| millis(KEY_KEPT))),
            failed_ttl: Some(push.dedupe_key.as_ref().map_or(LETTERS_KEPT, |_| millis(KEY_KEPT))),
            ..Overrides::default()
        };
        let submission = Submission {
            // Here the lower number goes first.
            priority: i16::try_from(push.priority.saturating_neg()).unwrap_or(if push.priority > 0 {
                i16::MIN
            } else {
                i16::MAX
            }),
            ready: When::After(millis(push.delay)),
            overrides,
            body: Body { idempotency_key: push.dedupe_key, ..Body::default() },
            fields: Fields { blob: Some(push.body.into()), ..Fields::default() },
            ..Submission::default()
        };
        Operation::Submit { queue: self.name.clone(), submission: Box::new(submission) }
    }

    async fn update(&self, operation: Operation) -> Result<Result<Reply, Refusal>, PortError> {
        let answered = self.broker.update(vec![operation]).await.map_err(unavailable)?.pop();
        answered.ok_or_else(|| unavailable(StoreError::Closed))
    }

    async fn make(&self) -> Result<(), PortError> {
        let create = Operation::CreateQueue {
            queue: self.name.clone(),
            schema: Box::new(Schema::default()),
            policy: Box::new(Policy::default()),
        };
        match self.update(create).await? {
            // Somebody else made it meanwhile.
            Ok(_) | Err(Refusal::QueueExists { .. }) => Ok(()),
            Err(refusal) => Err(refused(&refusal)),
        }
    }

    async fn receive(
        &self,
        max: usize,
        visibility: Duration,
        wait: Duration,
    ) -> Result<Vec<Pulled>, PortError> {
        let request = ReceiveRequest {
            queue: self.name.clone(),
            max: u32::try_from(max).unwrap_or(u32::MAX).clamp(1, limits::RECEIVE_MAX),
            wait,
            visibility: Some(visible(visibility)),
            fields: FieldSet::NONE.with(Field::Blob),
            make_buffers: false,
        };
        let mut received = self.broker.receive(request.clone()).await.map_err(unavailable)?;
        if matches!(received, Err(Refusal::QueueNotFound { .. })) {
            self.make().await?;
            received = self.broker.receive(request).await.map_err(unavailable)?;
        }
        let received = received.map_err(|refusal| refused(&refusal))?;
        Ok(received.items.into_iter().filter_map(pulled).collect())
    }

    async fn counts(&self) -> Result<Counts, PortError> {
        let view = self.broker.store().queue(self.name.clone()).await.map_err(unavailable)?;
        Ok(view.map(|view| view.counts).unwrap_or_default())
    }

    async fn failed(&self, after: Option<Cursor>, limit: usize, fields: FieldSet) -> Result<Page, PortError> {
        let filter = Filter {
            queue: Some(self.name.clone()),
            head: HeadFilter { state: Some(StateName::Failed), ..HeadFilter::default() },
            ..Filter::default()
        };
        let page = self.broker.store().list(filter, after, limit.min(limits::PAGE_MAX), fields);
        page.await.map_err(unavailable)
    }

    async fn settle(&self, lease: &Lease, verb: Verb, body: Option<String>) -> Result<(), PortError> {
        let (id, token) = read(lease)?;
        let edits = match body {
            Some(body) => FieldEdits::default().set(Field::Blob, body.into()),
            None => FieldEdits::default(),
        };
        let call = LeaseCall { token, verb, adjust: Adjust { edits, ..Adjust::default() } };
        let answer = self.update(Operation::Lease { id, call: Box::new(call) }).await?;
        answer.map(drop).map_err(|refusal| refused(&refusal))
    }
}

/// What came of a submit.
fn is_new(answer: Result<Reply, Refusal>) -> Result<bool, PortError> {
    match answer {
        Ok(Reply::Answer(Answered::Submitted { created, .. })) => Ok(created),
        // Whatever it was pushed with first is what counts.
        Err(Refusal::KeyConflict { .. }) => Ok(false),
        Err(refusal) => Err(refused(&refusal)),
        Ok(_) => Err(unavailable(StoreError::Closed)),
    }
}

fn waiting(counts: &Counts) -> u64 {
    counts.pending + counts.scheduled
}

fn visible(visibility: Duration) -> Millis {
    millis(visibility).clamp(limits::VISIBILITY_MIN, limits::VISIBILITY_MAX)
}

fn body(fields: Fields) -> String {
    fields.blob.map(|blob| String::from_utf8_lossy(&blob).into_owned()).unwrap_or_default()
}

fn letter(item: Item) -> DeadLetter {
    let error = item.errors.iter().last().map(|error| error.message.clone());
    DeadLetter { body: body(item.fields), error: error.unwrap_or_default() }
}

fn pulled(item: Item) -> Option<Pulled> {
    let token = item.head.lease()?.token;
    Some(Pulled {
        body: body(item.fields),
        lease: Lease(format!("{}.{token}", item.head.id)),
        attempt: item.head.retries + 1,
        delivery: item.head.deliveries,
    })
}

/// What cannot be a lease is nobody's.
fn read(lease: &Lease) -> Result<(ItemId, LeaseToken), PortError> {
    let (id, token) = lease.0.split_once('.').ok_or(PortError::LeaseLost)?;
    Ok((id.parse().map_err(|_| PortError::LeaseLost)?, token.parse().map_err(|_| PortError::LeaseLost)?))
}

impl Queue for BrokerQueue {
    fn push(&self, push: Push) -> Answer<'_, bool> {
        Box::pin(async move {
            let new = self.submit(vec![self.submission(push)]).await?.pop();
            new.ok_or_else(|| unavailable(StoreError::Closed))
        })
    }

    fn push_all(&self, pushes: Vec<Push>) -> Answer<'_, Vec<bool>> {
        let submits = pushes.into_iter().map(|push| self.submission(push)).collect();
        Box::pin(self.submit(submits))
    }

    fn pop(&self, max: usize, visibility: Duration) -> Answer<'_, Vec<Pulled>> {
        Box::pin(self.receive(max, visibility, Duration::ZERO))
    }

    fn wait(&self, max: usize, visibility: Duration) -> Answer<'_, Vec<Pulled>> {
        Box::pin(async move {
            loop {
                let pulled = self.receive(max, visibility, WAIT).await?;
                if !pulled.is_empty() {
                    return Ok(pulled);
                }
            }
        })
    }

    fn heartbeat<'a>(&'a self, lease: &'a Lease, visibility: Duration) -> Answer<'a, ()> {
        Box::pin(self.settle(lease, Verb::Heartbeat { visibility: Some(visible(visibility)) }, None))
    }

    fn ack<'a>(&'a self, lease: &'a Lease) -> Answer<'a, ()> {
        Box::pin(self.settle(lease, Verb::Commit(Outcome::default()), None))
    }

    fn put_back<'a>(&'a self, lease: &'a Lease, again: Again) -> Answer<'a, ()> {
        let until = When::After(millis(again.delay));
        Box::pin(self.settle(lease, Verb::Defer { until }, again.body))
    }

    fn retry<'a>(&'a self, lease: &'a Lease, again: Again, error: &'a str) -> Answer<'a, ()> {
        let error = cut(error, limits::REASON_BYTES_MAX).to_owned();
        let verb = Verb::Retry { error, delay: Some(millis(again.delay)), seed: entropy::number() };
        Box::pin(self.settle(lease, verb, again.body))
    }

    fn dead_letter<'a>(&'a self, lease: &'a Lease, body: Option<String>, error: &'a str) -> Answer<'a, ()> {
        let reason = cut(error, limits::REASON_BYTES_MAX).to_owned();
        Box::pin(self.settle(lease, Verb::Fail { reason }, body))
    }

    fn redrive(&self, max: usize) -> Answer<'_, usize> {
        Box::pin(async move {
            let (mut count, mut after) = (0, None);
            while count < max {
                let page = self.failed(after, max - count, FieldSet::NONE).await?;
                let batch: Vec<Operation> =
                    page.items.iter().map(|stored| Operation::Redrive { id: stored.item.head.id }).collect();
                let answers = self.broker.update(batch).await.map_err(unavailable)?;
                count += answers.iter().filter(|answer| answer.is_ok()).count();
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            Ok(count)
        })
    }

    fn letters(&self, max: usize) -> Answer<'_, Vec<DeadLetter>> {
        Box::pin(async move {
            let (mut letters, mut after) = (Vec::new(), None);
            while letters.len() < max {
                let page = self.failed(after, max - letters.len(), FieldSet::NONE.with(Field::Blob)).await?;
                letters.extend(page.items.into_iter().map(|stored| letter(stored.item)));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            Ok(letters)
        })
    }

    fn depth(&self) -> Answer<'_, Option<u64>> {
        Box::pin(async move { Ok(Some(waiting(&self.counts().await?))) })
    }

    fn size(&self) -> Answer<'_, Option<u64>> {
        Box::pin(async move {
            let counts = self.counts().await?;
            Ok(Some(waiting(&counts) + counts.processing + counts.paused))
        })
    }
}
