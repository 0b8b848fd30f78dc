//! Spans of what this server does, sent to a collector by OTLP: only where one is configured. Elsewhere nothing of this is
//! reached, and no span is made.
//!
//! Each request is a span, with its caller's as its parent. Below it a submit, a receive that gave something out and a settle have
//! one of their own: an item carries that of its submit, and the others are linked to what the items carry.

mod outbox;
mod post;

pub(crate) use outbox::Sent;

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
use outbox::Outbox;
use std::convert::Infallible;
use std::time::{Duration, UNIX_EPOCH};
use towline_api::TraceBody;
use towline_domain::{FieldSet, Item, ItemId, QueueName, Timestamp, Trace, TraceParent};

/// Links of one span: of a larger batch, the traces of the first.
const LINKS_MAX: usize = 128;
/// Asked for by machines, over and over.
const UNTRACED: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

#[derive(Debug)]
pub(crate) struct Traces {
    tracer: SdkTracer,
    outbox: Outbox,
}

impl Traces {
    /// Starts sending on the current runtime.
    pub(crate) fn start(settings: &TraceSettings) -> Result<Option<Traces>, String> {
        let Some(endpoint) = settings.wanted() else { return Ok(None) };
        let resource = resource();
        let (exporter, cause) = post::exporter(endpoint, &settings.headers, &resource)?;
        let (outbox, processor) = Outbox::start(exporter, cause, endpoint.to_owned());
        // Unless it is said here, the variables of the environment say it, or it is every trace.
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
        Ok(Some(Traces { tracer: provider.tracer("towline"), outbox }))
    }

    /// What became of the spans so far.
    pub(crate) fn sent(&self) -> Sent {
        self.outbox.sent()
    }

    /// Sends what there is, for at most that long.
    pub(crate) async fn stop(&self, at_most: Duration) {
        self.outbox.stop(at_most).await;
    }

    fn start_span(&self, builder: SpanBuilder, parent: &SpanContext) -> Span {
        // One that is none would be taken for a parent that is not recorded.
        let parent = match parent.is_valid() {
            true => Context::new().with_remote_span_context(parent.clone()),
            false => Context::new(),
        };
        self.tracer.build_with_context(builder, &parent)
    }

    fn message_span(&self, within: &Within, kind: SpanKind, what: Operation<'_>) -> Option<Span> {
        let within = within.0.as_ref()?;
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
        Some(self.start_span(builder, within))
    }

    /// Items are submitted from now on until it is dropped.
    pub(crate) fn submit(&self, within: &Within, queue: &QueueName, count: usize) -> Option<Submitting> {
        let what = Operation {
            name: "submit",
            kind: "send",
            queue: Some(queue),
            count,
            links: Vec::new(),
            since: None,
        };
        self.message_span(within, SpanKind::Producer, what).map(Submitting)
    }

    /// Items were given out to somebody who has asked since then.
    pub(crate) fn received(&self, within: &Within, queue: &QueueName, items: &[Item], since: Timestamp) {
        if items.is_empty() || !within.is_sampled() {
            return;
        }
        let links =
            items.iter().filter_map(|item| link(item.body.trace.as_deref()?)).take(LINKS_MAX).collect();
        let count = items.len();
        let what = Operation {
            name: "receive",
            kind: "receive",
            queue: Some(queue),
            count,
            links,
            since: Some(since),
        };
        drop(self.message_span(within, SpanKind::Consumer, what));
    }

    /// Calls of lease holders are carried out from now on until it is dropped.
    pub(crate) async fn settle(
        &self,
        within: &Within,
        app: &App,
        name: &'static str,
        ids: &[ItemId],
    ) -> Option<Span> {
        if !within.is_sampled() || ids.is_empty() {
            return None;
        }
        // Before: what is settled may be gone at once.
        let asked = ids.iter().copied().take(LINKS_MAX).collect();
        let found = app.broker.store().get(asked, FieldSet::NONE).await.unwrap_or_default();
        let links =
            found.iter().flatten().filter_map(|found| link(found.item.body.trace.as_deref()?)).collect();
        let mut queues = found.iter().flatten().map(|found| &found.queue);
        let queue = queues.next().filter(|first| queues.all(|queue| queue == *first));
        let what = Operation { name, kind: "settle", queue, count: ids.len(), links, since: None };
        self.message_span(within, SpanKind::Client, what)
    }
}

/// Who sends: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say so, or it is `towline`.
fn resource() -> Resource {
    let builder =
        || Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let said = builder().build();
    let name = said.get(&Key::from_static_str("service.name"));
    match name.is_some_and(|name| !name.as_str().starts_with("unknown_service")) {
        true => said,
        false => builder().with_service_name("towline").build(),
    }
}

struct Operation<'a> {
    name: &'static str,
    kind: &'static str,
    queue: Option<&'a QueueName>,
    count: usize,
    links: Vec<Link>,
    since: Option<Timestamp>,
}

/// A submit under way.
pub(crate) struct Submitting(Span);

impl Submitting {
    /// For the items of this submit.
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

/// The trace that a call is a part of, as its headers say.
pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Trace> {
    let all = |name: &'static str| headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    TraceBody::from_headers(all("traceparent"), all("tracestate"))
}

/// The span of the request at hand, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Within(Option<SpanContext>);

impl Within {
    fn is_sampled(&self) -> bool {
        self.0.as_ref().is_some_and(SpanContext::is_sampled)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Within {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Within, Infallible> {
        Ok(parts.extensions.get::<Within>().cloned().unwrap_or_default())
    }
}

/// Makes a span of each request.
pub(crate) async fn follow(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str);
    let traces = app.traces.as_ref().filter(|_| route.is_none_or(|route| !UNTRACED.contains(&route)));
    let Some(traces) = traces else { return next.run(request).await };
    // As in metrics: methods of a client's own making are without number.
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
    let parent = from_headers(request.headers()).map_or(SpanContext::NONE, |trace| span_context(&trace));
    let mut span = traces.start_span(builder, &parent);
    request.extensions_mut().insert(Within(Some(span.span_context().clone())));
    let response = next.run(request).await;
    let status = response.status();
    span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
    if status.is_server_error() {
        span.set_attribute(KeyValue::new("error.type", status.as_str().to_owned()));
        span.set_status(Status::error(""));
    }
    response
}
