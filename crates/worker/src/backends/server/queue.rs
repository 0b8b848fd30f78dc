//! The queue: one queue of the server.

use super::{port_error, port_error_of_code, span};
use crate::backends::parse_lease;
use crate::ports::{
    DeadLetter, Delivery, IDEMPOTENCY_KEY_TTL, Lease, PortError, PortFuture, Queue, Redelivery,
    SubmitRequest, truncated,
};
use std::time::Duration;
use tokio::sync::oneshot;
use towline_api::client::ItemQuery;
use towline_api::payload::Payload;
use towline_api::{
    Action, BackoffBody, Client, ClientError, Code, CountsShown, FieldsBody, ItemFilter, ItemId, ItemShown,
    LeaseToken, NewItem, PolicyBody, PutQueue, ReceiveRequest, ReceivedItem, Submitted, Text, VerbName,
};
use towline_domain::limits;

/// The wait of one receive call. A long poll repeats it.
const RECEIVE_WAIT: Duration = Duration::from_secs(60);
/// How long a dead letter is kept.
const DEAD_LETTER_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

pub(super) struct ServerQueue {
    client: Client,
    name: String,
}

impl ServerQueue {
    pub(super) fn new(client: Client, name: String) -> ServerQueue {
        ServerQueue { client, name }
    }

    /// Makes a call. If the queue does not exist, creates it and repeats the call.
    async fn call<T, F>(&self, call: impl Fn() -> F) -> Result<T, PortError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut result = call().await;
        if result.as_ref().is_err_and(|error| error.code() == Some(Code::QueueNotFound)) {
            self.create_queue().await?;
            result = call().await;
        }
        result.map_err(|error| port_error(&error))
    }

    async fn create_queue(&self) -> Result<(), PortError> {
        // The engine chooses the delay of a retry.
        let backoff = Some(BackoffBody::Preset("none".to_owned()));
        let policy = PolicyBody { backoff, ..PolicyBody::default() };
        match self.client.put_queue(&self.name, &PutQueue { policy, ..PutQueue::default() }).await {
            Ok(_) => Ok(()),
            // Another process created it meanwhile.
            Err(error) if error.code() == Some(Code::QueueExists) => Ok(()),
            Err(error) => Err(port_error(&error)),
        }
    }

    async fn submit_items(&self, items: Vec<NewItem>) -> Result<Vec<bool>, PortError> {
        let submitted = self.call(|| self.client.submit(&self.name, items.clone())).await?;
        submitted.into_iter().map(is_new).collect()
    }

    async fn counts(&self) -> Result<CountsShown, PortError> {
        self.call(|| self.client.counts(&self.name)).await
    }

    async fn receive_items(
        &self,
        max: usize,
        visibility: Duration,
        wait: Duration,
    ) -> Result<Vec<ReceivedItem>, PortError> {
        let request = ReceiveRequest {
            max: Some(i64::try_from(max).unwrap_or(i64::MAX).clamp(1, i64::from(limits::RECEIVE_MAX))),
            wait: (!wait.is_zero()).then(|| span(wait)),
            visibility_timeout: Some(visibility_timeout(visibility)),
            fields: Some(vec!["payload".to_owned()]),
            ..ReceiveRequest::default()
        };
        Ok(self.call(|| self.client.receive(&self.name, &request)).await?.items)
    }

    async fn settle(
        &self,
        lease: &Lease,
        change: impl FnOnce(&mut Action),
        verb: VerbName,
    ) -> Result<(), PortError> {
        let (id, token) = parse_lease::<ItemId, LeaseToken>(lease)?;
        let mut action = Action::new(verb, id, token);
        change(&mut action);
        self.client.act(action).await.map(drop).map_err(|error| port_error(&error))
    }

    async fn failed_items(
        &self,
        limit: usize,
        cursor: Option<String>,
        with_payload: bool,
    ) -> Result<(Vec<ItemShown>, Option<String>), PortError> {
        let query = ItemQuery {
            filter: ItemFilter { state: Some("failed".to_owned()), ..ItemFilter::default() },
            limit: Some(limit.min(1000)),
            cursor,
            fields: with_payload.then(|| "payload".to_owned()),
            ..ItemQuery::default()
        };
        let page = self.call(|| self.client.items(Some(&self.name), &query)).await?;
        Ok((page.items, page.next))
    }
}

