//! Lists of items, as pages or as a stream.

use super::filter::{cursor, filter, next};
use super::queues::check_limit;
use crate::answer::Reply;
use crate::app::App;
use crate::path::QueuePath;
use crate::query::Query;
use crate::refuse::Refused;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use std::collections::BTreeMap;
use towline_api::{ItemFilter, ItemPage, ItemShown, PAGE_DEFAULT, Problem};
use towline_domain::{FieldSet, Policy, QueueName, limits};
use towline_store::{Cursor, Filter, StoreError, StoredItem};

const NDJSON: &str = "application/x-ndjson";
/// Items read at a time for a stream: little enough to hold for a slow reader.
const STREAM_PAGE: usize = 500;
/// With their payload, which may be large and kept elsewhere.
const STREAM_PAYLOADS: usize = 4;

/// What is listed, and how.
struct Listing {
    filter: Filter,
    after: Option<Cursor>,
    limit: Option<usize>,
    fields: FieldSet,
    /// Without what went in and what came out.
    summary: bool,
}

impl Listing {
    async fn of(app: &App, queue: Option<QueueName>, mut query: Query) -> Result<Listing, Refused> {
        let limit: Option<usize> = query.parse("limit")?;
        let after = cursor(&mut query)?;
        let fields = query.fields()?;
        let summary = query.summary()?;
        let filter = filter(app, queue, &mut query).await?;
        query.end()?;
        let fields = fields.filter(|_| !summary).unwrap_or(FieldSet::NONE);
        Ok(Listing { filter, after, limit, fields, summary })
    }

    async fn answer(self, app: App, reply: Reply, headers: &HeaderMap) -> Result<Response, Refused> {
        let wants = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if wants.split([',', ';']).any(|one| one.trim().eq_ignore_ascii_case(NDJSON)) {
            self.limit.map_or(Ok(()), |limit| check_limit(limit.min(limits::PAGE_MAX)))?;
            return Ok(stream_all(app, self));
        }
        let limit = self.limit.unwrap_or(PAGE_DEFAULT);
        check_limit(limit)?;
        let mut page = app.broker.store().list(self.filter, self.after, limit, self.fields).await?;
        app.broker.fetch(&mut page.items).await?;
        let next = next(page.next);
        let items = shown_all(&app, page.items).await?;
        let count = items.len();
        if self.summary {
            let items: Vec<_> = items.iter().map(ItemShown::summary).collect();
            return reply.with_long(&serde_json::json!({ "items": items, "next": next }), count);
        }
        reply.with_long(&ItemPage { items, next }, count)
    }
}

/// Items as they are shown, each with what its queue allows it.
pub(super) async fn shown_all(app: &App, items: Vec<StoredItem>) -> Result<Vec<ItemShown>, StoreError> {
    let mut policies: BTreeMap<QueueName, Option<Policy>> = BTreeMap::new();
    for stored in &items {
        if !policies.contains_key(&stored.queue) {
            let found = app.broker.store().queue(stored.queue.clone()).await?;
            policies.insert(stored.queue.clone(), found.map(|view| view.queue.policy));
        }
    }
    let now = app.now();
    let one = |StoredItem { queue, item }: StoredItem| {
        ItemShown::new(&queue, item, now, policies.get(&queue).and_then(Option::as_ref))
    };
    Ok(items.into_iter().map(one).collect())
}

/// Items in order of submission: a page, or with `Accept: application/x-ndjson` all that match, one a line.
#[utoipa::path(get, path = "/v1/queues/{queue}/items", operation_id = "list_items", tag = "items", security(("token" = ["queue:{queue}:read"])),
    params(
        ("queue" = String, Path),
        ItemFilter,
        ("limit" = Option<usize>, Query, description = "At most so many: 100, up to 10000; of a stream: all, or any number", minimum = 1),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("fields" = Option<String>, Query, description = "Payload fields to bring along, with commas between: none"),
        ("view" = Option<String>, Query, description = "`summary` leaves out inputs, parameters, outputs and payload: `full`"),
    ),
    responses(
        (status = 200, description = "A page of them, or a stream.", content((ItemPage = "application/json"), (ItemShown = "application/x-ndjson"))),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such queue.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    reply: Reply,
    headers: HeaderMap,
    QueuePath(queue): QueuePath,
    query: Query,
) -> Result<Response, Refused> {
    let listing = Listing::of(&app, Some(queue), query).await?;
    listing.answer(app, reply, &headers).await
}

/// Items of all queues, in order of submission: a page, or a stream.
#[utoipa::path(get, path = "/v1/items", operation_id = "list_all_items", tag = "items", security(("token" = ["queue:*:read"])),
    params(
        ItemFilter,
        ("limit" = Option<usize>, Query, description = "At most so many: 100, up to 10000; of a stream: all, or any number", minimum = 1),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("fields" = Option<String>, Query, description = "Payload fields to bring along, with commas between: none"),
        ("view" = Option<String>, Query, description = "`summary` leaves out inputs, parameters, outputs and payload: `full`"),
    ),
    responses(
        (status = 200, description = "A page of them, or a stream.", content((ItemPage = "application/json"), (ItemShown = "application/x-ndjson"))),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn list_all(
    State(app): State<App>,
    reply: Reply,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, Refused> {
    let listing = Listing::of(&app, None, query).await?;
    listing.answer(app, reply, &headers).await
}

/// Where a stream has come to.
struct Progress {
    after: Option<Cursor>,
    left: usize,
    done: bool,
}

/// One page in memory at a time; a fault cuts the stream off, so that it is not taken for whole.
fn stream_all(app: App, listing: Listing) -> Response {
    let begin = Progress { after: listing.after, left: listing.limit.unwrap_or(usize::MAX), done: false };
    let lines = stream::try_unfold((app, listing, begin), move |(app, listing, progress)| async move {
        if progress.done {
            return Ok::<_, StoreError>(None);
        }
        let size = if listing.fields.has_any() { STREAM_PAYLOADS } else { STREAM_PAGE };
        let size = size.min(progress.left);
        let store = app.broker.store();
        let mut page = store.list(listing.filter.clone(), progress.after, size, listing.fields).await?;
        let fetched = app.broker.fetch(&mut page.items).await;
        fetched.map_err(|refusal| StoreError::Unavailable { cause: refusal.to_string() })?;
        let progress = Progress {
            after: page.next,
            left: progress.left.saturating_sub(page.items.len()),
            done: page.next.is_none() || progress.left <= page.items.len(),
        };
        let bytes = lines(&shown_all(&app, page.items).await?, listing.summary);
        Ok(Some((bytes, (app, listing, progress))))
    });
    ([(CONTENT_TYPE, HeaderValue::from_static(NDJSON))], Body::from_stream(lines)).into_response()
}

fn lines(items: &[ItemShown], summary: bool) -> Bytes {
    let mut lines = Vec::new();
    for item in items {
        // Names and valid JSON: it always has a JSON form.
        let written = match summary {
            false => serde_json::to_writer(&mut lines, item),
            true => serde_json::to_writer(&mut lines, &item.summary()),
        };
        if written.is_ok() {
            lines.push(b'\n');
        }
    }
    lines.into()
}
