//! Lists of items, as a page or as a stream.

use super::filter::{cursor, filter, next};
use crate::app::App;
use crate::request::{BodyMemory, Query, QueuePath, invalid};
use crate::response::{ProblemResponse, Responder, streamed_within};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use std::collections::BTreeMap;
use towline_api::payload::Form;
use towline_api::{ItemFilter, ItemPage, ItemShown, PAGE_DEFAULT, PAGE_MAX};
use towline_domain::{FieldSet, Policy, QueueName};
use towline_store::{Cursor, Filter, StoreError, StoredItem};

const NDJSON: &str = "application/x-ndjson";
/// Items per read of a stream: few enough to keep in memory for a slow client.
const STREAM_PAGE: usize = 500;
/// The same with payloads, which may be large and offloaded.
const STREAM_PAGE_PAYLOADS: usize = 4;
/// The memory that a stream must find before it reads. Larger pages wait for more.
const STREAM_PAGE_BYTES: usize = 512 << 10;

/// The parameters of a list besides the filter, for the OpenAPI description.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only described; ListRequest parses the query string")]
struct ListParams {
    /// Maximum number of items. Default: 100 for a page, which has at most 1000; all for a stream
    #[param(minimum = 1)]
    limit: Option<usize>,
    /// `next` of the previous page
    cursor: Option<String>,
    /// Payload fields to include, separated by commas. Default: none
    fields: Option<String>,
    /// The form of payload fields: `base64`, `text` (in `payload_text`) or `json` (in `payload_json`). A field that is not text
    /// or JSON comes as base64. Default: `base64`
    payload_as: Option<Form>,
    /// `full`, or `summary` without inputs, parameters, outputs and payload. Default: `full`
    view: Option<String>,
}

/// The parsed parameters of a list.
struct ListRequest {
    filter: Filter,
    after: Option<Cursor>,
    limit: Option<usize>,
    fields: FieldSet,
    form: Form,
    /// Without inputs, parameters, outputs and payload.
    summary: bool,
}

impl ListRequest {
    async fn parse(
        app: &App,
        queue: Option<QueueName>,
        mut query: Query,
    ) -> Result<ListRequest, ProblemResponse> {
        let limit: Option<usize> = query.parse("limit")?;
        let after = cursor(&mut query)?;
        let fields = query.fields()?;
        let (summary, form) = (query.summary()?, query.payload_as()?);
        let filter = filter(app, queue, &mut query).await?;
        query.end()?;
        let fields = fields.filter(|_| !summary).unwrap_or(FieldSet::NONE);
        Ok(ListRequest { filter, after, limit, fields, form, summary })
    }

    async fn answer(
        self,
        app: App,
        respond: Responder,
        headers: &HeaderMap,
    ) -> Result<Response, ProblemResponse> {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if accept.split([',', ';']).any(|format| format.trim().eq_ignore_ascii_case(NDJSON)) {
            check_limit(self.limit.map_or(1, |limit| limit.min(PAGE_MAX)))?;
            return Ok(stream_all(app, self));
        }
        let limit = self.limit.unwrap_or(PAGE_DEFAULT);
        check_limit(limit)?;
        let mut page = app.broker.store().list(self.filter, self.after, limit, self.fields).await?;
        app.broker.fetch(&mut page.items).await?;
        let next = next(page.next);
        let items = describe_all(&app, page.items, self.form).await?;
        let count = items.len();
        if self.summary {
            let items: Vec<_> = items.iter().map(ItemShown::summary).collect();
            return respond.with_many(&serde_json::json!({ "items": items, "next": next }), count);
        }
        respond.with_many(&ItemPage { items, next }, count)
    }
}

fn check_limit(limit: usize) -> Result<(), ProblemResponse> {
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(invalid("limit", format!("{limit} is out of range; use 1 to {PAGE_MAX}")));
    }
    Ok(())
}

