//! The Rust client: a connection pool, typed refusals, and retries of calls that are safe to repeat.
//!
//! The client repeats a call that never reached the server, for as long as [`Client::retry_for`] says. It
//! repeats a call that may have reached the server only if a second call changes nothing: reads, queue
//! creation, calls with a lease, and submits whose items all have an idempotency key. It does not repeat a
//! receive whose answer was lost; those items come back when their leases lapse. A call to a server that
//! stops answering times out, like a call whose answer was lost.

mod buffers;
pub mod chunker;
mod compute;
mod download;
mod error;
mod events;
mod groups;
mod records;
mod request_body;
mod schedules;
mod sse;
mod tls;
mod topics;
mod transport;
mod unix_socket;
mod upload;

pub use buffers::{BufferQuery, ChunkLookup, ChunkRead, Content};
pub use compute::RunsQuery;
pub use download::Download;
pub use error::ClientError;
pub use events::{EventQuery, EventStream, cursor_has_reached};
pub use topics::{Subscription, TopicEvent};
pub use upload::{Upload, UploadError};

use crate::Format;
use crate::filter::ItemFilter;
use crate::item::{BulkResult, CountShown, ItemPage, ItemShown};
use crate::policy::PolicyBody;
use crate::queue::{CountsShown, PatchQueue, PutQueue, QueueApplied, QueuePage, QueueShown};
use crate::receive::{ReceiveAnswer, ReceiveRequest};
use crate::settle::{Action, CancelRequest, SettleAnswer, SettleRequest, Settled, VerbName};
use crate::span::Span;
use crate::submit::{NewItem, SubmitAnswer, SubmitRequest, Submitted};
use crate::tally::TallyShown;
use crate::text::Text;
use crate::time::Time;
use crate::token::{NewToken, TokenCreated, TokenPage, TokenShown, Whoami};
use crate::transfer::TransferSummary;
use bytes::Bytes;
use http::Method;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use towline_domain::{ItemId, QueueName, Trace};
use transport::{Call, Repeat, Transport};

/// An import takes as long as its input.
const IMPORT_TIME_MAX: Duration = Duration::from_secs(7 * 86400);

pub type Result<T> = std::result::Result<T, ClientError>;

/// A client. Clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    transport: Transport,
}

/// A filter and options of a list, a count or a bulk action.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ItemQuery {
    pub filter: ItemFilter,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
    /// Names of payload fields to return, separated by commas.
    pub fields: Option<String>,
    /// `summary` leaves out inputs, parameters, outputs and payload fields.
    pub view: Option<String>,
    pub force: bool,
    /// Only report what would change.
    pub dry_run: bool,
    /// The target queue of a move, or the new priority.
    pub to: Option<String>,
    /// The reason of a cancel.
    pub reason: Option<String>,
}

impl ItemQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = self.filter.pairs();
        let mut push = |name, value: Option<String>| pairs.extend(value.map(|value| (name, value)));
        push("limit", self.limit.map(|limit| limit.to_string()));
        push("cursor", self.cursor.clone());
        push("fields", self.fields.clone());
        push("force", self.force.then(|| "true".to_owned()));
        push("view", self.view.clone());
        push("dry_run", self.dry_run.then(|| "true".to_owned()));
        push("to", self.to.clone());
        pairs
    }

    /// The body of a cancel.
    fn reason(&self) -> CancelRequest {
        CancelRequest { reason: self.reason.clone(), ..CancelRequest::default() }
    }
}

/// Which part of the tally to return.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TallyQuery {
    pub from: Option<Time>,
    pub to: Option<Time>,
    pub by_day: bool,
    /// One row for each value of this tag, or for each pair of values of two tags.
    pub tags: Vec<String>,
}

impl TallyQuery {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let pairs = [
            ("from", self.from.as_ref().map(Time::to_string)),
            ("to", self.to.as_ref().map(Time::to_string)),
            ("by", self.by_day.then(|| "day".to_owned())),
        ];
        let tags = self.tags.iter().map(|tag| ("tag", tag.clone()));
        pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).chain(tags).collect()
    }
}

impl Client {
    /// Creates a client of the server at this address, for example `http://127.0.0.1:7420`, or `unix:/path` for a Unix socket. With `https` it
    /// trusts the system's certificate authorities, unless [`Client::ca_file`] replaces them.
    pub fn new(url: &str) -> Result<Client> {
        Ok(Client { transport: Transport::new(url)? })
    }

    /// Trusts only the certificates in this PEM file.
    pub fn ca_file(mut self, path: &Path) -> Result<Client> {
        self.transport.set_ca_file(path)?;
        Ok(self)
    }

