//! The queue: one queue of the store.

use super::{millis, port_error, unavailable};
use crate::backends::parse_lease;
use crate::ports::{
    DeadLetter, Delivery, IDEMPOTENCY_KEY_TTL, Lease, PortError, PortFuture, Queue, Redelivery,
    SubmitRequest, truncated,
};
use std::time::Duration;
use towline_broker::store::{Answered, Cursor, Filter, Operation, OperationError, Page, Reply, StoreError};
use towline_broker::{Broker, ReceiveRequest, entropy};
use towline_domain::change::Answer;
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, Backoff, Body, Counts, Field, FieldEdits, FieldSet, Fields, HeadFilter, Item, ItemId, LeaseCall,
    LeaseToken, Millis, Outcome, Overrides, Policy, QueueName, Refusal, Schema, StateName, Submission,
    limits,
};

/// The wait of one receive call. A long poll repeats it.
const RECEIVE_WAIT: Duration = Duration::from_secs(300);
/// How long a dead letter is kept.
const DEAD_LETTER_RETENTION: Millis = Millis::days(7);

pub(super) struct BrokerQueue {
    broker: Broker,
    name: QueueName,
}

impl BrokerQueue {
    pub(super) fn new(broker: Broker, name: QueueName) -> BrokerQueue {
        BrokerQueue { broker, name }
    }

    /// Submits items. If the queue does not exist, creates it and submits again.
    async fn submit_items(&self, submits: Vec<Operation>) -> Result<Vec<bool>, PortError> {
        let mut answers = self.broker.update(submits.clone()).await.map_err(unavailable)?;
        if answers
            .iter()
            .all(|answer| matches!(answer, Err(OperationError::Refused(Refusal::QueueNotFound { .. }))))
        {
            self.create_queue().await?;
            answers = self.broker.update(submits).await.map_err(unavailable)?;
        }
        answers.into_iter().map(is_new).collect()
    }

    fn submission(&self, request: SubmitRequest) -> Operation {
        // The store remembers a key for as long as its item exists.
        let ttl = |unkeyed| request.idempotency_key.as_ref().map_or(unkeyed, |_| millis(IDEMPOTENCY_KEY_TTL));
        let overrides = Overrides {
            max_retries: Some(limits::RETRIES_MAX),
            completed_ttl: Some(ttl(Millis::ZERO)),
            failed_ttl: Some(ttl(DEAD_LETTER_RETENTION)),
            ..Overrides::default()
        };
        let submission = Submission {
            priority: request.priority,
            ready: When::After(millis(request.delay)),
            overrides,
            body: Body { idempotency_key: request.idempotency_key, ..Body::default() },
            fields: Fields { blob: Some(request.payload.into()), ..Fields::default() },
            ..Submission::default()
        };
        Operation::Submit { queue: self.name.clone(), submission: Box::new(submission) }
    }

    async fn update(&self, operation: Operation) -> Answered {
        self.broker.update(vec![operation]).await?.pop().ok_or(StoreError::Closed)?
    }

    async fn create_queue(&self) -> Result<(), PortError> {
        let create = Operation::CreateQueue {
            queue: self.name.clone(),
            schema: Box::new(Schema::default()),
            // The engine chooses the delay of a retry.
            policy: Box::new(Policy { backoff: Backoff::NONE, ..Policy::default() }),
        };
        match self.update(create).await {
            // Another process created it meanwhile.
            Ok(_) | Err(OperationError::Refused(Refusal::QueueExists { .. })) => Ok(()),
            Err(error) => Err(port_error(&error)),
        }
    }

    async fn receive_items(
        &self,
        max: usize,
        visibility: Duration,
        wait: Duration,
    ) -> Result<Vec<Delivery>, PortError> {
        let request = ReceiveRequest {
            queue: self.name.clone(),
            max: u32::try_from(max).unwrap_or(u32::MAX).clamp(1, limits::RECEIVE_MAX),
            wait,
            visibility: Some(visibility_timeout(visibility)),
            fields: FieldSet::NONE.with(Field::Blob),
            make_buffers: false,
        };
        let mut received = self.broker.receive(request.clone()).await;
        if matches!(received, Err(OperationError::Refused(Refusal::QueueNotFound { .. }))) {
            self.create_queue().await?;
            received = self.broker.receive(request).await;
        }
        let received = received.map_err(|error| port_error(&error))?;
        Ok(received.items.into_iter().filter_map(delivery).collect())
    }

    async fn counts(&self) -> Result<Counts, PortError> {
        let view = self.broker.store().queue(self.name.clone()).await.map_err(unavailable)?;
        Ok(view.map(|view| view.counts).unwrap_or_default())
    }

    async fn failed_items(
        &self,
        after: Option<Cursor>,
        limit: usize,
        fields: FieldSet,
    ) -> Result<Page, PortError> {
        let filter = Filter {
            queue: Some(self.name.clone()),
            head: HeadFilter { state: Some(StateName::Failed), ..HeadFilter::default() },
            ..Filter::default()
        };
        let page = self.broker.store().list(filter, after, limit.min(limits::PAGE_MAX), fields);
        page.await.map_err(unavailable)
    }

