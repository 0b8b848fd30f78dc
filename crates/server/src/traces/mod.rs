//! Tracing: spans of this server's work, sent to an OpenTelemetry collector. Disabled by default; disabled tracing costs nothing.
//!
//! Each request is a span, and the client's span is its parent. A submit, a receive that returned items, and a settle are child
//! spans. An item carries the span of its submit, and the spans of its receive and its settle link to that one.

mod otlp_client;
mod span_queue;

pub(crate) use span_queue::SpanCounts;

use crate::app::App;
use crate::config::TraceSettings;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, Method};
use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags,
    TraceId, TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};
use span_queue::SpanQueue;
use std::convert::Infallible;
use std::time::{Duration, UNIX_EPOCH};
use towline_api::TraceBody;
use towline_domain::{FieldSet, Item, ItemId, QueueName, Timestamp, Trace, TraceParent};

/// Links per span. Of a larger batch, only the first items are linked.
const LINKS_MAX: usize = 128;
/// Routes that monitoring calls all the time.
const UNTRACED: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

#[derive(Debug)]
pub(crate) struct Traces {
    tracer: SdkTracer,
    span_queue: SpanQueue,
}

impl Traces {
    /// Starts a task that sends spans, if a collector is configured.
    pub(crate) fn start(settings: &TraceSettings) -> Result<Option<Traces>, String> {
        let Some(endpoint) = settings.active_endpoint() else { return Ok(None) };
        let resource = resource();
        let (exporter, cause) = otlp_client::exporter(endpoint, &settings.headers, &resource)?;
        let (span_queue, processor) = SpanQueue::start(exporter, cause, endpoint.to_owned());
        // Without the setting, the SDK reads the sampler from the environment.
        let mut builder = SdkTracerProvider::builder();
        if let Some(ppm) = settings.sample_ppm {
            let ratio = Sampler::TraceIdRatioBased(f64::from(ppm) / 1e6);
            builder = builder.with_sampler(Sampler::ParentBased(Box::new(ratio)));
        }
        let provider = builder
            .with_resource(resource)
            .with_max_links_per_span(LINKS_MAX as u32)
            .with_span_processor(processor)
            .build();
        Ok(Some(Traces { tracer: provider.tracer("towline"), span_queue }))
    }

    pub(crate) fn counts(&self) -> SpanCounts {
        self.span_queue.counts()
    }

    /// Sends the remaining spans, for at most `time_max`.
    pub(crate) async fn stop(&self, time_max: Duration) {
        self.span_queue.stop(time_max).await;
    }

    fn start_span(&self, builder: SpanBuilder, parent: &SpanContext) -> Span {
        // The SDK would take an invalid parent for one that is not sampled.
        let parent = match parent.is_valid() {
            true => Context::new().with_remote_span_context(parent.clone()),
            false => Context::new(),
        };
        self.tracer.build_with_context(builder, &parent)
    }

    fn message_span(
        &self,
        request_span: &RequestSpan,
        kind: SpanKind,
        what: MessagingOperation<'_>,
    ) -> Option<Span> {
        let parent = request_span.0.as_ref()?;
        let name = match what.queue {
            Some(queue) => format!("{} {queue}", what.name),
            None => what.name.to_owned(),
        };
        let mut attributes = vec![
            KeyValue::new("messaging.system", "towline"),
            KeyValue::new("messaging.operation.name", what.name),
            KeyValue::new("messaging.operation.type", what.kind),
            KeyValue::new("messaging.batch.message_count", i64::try_from(what.count).unwrap_or(i64::MAX)),
        ];
        attributes
            .extend(what.queue.map(|queue| KeyValue::new("messaging.destination.name", queue.to_string())));
        let mut builder = self.tracer.span_builder(name).with_kind(kind).with_attributes(attributes);
        if let Some(since) = what.since {
            builder = builder.with_start_time(UNIX_EPOCH + Duration::from_millis(since.0));
        }
        if !what.links.is_empty() {
            builder = builder.with_links(what.links);
        }
        Some(self.start_span(builder, parent))
    }

    /// Starts the span of a submit. It ends when the value is dropped.
    pub(crate) fn submit(
        &self,
        request_span: &RequestSpan,
        queue: &QueueName,
        count: usize,
    ) -> Option<SubmitSpan> {
        let what = MessagingOperation {
            name: "submit",
            kind: "send",
            queue: Some(queue),
            count,
            links: Vec::new(),
            since: None,
        };
        self.message_span(request_span, SpanKind::Producer, what).map(SubmitSpan)
    }

    /// Records the span of a receive that started at `since`.
    pub(crate) fn received(
        &self,
        request_span: &RequestSpan,
        queue: &QueueName,
        items: &[Item],
        since: Timestamp,
    ) {
        if items.is_empty() || !request_span.is_sampled() {
            return;
        }
        let links =
            items.iter().filter_map(|item| link(item.body.trace.as_deref()?)).take(LINKS_MAX).collect();
        let count = items.len();
        let what = MessagingOperation {
            name: "receive",
            kind: "receive",
            queue: Some(queue),
            count,
            links,
            since: Some(since),
        };
        drop(self.message_span(request_span, SpanKind::Consumer, what));
    }