fn new_item(request: SubmitRequest) -> NewItem {
    // The server remembers a key for as long as its item exists.
    let ttl = |unkeyed| request.idempotency_key.as_ref().map_or(unkeyed, |_| IDEMPOTENCY_KEY_TTL);
    let (completed_ttl, failed_ttl) = (ttl(Duration::ZERO), ttl(DEAD_LETTER_RETENTION));
    NewItem {
        priority: Some(request.priority.into()),
        delay: (!request.delay.is_zero()).then(|| span(request.delay)),
        max_retries: Some(limits::RETRIES_MAX.into()),
        completed_ttl: Some(span(completed_ttl)),
        failed_ttl: Some(span(failed_ttl)),
        idempotency_key: request.idempotency_key,
        payload: Some(Payload::from(request.payload.into_bytes())),
        ..NewItem::default()
    }
}

/// Whether a submit created an item.
fn is_new(submitted: Submitted) -> Result<bool, PortError> {
    match submitted.error {
        None => Ok(submitted.created.unwrap_or_default()),
        Some(error) => match Code::parse(&error.code) {
            // The item was submitted before with another payload. The first submit counts.
            Some(Code::KeyConflict) => Ok(false),
            Some(code) => Err(port_error_of_code(code, &error.message)),
            None => Err(PortError::Refused(error.message)),
        },
    }
}

fn depth(counts: &CountsShown) -> u64 {
    counts.pending + counts.scheduled
}

fn visibility_timeout(visibility: Duration) -> towline_api::Span {
    let millis = |millis: towline_domain::Millis| Duration::from_millis(millis.0);
    span(visibility.clamp(millis(limits::VISIBILITY_MIN), millis(limits::VISIBILITY_MAX)))
}

