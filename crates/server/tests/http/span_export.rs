//! Exported spans, as a collector receives them.

use crate::reserved_port::ReservedPort;
use crate::test_server::TestServer;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Receives spans like a collector.
struct Collector {
    url: String,
    posts: mpsc::UnboundedReceiver<(String, HeaderMap, ExportTraceServiceRequest)>,
    seen: Vec<Span>,
    services: Vec<String>,
    headers: HeaderMap,
}

impl Collector {
    async fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (give, posts) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let give = give.clone();
                let take = service_fn(move |request: Request<Incoming>| {
                    let give = give.clone();
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let spans = ExportTraceServiceRequest::decode(body).unwrap();
                        let _ = give.send((parts.uri.path().to_owned(), parts.headers, spans));
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
                    }
                });
                tokio::spawn(async move {
                    let _ =
                        Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), take).await;
                });
            }
        });
        let (seen, services, headers) = (Vec::new(), Vec::new(), HeaderMap::new());
        Collector { url, posts, seen, services, headers }
    }

    async fn server(&self) -> TestServer {
        let url = format!("{}/v1/traces", self.url);
        TestServer::start_with(|settings| {
            settings.traces.endpoint = Some(url);
            settings.traces.headers = vec![("x-team".to_owned(), towline_api::Secret("mri".to_owned()))];
        })
        .await
    }

    /// Waits for a span with this name.
    async fn span(&mut self, name: &str) -> Span {
        loop {
            if let Some(span) = self.seen.iter().find(|span| span.name == name) {
                return span.clone();
            }
            let (path, headers, post) = self.posts.recv().await.unwrap();
            assert_eq!(path, "/v1/traces");
            self.headers = headers;
            for resource in post.resource_spans {
                let of = resource.resource.unwrap().attributes;
                self.services.push(text(&of, "service.name").unwrap());
                self.seen.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
    }
}

fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.clone()?.value? {
        Any::StringValue(text) => Some(text),
        Any::IntValue(number) => Some(number.to_string()),
        other => panic!("{name}: {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn submit(server: &TestServer, headers: &[(&str, &str)], body: Value) -> Value {
    let mut request = Request::post(format!("{}/v1/queues/jobs/items", server.url()))
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    server.send(request.body(Full::new(Bytes::from(body.to_string()))).unwrap()).await.success()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_continues_from_the_submitter_to_the_receiver() {
    let mut collector = Collector::start().await;
    let server = collector.server().await;
    server.queue("jobs", json!({})).await;
    submit(&server, &[("traceparent", PARENT), ("tracestate", "congo=t61")], json!({"items": [{}]})).await;

    let request = collector.span("POST /v1/queues/{queue}/items").await;
    assert_eq!(
        (hex(&request.trace_id).as_str(), hex(&request.parent_span_id).as_str()),
        (TRACE, "00f067aa0ba902b7")
    );
    assert_eq!((request.kind, request.trace_state.as_str()), (2, "congo=t61"), "the kind of a server span");
    let attribute = |name: &str| text(&request.attributes, name);
    assert_eq!(attribute("http.request.method").as_deref(), Some("POST"));
    assert_eq!(attribute("http.route").as_deref(), Some("/v1/queues/{queue}/items"));
    assert_eq!(attribute("http.response.status_code").as_deref(), Some("200"));
    let sent = collector.span("submit jobs").await;
    assert_eq!((&sent.trace_id, &sent.parent_span_id), (&request.trace_id, &request.span_id));
    assert_eq!(sent.kind, 4, "the kind of a producer span");
    assert_eq!(text(&sent.attributes, "messaging.destination.name").as_deref(), Some("jobs"));
    assert_eq!(text(&sent.attributes, "messaging.operation.type").as_deref(), Some("send"));

    let item = server.receive("jobs").await;
    let carried = format!("00-{TRACE}-{}-01", hex(&sent.span_id));
    assert_eq!(
        item["trace"],
        json!({"traceparent": carried, "tracestate": "congo=t61"}),
        "the span of its submit"
    );
    let given = collector.span("receive jobs").await;
    assert_ne!(hex(&given.trace_id), TRACE, "the receive is in another trace");
    assert_eq!(given.kind, 5, "the kind of a consumer span");
    let (id, lease) = (item["id"].as_str().unwrap(), item["lease"].as_str().unwrap());
    server.act(id, "commit", json!({"lease": lease})).await.success();
    let settled = collector.span("commit jobs").await;
    assert_eq!(text(&settled.attributes, "messaging.operation.type").as_deref(), Some("settle"));
    for span in [&given, &settled] {
        let links: Vec<_> = span.links.iter().map(|link| (&link.trace_id, &link.span_id)).collect();
        assert_eq!(links, [(&sent.trace_id, &sent.span_id)], "{}", span.name);
    }
    let act = collector.span("POST /v1/items/{id}/{verb}").await;
    assert_eq!((&settled.trace_id, &settled.parent_span_id), (&act.trace_id, &act.span_id));
    assert!(act.parent_span_id.is_empty(), "a new trace starts here");
    assert!(collector.services.iter().all(|service| service == "towline"), "{:?}", collector.services);
    assert_eq!(collector.headers["x-team"], "mri");
}

#[tokio::test(flavor = "multi_thread")]
async fn unsampled_traces_are_not_recorded() {
    let mut collector = Collector::start().await;
    let server = collector.server().await;
    server.queue("jobs", json!({})).await;
    let unsampled = "00-11111111111111111111111111111111-2222222222222222-00";
    submit(&server, &[("traceparent", unsampled)], json!({"items": [{}]})).await;
    let own = json!({"items": [{"trace": {"traceparent": PARENT}}]});
    submit(&server, &[], own).await;
    server.get("/healthz").await;
    server.get("/metrics").await;
    server.get("/v1/queues/none").await.problem("queue_not_found");
    let missing = collector.span("GET /v1/queues/{queue}").await;
    assert_eq!(text(&missing.attributes, "http.response.status_code").as_deref(), Some("404"));
    let names: Vec<&str> = collector.seen.iter().map(|span| span.name.as_str()).collect();
    let submits = names.iter().filter(|name| **name == "submit jobs").count();
    assert_eq!(submits, 1, "{names:?}");
    assert!(!names.iter().any(|name| name.contains("healthz") || name.contains("metrics")), "{names:?}");
    let trace = |item: &Value| item["trace"]["traceparent"].as_str().unwrap_or("").to_owned();
    let first = trace(&server.receive("jobs").await);
    assert!(first.starts_with("00-11111111111111111111111111111111-") && first.ends_with("-00"), "{first}");
    assert_eq!(trace(&server.receive("jobs").await), PARENT, "the trace of the item stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_down_delays_no_request() {
    let unused_port = ReservedPort::new();
    let mut server = TestServer::start_with(|settings| {
        settings.traces.endpoint = Some(format!("http://{}/v1/traces", unused_port.address()));
    })
    .await;
    server.queue("jobs", json!({})).await;
    for _ in 0..5000 {
        server.get("/v1/queues/jobs").await;
    }
    server.submit("jobs", json!([{}])).await;
    let (id, lease) = server.hold("jobs").await;
    server.act(&id, "commit", json!({"lease": lease})).await.success();
    let figures = String::from_utf8(server.get("/metrics").await.body.to_vec()).unwrap();
    let count = |outcome: &str| {
        let name = format!("towline_spans_total{{outcome=\"{outcome}\"}} ");
        let line = figures.lines().find_map(|line| line.strip_prefix(name.as_str()));
        line.unwrap_or_else(|| panic!("{figures}")).parse::<u64>().unwrap()
    };
    assert_eq!(count("sent"), 0);
    assert!(count("dropped") + count("lost") > 0, "more than the queue of spans holds");
    // Within the limit of the server. The test adds none.
    server.stop();
    server.stopped().await;
}