    /// Sends this trace with every call. Submitted items without a trace of their own get it too.
    #[must_use]
    pub fn trace(mut self, trace: &Trace) -> Client {
        self.transport.set_trace(trace);
        self
    }

    /// Sends this bearer token with every call.
    pub fn token(mut self, token: &str) -> Result<Client> {
        self.transport.set_token(token)?;
        Ok(self)
    }

    /// Names this client. A server shows the name among the consumers of a queue.
    pub fn name(mut self, name: &str) -> Result<Client> {
        self.transport.set_name(name)?;
        Ok(self)
    }

    /// Sends a lease with every call. Its holder may read the item's input buffers, and read and write the output buffers of its
    /// attempt, without a scope for buffers.
    pub fn lease(mut self, item: &ItemId, lease: &str) -> Result<Client> {
        self.transport.set_lease(item, lease)?;
        Ok(self)
    }

    /// Sets the wire format. Default: MessagePack.
    #[must_use]
    pub fn format(mut self, format: Format) -> Client {
        self.transport.format = format;
        self
    }

    /// Sets for how long a call is repeated. Default: 10 s.
    #[must_use]
    pub fn retry_for(mut self, retry_for: Duration) -> Client {
        self.transport.retry_for = retry_for;
        self
    }

    #[must_use]
    pub fn url(&self) -> &str {
        self.transport.url()
    }