    async fn settle(&self, lease: &Lease, verb: Verb, payload: Option<String>) -> Result<(), PortError> {
        let (id, token) = parse_lease::<ItemId, LeaseToken>(lease)?;
        let edits = match payload {
            Some(payload) => FieldEdits::default().set(Field::Blob, payload.into()),
            None => FieldEdits::default(),
        };
        let call = LeaseCall { token, verb, adjust: Adjust { edits, ..Adjust::default() } };
        let answer = self.update(Operation::Lease { id, call: Box::new(call) }).await;
        answer.map(drop).map_err(|error| port_error(&error))
    }
}

/// Whether a submit created an item.
fn is_new(answer: Answered) -> Result<bool, PortError> {
    match answer {
        Ok(Reply::Answer(Answer::Submitted { created, .. })) => Ok(created),
        // The item was submitted before with another payload. The first submit counts.
        Err(OperationError::Refused(Refusal::KeyConflict { .. })) => Ok(false),
        Err(error) => Err(port_error(&error)),
        Ok(_) => Err(unavailable(StoreError::Closed)),
    }
}

fn visibility_timeout(visibility: Duration) -> Millis {
    millis(visibility).clamp(limits::VISIBILITY_MIN, limits::VISIBILITY_MAX)
}

fn payload(fields: Fields) -> String {
    fields.blob.map(|blob| String::from_utf8_lossy(&blob).into_owned()).unwrap_or_default()
}

fn dead_letter(item: Item) -> DeadLetter {
    let error = item.errors.iter().last().map(|error| error.message.clone());
    DeadLetter { payload: payload(item.fields), error: error.unwrap_or_default() }
}

fn delivery(item: Item) -> Option<Delivery> {
    let token = item.head.lease()?.token;
    Some(Delivery {
        payload: payload(item.fields),
        lease: Lease(format!("{}.{token}", item.head.id)),
        attempt: item.head.retries + 1,
        deliveries: item.head.deliveries,
    })
}

impl Queue for BrokerQueue {
    fn submit(&self, request: SubmitRequest) -> PortFuture<'_, bool> {
        Box::pin(async move {
            let new = self.submit_items(vec![self.submission(request)]).await?.pop();
            new.ok_or_else(|| unavailable(StoreError::Closed))
        })
    }

    fn submit_all(&self, requests: Vec<SubmitRequest>) -> PortFuture<'_, Vec<bool>> {
        let submits = requests.into_iter().map(|request| self.submission(request)).collect();
        Box::pin(self.submit_items(submits))
    }

    fn receive(&self, max: usize, visibility: Duration) -> PortFuture<'_, Vec<Delivery>> {
        Box::pin(self.receive_items(max, visibility, Duration::ZERO))
    }

    fn long_poll(&self, max: usize, visibility: Duration) -> PortFuture<'_, Vec<Delivery>> {
        Box::pin(async move {
            loop {
                let deliveries = self.receive_items(max, visibility, RECEIVE_WAIT).await?;
                if !deliveries.is_empty() {
                    return Ok(deliveries);
                }
            }
        })
    }

    fn heartbeat<'a>(&'a self, lease: &'a Lease, visibility: Duration) -> PortFuture<'a, ()> {
        Box::pin(self.settle(
            lease,
            Verb::Heartbeat { visibility: Some(visibility_timeout(visibility)) },
            None,
        ))
    }

    fn commit<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, ()> {
        Box::pin(self.settle(lease, Verb::Commit(Outcome::default()), None))
    }

    fn defer<'a>(&'a self, lease: &'a Lease, redelivery: Redelivery) -> PortFuture<'a, ()> {
        let until = When::After(millis(redelivery.delay));
        Box::pin(self.settle(lease, Verb::Defer { until }, redelivery.payload))
    }

    fn retry<'a>(&'a self, lease: &'a Lease, redelivery: Redelivery, error: &'a str) -> PortFuture<'a, ()> {
        let error = truncated(error, limits::REASON_BYTES_MAX).to_owned();
        let verb = Verb::Retry { error, delay: Some(millis(redelivery.delay)), seed: entropy::number() };
        Box::pin(self.settle(lease, verb, redelivery.payload))
    }

    fn fail<'a>(&'a self, lease: &'a Lease, payload: Option<String>, error: &'a str) -> PortFuture<'a, ()> {
        let reason = truncated(error, limits::REASON_BYTES_MAX).to_owned();
        Box::pin(self.settle(lease, Verb::Fail { reason }, payload))
    }

    fn redrive(&self, max: usize) -> PortFuture<'_, usize> {
        Box::pin(async move {
            let (mut count, mut after) = (0, None);
            while count < max {
                let page = self.failed_items(after, max - count, FieldSet::NONE).await?;
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

    fn dead_letters(&self, max: usize) -> PortFuture<'_, Vec<DeadLetter>> {
        Box::pin(async move {
            let (mut dead_letters, mut after) = (Vec::new(), None);
            while dead_letters.len() < max {
                let page = self
                    .failed_items(after, max - dead_letters.len(), FieldSet::NONE.with(Field::Blob))
                    .await?;
                dead_letters.extend(page.items.into_iter().map(|stored| dead_letter(stored.item)));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            Ok(dead_letters)
        })
    }

    fn depth(&self) -> PortFuture<'_, Option<u64>> {
        Box::pin(async move { self.counts().await.map(|counts| Some(counts.pending + counts.scheduled)) })
    }

    fn size(&self) -> PortFuture<'_, Option<u64>> {
        Box::pin(async move { self.counts().await.map(|counts| Some(counts.unfinished())) })
    }
}