fn payload_text(payload: Option<Payload>) -> String {
    let bytes = payload.and_then(|payload| payload.into_domain("payload").ok());
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn delivery(item: ReceivedItem) -> Delivery {
    Delivery {
        payload: payload_text(item.payload),
        lease: Lease(format!("{}.{}", item.id, item.lease)),
        attempt: item.attempt,
        deliveries: item.deliveries,
    }
}

fn dead_letter(item: ItemShown) -> DeadLetter {
    let error = item.errors.last().map(|error| error.message.clone());
    DeadLetter { payload: payload_text(item.payload), error: error.unwrap_or_default() }
}

fn set_payload(action: &mut Action, payload: Option<String>) {
    action.set = payload.map(|payload| {
        Box::new(FieldsBody { payload: Some(Payload::from(payload.into_bytes())), ..FieldsBody::default() })
    });
}

impl Queue for ServerQueue {
    fn submit(&self, request: SubmitRequest) -> PortFuture<'_, bool> {
        Box::pin(async move {
            let new = self.submit_items(vec![new_item(request)]).await?.pop();
            new.ok_or_else(|| PortError::Refused("the server returned no result".to_owned()))
        })
    }

    fn submit_all(&self, requests: Vec<SubmitRequest>) -> PortFuture<'_, Vec<bool>> {
        Box::pin(self.submit_items(requests.into_iter().map(new_item).collect()))
    }

    fn receive(&self, max: usize, visibility: Duration) -> PortFuture<'_, Vec<Delivery>> {
        Box::pin(async move {
            let items = self.receive_items(max, visibility, Duration::ZERO).await?;
            Ok(items.into_iter().map(delivery).collect())
        })
    }

    fn long_poll(&self, max: usize, visibility: Duration) -> PortFuture<'_, Vec<Delivery>> {
        Box::pin(async move {
            loop {
                // In its own task: if this future is dropped, the task still gives back the items that it received.
                let (sender, receiver) = oneshot::channel();
                let queue = ServerQueue { client: self.client.clone(), name: self.name.clone() };
                tokio::spawn(async move {
                    let mut sender: oneshot::Sender<Result<ReceivedItems, PortError>> = sender;
                    let received = tokio::select! {
                        biased;
                        received = queue.receive_items(max, visibility, RECEIVE_WAIT) => received,
                        // Dropping the request tells the server that the receiver is gone.
                        () = sender.closed() => return,
                    };
                    drop(sender.send(received.map(|items| ReceivedItems { queue, items })));
                });
                // Without a result the task has panicked. The engine polls again.
                let Ok(received) = receiver.await else { return Ok(Vec::new()) };
                let items = received?.take();
                if !items.is_empty() {
                    return Ok(items.into_iter().map(delivery).collect());
                }
            }
        })
    }

    fn heartbeat<'a>(&'a self, lease: &'a Lease, visibility: Duration) -> PortFuture<'a, ()> {
        let extend =
            move |action: &mut Action| action.visibility_timeout = Some(visibility_timeout(visibility));
        Box::pin(self.settle(lease, extend, VerbName::Heartbeat))
    }

    fn commit<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, ()> {
        Box::pin(self.settle(lease, |_| {}, VerbName::Commit))
    }

    fn defer<'a>(&'a self, lease: &'a Lease, redelivery: Redelivery) -> PortFuture<'a, ()> {
        let defer = move |action: &mut Action| {
            action.delay = Some(span(redelivery.delay));
            set_payload(action, redelivery.payload);
        };
        Box::pin(self.settle(lease, defer, VerbName::Defer))
    }

    fn retry<'a>(&'a self, lease: &'a Lease, redelivery: Redelivery, error: &'a str) -> PortFuture<'a, ()> {
        let retry = move |action: &mut Action| {
            action.reason = Some(truncated(error, limits::REASON_BYTES_MAX).to_owned());
            action.delay = Some(span(redelivery.delay));
            set_payload(action, redelivery.payload);
        };
        Box::pin(self.settle(lease, retry, VerbName::Retry))
    }

    fn fail<'a>(&'a self, lease: &'a Lease, payload: Option<String>, error: &'a str) -> PortFuture<'a, ()> {
        let fail = move |action: &mut Action| {
            action.reason = Some(truncated(error, limits::REASON_BYTES_MAX).to_owned());
            set_payload(action, payload);
        };
        Box::pin(self.settle(lease, fail, VerbName::Fail))
    }

    fn redrive(&self, max: usize) -> PortFuture<'_, usize> {
        Box::pin(async move {
            let (mut count, mut cursor) = (0, None);
            while count < max {
                let (items, next) = self.failed_items(max - count, cursor, false).await?;
                for item in items {
                    let Ok(id) = item.id.into_domain("id") else { continue };
                    match self.client.redrive(id).await {
                        Ok(_) => count += 1,
                        // Another process redrove it first.
                        Err(error) if port_error(&error) == PortError::LeaseLost => {}
                        Err(error) => return Err(port_error(&error)),
                    }
                }
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            Ok(count)
        })
    }

    fn dead_letters(&self, max: usize) -> PortFuture<'_, Vec<DeadLetter>> {
        Box::pin(async move {
            let (mut dead_letters, mut cursor) = (Vec::new(), None);
            while dead_letters.len() < max {
                let (items, next) = self.failed_items(max - dead_letters.len(), cursor, true).await?;
                dead_letters.extend(items.into_iter().map(dead_letter));
                cursor = next;
                if cursor.is_none() {
                    break;
                }
            }
            Ok(dead_letters)
        })
    }

    fn depth(&self) -> PortFuture<'_, Option<u64>> {
        Box::pin(async move { Ok(Some(depth(&self.counts().await?))) })
    }

    fn size(&self) -> PortFuture<'_, Option<u64>> {
        Box::pin(async move {
            let counts = self.counts().await?;
            Ok(Some(depth(&counts) + counts.processing + counts.paused))
        })
    }
}

/// Items on their way to a receiver. If the receiver is gone, they are deferred, which counts no attempt.
struct ReceivedItems {
    queue: ServerQueue,
    items: Vec<ReceivedItem>,
}

impl ReceivedItems {
    fn take(mut self) -> Vec<ReceivedItem> {
        std::mem::take(&mut self.items)
    }
}

impl Drop for ReceivedItems {
    fn drop(&mut self) {
        let defer = |item: &ReceivedItem| Action {
            verb: Some(Text::from(VerbName::Defer)),
            id: Some(item.id.clone()),
            lease: Some(item.lease.clone()),
            ..Action::default()
        };
        let actions: Vec<Action> = self.items.iter().map(defer).collect();
        // Without a runtime, or if this call fails, the items are delivered again when their leases lapse.
        if !actions.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let client = self.queue.client.clone();
            runtime.spawn(async move { client.settle(actions).await.ok() });
        }
    }
}