    /// Whether the network between client and server can read what they send: without TLS, and not on this machine.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        self.transport.is_exposed()
    }

    /// Fails unless the server answers.
    pub async fn health(&self) -> Result<()> {
        self.transport.call::<serde_json::Value>(Call::get("/healthz".to_owned())).await.map(drop)
    }

    /// Returns the identity and scopes of this client's token.
    pub async fn whoami(&self) -> Result<Whoami> {
        self.transport.call(Call::get("/v1/whoami".to_owned())).await
    }

    /// Starts a backup. The content is a tar archive.
    pub async fn backup(&self) -> Result<Content> {
        let call = Call::get("/v1/backup".to_owned()).header("accept", "application/x-tar")?;
        let response = self.transport.open(call).await?;
        Ok(Content { body: response.into_body(), transport: self.transport.clone() })
    }

    /// Starts an export. The content is one JSON object per line.
    pub async fn export(&self, with_tokens: bool) -> Result<Content> {
        let call = Call::get("/v1/export".to_owned()).header("accept", "application/x-ndjson")?;
        let response =
            self.transport.open(call.query(with_tokens.then(|| ("with_tokens", "true".to_owned())))).await?;
        Ok(Content { body: response.into_body(), transport: self.transport.clone() })
    }

    /// Sends an export to a server whose store is empty. An error in place of a piece ends the request.
    pub async fn import(&self, pieces: mpsc::Receiver<io::Result<Bytes>>) -> Result<TransferSummary> {
        let call = Call::new(Method::POST, "/v1/import".to_owned(), Repeat::Unsafe);
        let call = call.header("content-type", "application/x-ndjson")?.within(IMPORT_TIME_MAX);
        self.transport.upload(call, pieces).await
    }

    /// Creates a token. A repeated call creates another one.
    pub async fn create_token(&self, new: &NewToken) -> Result<TokenCreated> {
        let call = Call::new(Method::POST, "/v1/tokens".to_owned(), Repeat::Unsafe);
        self.transport.call(self.transport.body(call, new)?).await
    }

    /// Returns a page of tokens, after `cursor`.
    pub async fn tokens(&self, cursor: Option<&str>) -> Result<TokenPage> {
        let query = cursor.map(|cursor| ("cursor", cursor.to_owned()));
        self.transport.call(Call::get("/v1/tokens".to_owned()).query(query)).await
    }

    pub async fn revoke_token(&self, id: &str) -> Result<TokenShown> {
        let path = format!("/v1/tokens/{}/revoke", segment(id)?);
        self.transport.call(Call::new(Method::POST, path, Repeat::Safe)).await
    }

    pub async fn put_queue(&self, queue: &str, body: &PutQueue) -> Result<QueueShown> {
        let call = Call::new(Method::PUT, queue_path(queue, "")?, Repeat::Safe);
        self.transport.call(self.transport.body(call, body)?).await
    }

    /// Creates the queue, or changes its policy. A dry run changes nothing and answers what would change.
    pub async fn apply_queue(&self, queue: &str, body: &PutQueue, dry_run: bool) -> Result<QueueApplied> {
        let query = dry_run.then(|| ("dry_run", "true".to_owned()));
        let call = Call::new(Method::POST, queue_path(queue, "/apply")?, Repeat::Safe).query(query);
        self.transport.call(self.transport.body(call, body)?).await
    }

    pub async fn change_policy(&self, queue: &str, body: &PolicyBody) -> Result<QueueShown> {
        let call = Call::new(Method::PATCH, queue_path(queue, "")?, Repeat::Safe);
        let body = PatchQueue { policy: body.clone() };
        self.transport.call(self.transport.body(call, &body)?).await
    }

    pub async fn queue(&self, queue: &str) -> Result<QueueShown> {
        self.transport.call(Call::get(queue_path(queue, "")?)).await
    }

    /// Returns a page of queues in order of name, after `cursor`.
    pub async fn queues(&self, cursor: Option<&str>) -> Result<QueuePage> {
        let query = cursor.map(|cursor| ("cursor", cursor.to_owned()));
        self.transport.call(Call::get("/v1/queues".to_owned()).query(query)).await
    }

    pub async fn counts(&self, queue: &str) -> Result<CountsShown> {
        self.transport.call(Call::get(queue_path(queue, "/counts")?)).await
    }

    /// Returns how many items finished in each period.
    pub async fn tally(&self, queue: &str, query: &TallyQuery) -> Result<TallyShown> {
        self.transport.call(Call::get(queue_path(queue, "/tally")?).query(query.pairs())).await
    }

    pub async fn close_queue(&self, queue: &str) -> Result<QueueShown> {
        self.transport.call(Call::new(Method::POST, queue_path(queue, "/close")?, Repeat::Safe)).await
    }

    pub async fn pause_queue(&self, queue: &str) -> Result<QueueShown> {
        self.transport.call(Call::new(Method::POST, queue_path(queue, "/pause")?, Repeat::Safe)).await
    }

    pub async fn resume_queue(&self, queue: &str) -> Result<QueueShown> {
        self.transport.call(Call::new(Method::POST, queue_path(queue, "/resume")?, Repeat::Safe)).await
    }

    /// Deletes a queue. With `force`, its unfinished items too.
    pub async fn delete_queue(&self, queue: &str, force: bool) -> Result<()> {
        let call = Call::new(Method::DELETE, queue_path(queue, "")?, Repeat::Unsafe);
        self.transport.call_empty(call.query(force.then(|| ("force", "true".to_owned())))).await
    }

    /// Submits up to 10,000 items. Each has its own result, in order.
    pub async fn submit(&self, queue: &str, items: Vec<NewItem>) -> Result<Vec<Submitted>> {
        self.submit_or_wait(queue, items, Duration::ZERO).await
    }

    /// Like [`Client::submit`], but waits for room while the queue is full, at most [`crate::WAIT_MAX`].
    pub async fn submit_or_wait(
        &self,
        queue: &str,
        items: Vec<NewItem>,
        wait: Duration,
    ) -> Result<Vec<Submitted>> {
        let keyed = items.iter().all(|item| item.idempotency_key.is_some());
        let repeat = if keyed { Repeat::Safe } else { Repeat::Unsafe };
        let call = Call::new(Method::POST, queue_path(queue, "/items")?, repeat);
        let call = call.waiting(wait);
        let wait = (!wait.is_zero()).then(|| Span::from(wait));
        let answer: SubmitAnswer =
            self.transport.call(self.transport.body(call, &SubmitRequest { items, wait })?).await?;
        Ok(answer.items)
    }

    pub async fn receive(&self, queue: &str, request: &ReceiveRequest) -> Result<ReceiveAnswer> {
        let call = Call::new(Method::POST, queue_path(queue, "/receive")?, Repeat::Unsafe);
        let wait = request.wait.clone().and_then(|wait| wait.into_domain("wait").ok()).unwrap_or_default();
        let call = call.waiting(Duration::from_millis(wait.0));
        self.transport.call(self.transport.body(call, request)?).await
    }

    /// Makes one call of a lease holder.
    pub async fn act(&self, action: Action) -> Result<Settled> {
        if matches!(action.verb, Some(Text::Good(VerbName::Pause | VerbName::Cancel))) {
            // Under the path of the item, they need the scope of an operator.
            return Ok(self.settle(vec![action]).await?.pop().unwrap_or_default());
        }
        let text = |text: Option<String>| text.unwrap_or_default();
        let id = text(action.id.as_ref().map(ToString::to_string));
        let verb = text(action.verb.as_ref().map(ToString::to_string));
        let path = format!("/v1/items/{}/{}", segment(&id)?, segment(&verb)?);
        let call = Call::new(Method::POST, path, Repeat::Safe);
        self.transport.call(self.transport.body(call, &action)?).await
    }

    /// Makes up to 10,000 calls of mixed verbs, in order. Each has its own result.
    pub async fn settle(&self, actions: Vec<Action>) -> Result<Vec<Settled>> {
        let call = Call::new(Method::POST, "/v1/settle".to_owned(), Repeat::Safe);
        let answer: SettleAnswer =
            self.transport.call(self.transport.body(call, &SettleRequest { actions })?).await?;
        Ok(answer.results)
    }

    pub async fn item(&self, id: ItemId) -> Result<ItemShown> {
        self.transport.call(Call::get(item_path(id, ""))).await
    }

    /// Waits up to `timeout` (at most 5 minutes) for the item to end, and returns it as it is then.
    pub async fn wait(&self, id: ItemId, timeout: Duration) -> Result<ItemShown> {
        let call = Call::get(item_path(id, "/wait")).waiting(timeout);
        let timeout = ("timeout", format!("{}ms", timeout.as_millis()));
        self.transport.call(call.query(Some(timeout))).await
    }

    pub async fn cancel(&self, id: ItemId, reason: Option<String>) -> Result<Settled> {
        let call = Call::new(Method::POST, item_path(id, "/cancel"), Repeat::Safe);
        self.transport.call(self.transport.body(call, &CancelRequest { reason, lease: None })?).await
    }

    pub async fn redrive(&self, id: ItemId) -> Result<Settled> {
        self.transport.call(Call::new(Method::POST, item_path(id, "/redrive"), Repeat::Unsafe)).await
    }

    pub async fn pause_item(&self, id: ItemId) -> Result<Settled> {
        self.transport.call(Call::new(Method::POST, item_path(id, "/pause"), Repeat::Safe)).await
    }

    pub async fn resume_item(&self, id: ItemId) -> Result<Settled> {
        self.transport.call(Call::new(Method::POST, item_path(id, "/resume"), Repeat::Safe)).await
    }

    /// Deletes an item. With `force`, even while a worker holds its lease.
    pub async fn delete_item(&self, id: ItemId, force: bool) -> Result<()> {
        let call = Call::new(Method::DELETE, item_path(id, ""), Repeat::Unsafe);
        self.transport.call_empty(call.query(force.then(|| ("force", "true".to_owned())))).await
    }

    /// Returns a page of items in order of submission, of one queue or of all queues.
    pub async fn items(&self, queue: Option<&str>, query: &ItemQuery) -> Result<ItemPage> {
        self.transport.call(Call::get(items_path(queue, "")?).query(query.pairs())).await
    }

    /// Counts matching items for a few seconds. Repeat with `next` until it is `None`, and add up the counts.
    pub async fn count(&self, queue: Option<&str>, query: &ItemQuery) -> Result<CountShown> {
        self.transport.call(Call::get(items_path(queue, "/count")?).query(query.pairs())).await
    }

    /// Runs a bulk action on matching items for a few seconds. Repeat with `next` until it is `None`.
    pub async fn act_on_all(&self, queue: &str, act: &str, query: &ItemQuery) -> Result<BulkResult> {
        let path = queue_path(queue, &format!("/items/{}", segment(act)?))?;
        let call = Call::new(Method::POST, path, Repeat::Unsafe).query(query.pairs());
        self.transport.call(self.transport.body(call, &query.reason())?).await
    }

    /// Deletes matching items for a few seconds. Repeat with `next` until it is `None`.
    pub async fn purge(&self, queue: &str, query: &ItemQuery) -> Result<BulkResult> {
        let call = Call::new(Method::DELETE, queue_path(queue, "/items")?, Repeat::Unsafe);
        self.transport.call(call.query(query.pairs())).await
    }
}

/// Checks text that becomes one segment of a path. All ids and verbs of the server pass.
fn segment(text: &str) -> Result<&str> {
    let good = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if good && text != "." && text != ".." {
        return Ok(text);
    }
    Err(ClientError::invalid(format!("{text:?} is not an id or a verb")))
}

fn queue_path(queue: &str, rest: &str) -> Result<String> {
    let name: QueueName = queue
        .parse()
        .map_err(|error: towline_domain::name::NameError| ClientError::invalid(error.to_string()))?;
    Ok(format!("/v1/queues/{name}{rest}"))
}

fn items_path(queue: Option<&str>, rest: &str) -> Result<String> {
    match queue {
        Some(queue) => queue_path(queue, &format!("/items{rest}")),
        None => Ok(format!("/v1/items{rest}")),
    }
}

fn item_path(id: ItemId, rest: &str) -> String {
    format!("/v1/items/{id}{rest}")
}
