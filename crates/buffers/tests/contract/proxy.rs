//! Between buffers and the S3-protocol server: passes requests on, and spoils those it is told to.

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
pub enum Spoil {
    /// Answers 500 without asking the server.
    Refuse,
    /// Asks the server, and answers 500 whatever it says.
    LoseAnswer,
    /// Never answers.
    Hang,
    /// Sends half of the body and closes.
    Cut,
    /// Changes a bit in the last byte of the body.
    Flip,
    /// Says that all is well when the server refused.
    Deny412,
}

/// What to spoil: requests of a method whose path ends so, so many times.
#[derive(Debug, Clone, Copy)]
struct Order {
    spoil: Spoil,
    method: &'static str,
    path_end: &'static str,
    times: usize,
}

pub struct Proxy {
    pub endpoint: String,
    order: Arc<Mutex<Option<Order>>>,
    serving: JoinHandle<()>,
}

impl Proxy {
    pub async fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let order = Arc::new(Mutex::new(None));
        let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let (server, orders) = (server.to_owned(), Arc::clone(&order));
        let serving = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (client, server, orders) = (client.clone(), server.clone(), Arc::clone(&orders));
                let service = service_fn(move |request| {
                    let spoil = take(&orders, request_line(&request));
                    let (client, server) = (client.clone(), server.clone());
                    async move { Ok::<_, Infallible>(answer(client, &server, request, spoil).await) }
                });
                tokio::spawn(async move {
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection.serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Self { endpoint, order, serving }
    }

    /// Replaces what was ordered before.
    pub fn spoil(&self, spoil: Spoil, method: &'static str, path_end: &'static str, times: usize) {
        *self.order.lock().unwrap() = Some(Order { spoil, method, path_end, times });
    }

    pub fn pass(&self) {
        *self.order.lock().unwrap() = None;
    }

    /// How often the order is still to be carried out.
    pub fn left(&self) -> usize {
        self.order.lock().unwrap().map_or(0, |order| order.times)
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

fn take(orders: &Mutex<Option<Order>>, (method, path): (Method, String)) -> Option<Spoil> {
    let mut order = orders.lock().unwrap();
    let order = order.as_mut().filter(|order| order.times > 0)?;
    if order.method != method.as_str() || !path.ends_with(order.path_end) {
        return None;
    }
    order.times -= 1;
    Some(order.spoil)
}

async fn answer(
    client: Client<HttpConnector, Full<Bytes>>,
    server: &str,
    request: Request<Incoming>,
    spoil: Option<Spoil>,
) -> Response<Body> {
    match spoil {
        Some(Spoil::Refuse) => return failed(),
        Some(Spoil::Hang) => std::future::pending().await,
        _ => {}
    }
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    // `Host` stays as it was signed.
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = format!("{server}{path}").parse().unwrap();
    let answer = client.request(Request::from_parts(parts, Full::new(body))).await.unwrap();
    let (mut parts, body) = answer.into_parts();
    let mut body = body.collect().await.unwrap().to_bytes();
    match spoil {
        Some(Spoil::LoseAnswer) => return failed(),
        Some(Spoil::Cut) => {
            let half = Ok(Frame::data(body.slice(..body.len() / 2)));
            let pieces = stream::iter([half, Err(std::io::Error::other("cut"))]);
            return Response::from_parts(parts, BodyExt::boxed(StreamBody::new(pieces)));
        }
        Some(Spoil::Flip) => {
            let mut changed = body.to_vec();
            *changed.last_mut().unwrap() ^= 1;
            body = changed.into();
        }
        Some(Spoil::Deny412) if parts.status == StatusCode::PRECONDITION_FAILED => {
            return Response::builder().header("etag", "\"x\"").body(whole(Bytes::new())).unwrap();
        }
        _ => {}
    }
    parts.headers.remove("transfer-encoding");
    Response::from_parts(parts, whole(body))
}

fn failed() -> Response<Body> {
    Response::builder().status(500).body(whole(Bytes::from_static(b"spoilt"))).unwrap()
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}