    /// Starts the span of a settle. It ends when it is dropped.
    pub(crate) async fn settle(
        &self,
        request_span: &RequestSpan,
        app: &App,
        name: &'static str,
        ids: &[ItemId],
    ) -> Option<Span> {
        if !request_span.is_sampled() || ids.is_empty() {
            return None;
        }
        // Read the items now: the settle may remove them.
        let first = ids.iter().copied().take(LINKS_MAX).collect();
        let found = app.broker.store().get(first, FieldSet::NONE).await.unwrap_or_default();
        let links =
            found.iter().flatten().filter_map(|found| link(found.item.body.trace.as_deref()?)).collect();
        let mut queues = found.iter().flatten().map(|found| &found.queue);
        let queue = queues.next().filter(|first| queues.all(|queue| queue == *first));
        let what = MessagingOperation { name, kind: "settle", queue, count: ids.len(), links, since: None };
        self.message_span(request_span, SpanKind::Client, what)
    }
}

/// The service name comes from `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES`, and is `towline` by default.
fn resource() -> Resource {
    let builder =
        || Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let detected = builder().build();
    let name = detected.get(&Key::from_static_str("service.name"));
    match name.is_some_and(|name| !name.as_str().starts_with("unknown_service")) {
        true => detected,
        false => builder().with_service_name("towline").build(),
    }
}

struct MessagingOperation<'a> {
    name: &'static str,
    kind: &'static str,
    queue: Option<&'a QueueName>,
    count: usize,
    links: Vec<Link>,
    since: Option<Timestamp>,
}

/// The span of a submit in progress.
pub(crate) struct SubmitSpan(Span);

impl SubmitSpan {
    /// The trace context for the items of this submit.
    pub(crate) fn trace(&self) -> Trace {
        let context = self.0.span_context();
        Trace {
            parent: TraceParent {
                trace_id: context.trace_id().to_bytes(),
                span_id: context.span_id().to_bytes(),
                flags: context.trace_flags().to_u8(),
            },
            state: context.trace_state().header().parse().ok(),
        }
    }
}

fn span_context(trace: &Trace) -> SpanContext {
    let TraceParent { trace_id, span_id, flags } = trace.parent;
    let state = trace.state.as_ref().and_then(|state| state.as_str().parse::<TraceState>().ok());
    let flags = TraceFlags::new(flags);
    let (trace_id, span_id) = (TraceId::from_bytes(trace_id), SpanId::from_bytes(span_id));
    SpanContext::new(trace_id, span_id, flags, true, state.unwrap_or_default())
}

fn link(trace: &Trace) -> Option<Link> {
    Some(Link::new(span_context(trace), Vec::new(), 0)).filter(|link| link.span_context.is_valid())
}

/// The trace context in the headers of a request.
pub(crate) fn of_headers(headers: &HeaderMap) -> Option<Trace> {
    let all = |name: &'static str| headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    TraceBody::from_headers(all("traceparent"), all("tracestate"))
}

/// The span of the current request, if tracing is enabled.
#[derive(Clone, Default)]
pub(crate) struct RequestSpan(Option<SpanContext>);

impl RequestSpan {
    fn is_sampled(&self) -> bool {
        self.0.as_ref().is_some_and(SpanContext::is_sampled)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RequestSpan {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<RequestSpan, Infallible> {
        Ok(parts.extensions.get::<RequestSpan>().cloned().unwrap_or_default())
    }
}

/// Records a span for each request.
pub(crate) async fn trace_request(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str);
    let traces = app.traces.as_ref().filter(|_| route.is_none_or(|route| !UNTRACED.contains(&route)));
    let Some(traces) = traces else { return next.run(request).await };
    // As in metrics: clients can invent any number of methods.
    let method = match *request.method() {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "_OTHER",
    };
    let name = route.map_or_else(|| method.to_owned(), |route| format!("{method} {route}"));
    let path: String = request.uri().path().chars().take(1024).collect();
    let mut attributes = vec![
        KeyValue::new("http.request.method", method),
        KeyValue::new("url.path", path),
        KeyValue::new("url.scheme", if app.tls { "https" } else { "http" }),
    ];
    attributes.extend(route.map(|route| KeyValue::new("http.route", route.to_owned())));
    let builder = traces.tracer.span_builder(name).with_kind(SpanKind::Server).with_attributes(attributes);
    let parent = of_headers(request.headers()).map_or(SpanContext::NONE, |trace| span_context(&trace));
    let mut span = traces.start_span(builder, &parent);
    request.extensions_mut().insert(RequestSpan(Some(span.span_context().clone())));
    let response = next.run(request).await;
    let status = response.status();
    span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
    if status.is_server_error() {
        span.set_attribute(KeyValue::new("error.type", status.as_str().to_owned()));
        span.set_status(Status::error(""));
    }
    response
}
