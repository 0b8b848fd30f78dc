//! Lists of items, as pages or as a stream.

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
use towline_api::{Code, ItemPage, ItemShown, PAGE_DEFAULT, Problem, Time};
use towline_domain::{FieldSet, QueueName, Refusal, limits};
use towline_store::{Cursor, Filter, Page, StoreError};

const NDJSON: &str = "application/x-ndjson";
/// Items read at a time for a stream: little enough to hold for a slow reader.
const STREAM_PAGE: usize = 500;
/// With their payload, which may be large and kept elsewhere.
const STREAM_PAYLOADS: usize = 4;

/// Which items are meant, of a queue that must be there.
pub(super) async fn filter(app: &App, queue: QueueName, query: &mut Query) -> Result<Filter, Refused> {
    let mut tags = Vec::new();
    for text in query.all("tag") {
        let Some((name, value)) = text.split_once('=') else {
            let shown: String = text.chars().take(100).collect();
            return Err(Refused::new(Code::Invalid, format!("tag: {shown:?}; use key=value")));
        };
        tags.push((name.to_owned(), value.to_owned()));
    }
    let filter = Filter {
        queue: Some(queue.clone()),
        state: query.state()?,
        tags,
        group: query.one("group")?,
        idempotency_key: query.one("idempotency_key")?,
        created_from: query.time("created_from")?,
        created_before: query.time("created_before")?,
    };
    filter.check()?;
    if app.broker.store().queue(queue.clone()).await?.is_none() {
        return Err(Refusal::QueueNotFound { name: queue.to_string() }.into());
    }
    Ok(filter)
}

pub(super) fn cursor(query: &mut Query) -> Result<Option<Cursor>, Refused> {
    Ok(query.parse("cursor")?.map(Cursor))
}

pub(super) fn next(cursor: Option<Cursor>) -> Option<String> {
    cursor.map(|cursor| cursor.0.to_string())
}

/// Items in order of submission: a page, or with `Accept: application/x-ndjson` all that match, one a line.
#[utoipa::path(get, path = "/v1/queues/{queue}/items", operation_id = "list_items", tag = "items", security(("token" = ["queue:{queue}:read"])),
    params(
        ("queue" = String, Path),
        ("state" = Option<String>, Query, description = "pending (also scheduled ones), ready, scheduled, processing, paused, completed, failed or unfinished"),
        ("tag" = Option<Vec<String>>, Query, description = "key=value; may be given several times, and then all must match"),
        ("group" = Option<String>, Query),
        ("idempotency_key" = Option<String>, Query),
        ("created_from" = Option<Time>, Query),
        ("created_before" = Option<Time>, Query),
        ("limit" = Option<usize>, Query, description = "At most so many: 100, up to 10000; of a stream: all, or any number", minimum = 1),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("fields" = Option<String>, Query, description = "Payload fields to bring along, with commas between: none"),
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
    mut query: Query,
) -> Result<Response, Refused> {
    let limit: Option<usize> = query.parse("limit")?;
    let after = cursor(&mut query)?;
    let fields = query.fields()?.unwrap_or(FieldSet::NONE);
    let filter = filter(&app, queue, &mut query).await?;
    query.end()?;
    let wants = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if wants.split([',', ';']).any(|one| one.trim().eq_ignore_ascii_case(NDJSON)) {
        limit.map_or(Ok(()), |limit| check_limit(limit.min(limits::PAGE_MAX)))?;
        return Ok(stream_all(app, filter, after, limit, fields));
    }
    let limit = limit.unwrap_or(PAGE_DEFAULT);
    check_limit(limit)?;
    let mut page = app.broker.store().list(filter, after, limit, fields).await?;
    app.broker.fetch(&mut page.items).await?;
    let now = app.now();
    let items: Vec<ItemShown> =
        page.items.into_iter().map(|stored| ItemShown::new(&stored.queue, stored.item, now)).collect();
    let count = items.len();
    reply.with_long(&ItemPage { items, next: next(page.next) }, count)
}

/// Where a stream has come to.
struct Progress {
    after: Option<Cursor>,
    left: usize,
    done: bool,
}

/// One page in memory at a time; a fault cuts the stream off, so that it is not taken for whole.
fn stream_all(
    app: App,
    filter: Filter,
    after: Option<Cursor>,
    limit: Option<usize>,
    fields: FieldSet,
) -> Response {
    let begin = Progress { after, left: limit.unwrap_or(usize::MAX), done: false };
    let lines = stream::try_unfold((app, filter, begin), move |(app, filter, progress)| async move {
        if progress.done {
            return Ok::<_, StoreError>(None);
        }
        let size = if fields == FieldSet::NONE { STREAM_PAGE } else { STREAM_PAYLOADS };
        let size = size.min(progress.left);
        let mut page = app.broker.store().list(filter.clone(), progress.after, size, fields).await?;
        let fetched = app.broker.fetch(&mut page.items).await;
        fetched.map_err(|refusal| StoreError::Unavailable { cause: refusal.to_string() })?;
        let progress = Progress {
            after: page.next,
            left: progress.left.saturating_sub(page.items.len()),
            done: page.next.is_none() || progress.left <= page.items.len(),
        };
        let bytes = lines(&app, page);
        Ok(Some((bytes, (app, filter, progress))))
    });
    ([(CONTENT_TYPE, HeaderValue::from_static(NDJSON))], Body::from_stream(lines)).into_response()
}

fn lines(app: &App, page: Page) -> Bytes {
    let now = app.now();
    let mut lines = Vec::new();
    for stored in page.items {
        let item = ItemShown::new(&stored.queue, stored.item, now);
        // Names and valid JSON: it always has a JSON form.
        if serde_json::to_writer(&mut lines, &item).is_ok() {
            lines.push(b'\n');
        }
    }
    lines.into()
}
