//! A proxy before the S3-protocol server that injects faults into chosen requests.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

type Body = BoxBody<Bytes, std::io::Error>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Answers 500 without forwarding the request.
    Refuse,
    /// Forwards the request and answers 500.
    LoseAnswer,
    /// Never answers.
    Hang,
    /// Sends half of the body and closes the connection.
    Cut,
    /// Changes a bit in the last byte of the body.
    Flip,
    /// Answers 200 when the server refused to replace an object.
    AcceptOverwrite,
}

/// Which requests get a fault: by method and end of the path, a number of times.
#[derive(Debug, Clone, Copy)]
struct FaultRule {
    fault: Fault,
    method: &'static str,
    path_end: &'static str,
    times: usize,
}

pub struct Proxy {
    pub endpoint: String,
    rule: Arc<Mutex<Option<FaultRule>>>,
    serving: JoinHandle<()>,
}

impl Proxy {
    pub async fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let rule = Arc::new(Mutex::new(None));
        let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let (server, shared_rule) = (server.to_owned(), Arc::clone(&rule));
        let serving = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (client, server, rule) = (client.clone(), server.clone(), Arc::clone(&shared_rule));
                let service = service_fn(move |request| {
                    let fault = take(&rule, request_line(&request));
                    let (client, server) = (client.clone(), server.clone());
                    async move { Ok::<_, Infallible>(answer(client, &server, request, fault).await) }
                });
                tokio::spawn(async move {
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { endpoint, rule, serving }
    }

    /// Replaces the current rule.
    pub fn inject(&self, fault: Fault, method: &'static str, path_end: &'static str, times: usize) {
        *self.rule.lock().unwrap() = Some(FaultRule { fault, method, path_end, times });
    }

    pub fn pass(&self) {
        *self.rule.lock().unwrap() = None;
    }

    /// How many more times the rule applies.
    pub fn left(&self) -> usize {
        self.rule.lock().unwrap().map_or(0, |rule| rule.times)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn request_line(request: &Request<Incoming>) -> (Method, String) {
    (request.method().clone(), request.uri().path().to_owned())
}

fn take(rule: &Mutex<Option<FaultRule>>, (method, path): (Method, String)) -> Option<Fault> {
    let mut rule = rule.lock().unwrap();
    let rule = rule.as_mut().filter(|rule| rule.times > 0)?;
    if rule.method != method.as_str() || !path.ends_with(rule.path_end) {
        return None;
    }
    rule.times -= 1;
    Some(rule.fault)
}

async fn answer(
    client: Client<HttpConnector, Full<Bytes>>,
    server: &str,
    request: Request<Incoming>,
    fault: Option<Fault>,
) -> Response<Body> {
    match fault {
        Some(Fault::Refuse) => return failed(),
        Some(Fault::Hang) => std::future::pending().await,
        _ => {}
    }
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    // `Host` stays unchanged, because the signature covers it.
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = format!("{server}{path}").parse().unwrap();
    let answer = client.request(Request::from_parts(parts, Full::new(body))).await.unwrap();
    let (mut parts, body) = answer.into_parts();
    let mut body = body.collect().await.unwrap().to_bytes();
    match fault {
        Some(Fault::LoseAnswer) => return failed(),
        Some(Fault::Cut) => {
            let half = Ok(Frame::data(body.slice(..body.len() / 2)));
            let pieces = stream::iter([half, Err(std::io::Error::other("cut"))]);
            return Response::from_parts(parts, BodyExt::boxed(StreamBody::new(pieces)));
        }
        Some(Fault::Flip) => {
            let mut changed = body.to_vec();
            *changed.last_mut().unwrap() ^= 1;
            body = changed.into();
        }
        Some(Fault::AcceptOverwrite) if parts.status == StatusCode::PRECONDITION_FAILED => {
            return Response::builder().header("etag", "\"x\"").body(whole(Bytes::new())).unwrap();
        }
        _ => {}
    }
    parts.headers.remove("transfer-encoding");
    Response::from_parts(parts, whole(body))
}

fn failed() -> Response<Body> {
    Response::builder().status(500).body(whole(Bytes::from_static(b"injected"))).unwrap()
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}
