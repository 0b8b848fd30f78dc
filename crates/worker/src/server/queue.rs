//! The queue: items of one queue of the server.

use super::{failed, refused, span};
use crate::ports::{Again, Answer, DeadLetter, KEY_KEPT, Lease, PortError, Pulled, Push, Queue, cut};
use std::time::Duration;
use tokio::sync::oneshot;
use towline_api::client::ItemQuery;
use towline_api::payload::Payload;
use towline_api::{
    Action, Client, ClientError, Code, CountsShown, FieldsBody, ItemFilter, ItemId, ItemShown, LeaseToken,
    NewItem, PutQueue, ReceiveRequest, ReceivedItem, Submitted, Text, VerbName,
};
use towline_domain::limits;

/// Nobody waits for longer in one call.
const WAIT: Duration = Duration::from_secs(60);
/// How long a dead letter can be looked at, and redriven.
const LETTERS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

pub(super) struct ServerQueue {
    client: Client,
    name: String,
}

impl ServerQueue {
    pub(super) fn new(client: Client, name: String) -> ServerQueue {
        ServerQueue { client, name }
    }

    /// Makes a call, and the queue before it if there is none.
    async fn ask<T, F>(&self, call: impl Fn() -> F) -> Result<T, PortError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut answer = call().await;
        if answer.as_ref().is_err_and(|error| error.code() == Some(Code::QueueNotFound)) {
            self.make().await?;
            answer = call().await;
        }
        answer.map_err(|error| failed(&error))
    }

    async fn make(&self) -> Result<(), PortError> {
        match self.client.put_queue(&self.name, &PutQueue::default()).await {
            Ok(_) => Ok(()),
            // Somebody else made it meanwhile.
            Err(error) if error.code() == Some(Code::QueueExists) => Ok(()),
            Err(error) => Err(failed(&error)),
        }
    }

    async fn submit(&self, items: Vec<NewItem>) -> Result<Vec<bool>, PortError> {
        let submitted = self.ask(|| self.client.submit(&self.name, items.clone())).await?;
        submitted.into_iter().map(is_new).collect()
    }

    async fn counts(&self) -> Result<CountsShown, PortError> {
        self.ask(|| self.client.counts(&self.name)).await
    }

    async fn receive(
        &self,
        max: usize,
        visibility: Duration,
        wait: Duration,
    ) -> Result<Vec<ReceivedItem>, PortError> {
        let request = ReceiveRequest {
            max: Some(i64::try_from(max).unwrap_or(i64::MAX).clamp(1, i64::from(limits::RECEIVE_MAX))),
            wait: (!wait.is_zero()).then(|| span(wait)),
            visibility_timeout: Some(visible(visibility)),
            fields: Some(vec!["payload".to_owned()]),
            ..ReceiveRequest::default()
        };
        Ok(self.ask(|| self.client.receive(&self.name, &request)).await?.items)
    }

    async fn settle(
        &self,
        lease: &Lease,
        change: impl FnOnce(&mut Action),
        verb: VerbName,
    ) -> Result<(), PortError> {
        let (id, token) = read(lease)?;
        let mut action = Action::new(verb, id, token);
        change(&mut action);
        self.client.act(action).await.map(drop).map_err(|error| failed(&error))
    }

    async fn failed_items(
        &self,
        limit: usize,
        cursor: Option<String>,
        bodies: bool,
    ) -> Result<(Vec<ItemShown>, Option<String>), PortError> {
        let query = ItemQuery {
            filter: ItemFilter { state: Some("failed".to_owned()), ..ItemFilter::default() },
            limit: Some(limit.min(1000)),
            cursor,
            fields: bodies.then(|| "payload".to_owned()),
            ..ItemQuery::default()
        };
        let page = self.ask(|| self.client.items(Some(&self.name), &query)).await?;
        Ok((page.items, page.next))
    }
}