/// The wire form of items. It depends on the policies of their queues.
pub(super) async fn describe_all(
    app: &App,
    items: Vec<StoredItem>,
    form: Form,
) -> Result<Vec<ItemShown>, StoreError> {
    let mut policies: BTreeMap<QueueName, Option<Policy>> = BTreeMap::new();
    for stored in &items {
        if !policies.contains_key(&stored.queue) {
            let found = app.broker.store().queue(stored.queue.clone()).await?;
            policies.insert(stored.queue.clone(), found.map(|view| view.queue.policy));
        }
    }
    let now = app.now();
    let describe = |StoredItem { queue, item }: StoredItem| {
        ItemShown::new(&queue, item, now, policies.get(&queue).and_then(Option::as_ref)).payload_as(form)
    };
    Ok(items.into_iter().map(describe).collect())
}

/// List the items of a queue in order of submission.
///
/// With `Accept: application/x-ndjson`, the response streams all matching items, one per line. Otherwise it is a page.
#[utoipa::path(get, path = "/v1/queues/{queue}/items", operation_id = "list_items", tag = "items", security(("token" = ["queue:{queue}:read"])),
    params(
        ("queue" = String, Path),
        ItemFilter,
        ListParams,
    ),
    responses(
        (status = 200, description = "A page, or a stream.", content((ItemPage = "application/json"), (ItemShown = "application/x-ndjson"))),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    respond: Responder,
    headers: HeaderMap,
    QueuePath(queue): QueuePath,
    query: Query,
) -> Result<Response, ProblemResponse> {
    let request = ListRequest::parse(&app, Some(queue), query).await?;
    request.answer(app, respond, &headers).await
}

/// List the items of all queues in order of submission.
///
/// With `Accept: application/x-ndjson`, the response streams all matching items, one per line. Otherwise it is a page.
#[utoipa::path(get, path = "/v1/items", operation_id = "list_all_items", tag = "items", security(("token" = ["queue:*:read"])),
    params(
        ItemFilter,
        ListParams,
    ),
    responses(
        (status = 200, description = "A page, or a stream.", content((ItemPage = "application/json"), (ItemShown = "application/x-ndjson"))),
    ))]
pub(super) async fn list_all(
    State(app): State<App>,
    respond: Responder,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ProblemResponse> {
    let request = ListRequest::parse(&app, None, query).await?;
    request.answer(app, respond, &headers).await
}

/// The position of a stream.
struct Progress {
    after: Option<Cursor>,
    left: usize,
    done: bool,
}

/// Streams page by page. A fault ends the stream with an error, so that the client does not take it for complete.
fn stream_all(app: App, request: ListRequest) -> Response {
    let memory = BodyMemory::new(&app.send_room);
    let start = Progress { after: request.after, left: request.limit.unwrap_or(usize::MAX), done: false };
    let lines = stream::try_unfold((app, request, start), move |(app, request, progress)| async move {
        if progress.done {
            return Ok::<_, StoreError>(None);
        }
        let size = if request.fields.has_any() { STREAM_PAGE_PAYLOADS } else { STREAM_PAGE };
        let size = size.min(progress.left);
        let store = app.broker.store();
        let mut page = store.list(request.filter.clone(), progress.after, size, request.fields).await?;
        let fetched = app.broker.fetch(&mut page.items).await;
        fetched.map_err(|refusal| StoreError::Unavailable { cause: refusal.to_string() })?;
        let progress = Progress {
            after: page.next,
            left: progress.left.saturating_sub(page.items.len()),
            done: page.next.is_none() || progress.left <= page.items.len(),
        };
        let bytes = lines(&describe_all(&app, page.items, request.form).await?, request.summary);
        Ok(Some((bytes, (app, request, progress))))
    });
    let body = streamed_within(memory, STREAM_PAGE_BYTES, lines);
    ([(CONTENT_TYPE, HeaderValue::from_static(NDJSON))], body).into_response()
}

fn lines(items: &[ItemShown], summary: bool) -> Bytes {
    let mut lines = Vec::new();
    for item in items {
        // Cannot fail: wire types always have a JSON form.
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