fn new_item(push: Push) -> NewItem {
    let kept = |otherwise| push.dedupe_key.as_ref().map_or(otherwise, |_| KEY_KEPT);
    let (completed, failed) = (kept(Duration::ZERO), kept(LETTERS_KEPT));
    NewItem {
        // Here the lower number goes first.
        priority: Some(i64::from(push.priority).saturating_neg().clamp(i16::MIN.into(), i16::MAX.into())),
        delay: (!push.delay.is_zero()).then(|| span(push.delay)),
        max_retries: Some(limits::RETRIES_MAX.into()),
        // A key is known for as long as its item is.
        completed_ttl: Some(span(completed)),
        failed_ttl: Some(span(failed)),
        idempotency_key: push.dedupe_key,
        payload: Some(Payload::from(push.body.into_bytes())),
        ..NewItem::default()
    }
}

/// What came of a submit.
fn is_new(submitted: Submitted) -> Result<bool, PortError> {
    match submitted.error {
        None => Ok(submitted.created.unwrap_or_default()),
        Some(error) => match Code::parse(&error.code) {
            // Whatever it was pushed with first is what counts.
            Some(Code::KeyConflict) => Ok(false),
            Some(code) => Err(refused(code, &error.message)),
            None => Err(PortError::Refused(error.message)),
        },
    }
}

fn waiting(counts: &CountsShown) -> u64 {
    counts.pending + counts.scheduled
}

fn visible(visibility: Duration) -> towline_api::Span {
    let millis = |millis: towline_domain::Millis| Duration::from_millis(millis.0);
    span(visibility.clamp(millis(limits::VISIBILITY_MIN), millis(limits::VISIBILITY_MAX)))
}

fn body(payload: Option<Payload>) -> String {
    let bytes = payload.and_then(|payload| payload.into_domain("payload").ok());
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn pulled(item: ReceivedItem) -> Pulled {
    Pulled {
        body: body(item.payload),
        lease: Lease(format!("{}.{}", item.id, item.lease)),
        attempt: item.attempt,
        delivery: item.deliveries,
    }
}

fn letter(item: ItemShown) -> DeadLetter {
    let error = item.errors.last().map(|error| error.message.clone());
    DeadLetter { body: body(item.payload), error: error.unwrap_or_default() }
}

/// What cannot be a lease is nobody's.
fn read(lease: &Lease) -> Result<(ItemId, LeaseToken), PortError> {
    let (id, token) = lease.0.split_once('.').ok_or(PortError::LeaseLost)?;
    Ok((id.parse().map_err(|_| PortError::LeaseLost)?, token.parse().map_err(|_| PortError::LeaseLost)?))
}

fn set(action: &mut Action, body: Option<String>) {
    action.set = body.map(|body| {
        Box::new(FieldsBody { payload: Some(Payload::from(body.into_bytes())), ..FieldsBody::default() })
    });
}

impl Queue for ServerQueue {
    fn push(&self, push: Push) -> Answer<'_, bool> {
        Box::pin(async move {
            let new = self.submit(vec![new_item(push)]).await?.pop();
            new.ok_or_else(|| PortError::Refused("the server gave no answer".to_owned()))
        })
    }

    fn push_all(&self, pushes: Vec<Push>) -> Answer<'_, Vec<bool>> {
        Box::pin(self.submit(pushes.into_iter().map(new_item).collect()))
    }

    fn pop(&self, max: usize, visibility: Duration) -> Answer<'_, Vec<Pulled>> {
        Box::pin(async move {
            let items = self.receive(max, visibility, Duration::ZERO).await?;
            Ok(items.into_iter().map(pulled).collect())
        })
    }

    fn wait(&self, max: usize, visibility: Duration) -> Answer<'_, Vec<Pulled>> {
        Box::pin(async move {
            loop {
                // In a task of its own: if nobody waits any more when the answer is there, its items are given back.
                let (give, take) = oneshot::channel();
                let queue = ServerQueue { client: self.client.clone(), name: self.name.clone() };
                tokio::spawn(async move {
                    let mut give: oneshot::Sender<Result<Handed, PortError>> = give;
                    let received = tokio::select! {
                        biased;
                        received = queue.receive(max, visibility, WAIT) => received,
                        // The server sees that nobody is there, and keeps what it had.
                        () = give.closed() => return,
                    };
                    drop(give.send(received.map(|items| Handed { queue, items })));
                });
                // A sender that is gone has panicked: that is no answer.
                let Ok(received) = take.await else { return Ok(Vec::new()) };
                let items = received?.taken();
                if !items.is_empty() {
                    return Ok(items.into_iter().map(pulled).collect());
                }
            }
        })
    }

    fn heartbeat<'a>(&'a self, lease: &'a Lease, visibility: Duration) -> Answer<'a, ()> {
        let beat = move |action: &mut Action| action.visibility_timeout = Some(visible(visibility));
        Box::pin(self.settle(lease, beat, VerbName::Heartbeat))
    }

    fn ack<'a>(&'a self, lease: &'a Lease) -> Answer<'a, ()> {
        Box::pin(self.settle(lease, |_| {}, VerbName::Commit))
    }

    fn put_back<'a>(&'a self, lease: &'a Lease, again: Again) -> Answer<'a, ()> {
        let back = move |action: &mut Action| {
            action.delay = Some(span(again.delay));
            set(action, again.body);
        };
        Box::pin(self.settle(lease, back, VerbName::Defer))
    }

    fn retry<'a>(&'a self, lease: &'a Lease, again: Again, error: &'a str) -> Answer<'a, ()> {
        let back = move |action: &mut Action| {
            action.reason = Some(cut(error, limits::REASON_BYTES_MAX).to_owned());
            action.delay = Some(span(again.delay));
            set(action, again.body);
        };
        Box::pin(self.settle(lease, back, VerbName::Retry))
    }

    fn dead_letter<'a>(&'a self, lease: &'a Lease, body: Option<String>, error: &'a str) -> Answer<'a, ()> {
        let fail = move |action: &mut Action| {
            action.reason = Some(cut(error, limits::REASON_BYTES_MAX).to_owned());
            set(action, body);
        };
        Box::pin(self.settle(lease, fail, VerbName::Fail))
    }

    fn redrive(&self, max: usize) -> Answer<'_, usize> {
        Box::pin(async move {
            let (mut count, mut cursor) = (0, None);
            while count < max {
                let (items, next) = self.failed_items(max - count, cursor, false).await?;
                for item in items {
                    let Ok(id) = item.id.into_domain("id") else { continue };
                    match self.client.redrive(id).await {
                        Ok(_) => count += 1,
                        // Somebody else was first.
                        Err(error) if failed(&error) == PortError::LeaseLost => {}
                        Err(error) => return Err(failed(&error)),
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

    fn letters(&self, max: usize) -> Answer<'_, Vec<DeadLetter>> {
        Box::pin(async move {
            let (mut letters, mut cursor) = (Vec::new(), None);
            while letters.len() < max {
                let (items, next) = self.failed_items(max - letters.len(), cursor, true).await?;
                letters.extend(items.into_iter().map(letter));
                cursor = next;
                if cursor.is_none() {
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

/// On its way to whoever waits. What nobody takes goes back: that was no attempt.
struct Handed {
    queue: ServerQueue,
    items: Vec<ReceivedItem>,
}

impl Handed {
    fn taken(mut self) -> Vec<ReceivedItem> {
        std::mem::take(&mut self.items)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let defer = |item: &ReceivedItem| Action {
            verb: Some(Text::from(VerbName::Defer)),
            id: Some(item.id.clone()),
            lease: Some(item.lease.clone()),
            ..Action::default()
        };
        let actions: Vec<Action> = self.items.iter().map(defer).collect();
        // Where nothing runs any more they come back when their leases lapse, as they do if this fails.
        if !actions.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let client = self.queue.client.clone();
            runtime.spawn(async move { client.settle(actions).await.ok() });
        }
    }
}
