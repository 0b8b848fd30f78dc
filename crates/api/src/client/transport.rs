//! Sends calls and reads answers: addresses, formats, connections, retries.

use super::request_body::RequestBody;
use super::tls::{self, Connector, Trust};
use super::unix_socket::UnixConnector;
use super::{ClientError, Result};
use crate::WAIT_MAX;
use crate::buffer::LEASE_HEADER;
use crate::code::Code;
use crate::format::Format;
use crate::problem::{PROBLEM_JSON, Problem};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::uri::InvalidUri;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Builder, Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc;
use towline_domain::{ItemId, Trace};

/// Maximum size of an answer. A page of the largest items fits.
const ANSWER_BYTES_MAX: usize = 1 << 30;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time of an answer, on top of the time that the call asks the server to wait. A server is far
/// faster, even with slow object storage.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// The slowest connection that the time limit of a call allows for.
const BYTES_PER_SECOND_MIN: u64 = 128 << 10;
/// Keep-alive probes. They end the connections of a machine that disappeared without closing them.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
const IDLE_MAX: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Answers of a proxy whose server is away or overloaded.
const PASSING: [StatusCode; 4] = [
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];
/// The name under which a server shows this client among the consumers of a queue.
const CLIENT: HeaderName = HeaderName::from_static("x-towline-client");
const RAW: HeaderValue = HeaderValue::from_static("application/octet-stream");

#[derive(Debug, Clone)]
pub(super) struct Transport {
    http: Pool,
    /// The address of the server. Without a slash at the end.
    base: String,
    /// What the address of a request begins with. For a Unix socket, requests need a host although it has none.
    request_base: String,
    token: Option<HeaderValue>,
    name: Option<HeaderValue>,
    lease: Option<HeaderValue>,
    trace: Vec<(&'static str, HeaderValue)>,
    pub(super) format: Format,
    pub(super) retry_for: Duration,
}

/// Connections to the server.
#[derive(Debug, Clone)]
enum Pool {
    Tcp(Client<Connector, RequestBody>),
    Unix(Client<UnixConnector, RequestBody>),
}

impl Pool {
    fn tcp(trust: &Trust<'_>) -> Result<Pool> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_keepalive(Some(KEEPALIVE_AFTER));
        connector.set_keepalive_interval(Some(KEEPALIVE_EVERY));
        connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        Ok(Pool::Tcp(builder().build(tls::connector(connector, trust)?)))
    }

    fn request(&self, request: Request<RequestBody>) -> ResponseFuture {
        match self {
            Pool::Tcp(http) => http.request(request),
            Pool::Unix(http) => http.request(request),
        }
    }
}

fn builder() -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .pool_timer(TokioTimer::new())
        // The server closes connections after 30 s of silence. A connection must not be reused at that
        // moment.
        .pool_idle_timeout(IDLE_MAX)
        // A request that a dead connection never took is sent on another one. `with_retries` decides
        // everything else.
        .retry_canceled_requests(true);
    builder
}

/// Whether a call may be repeated after its answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Safe,
    Unsafe,
}

#[derive(Debug)]
pub(super) struct Call {
    method: Method,
    path: String,
    repeat: Repeat,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Option<Bytes>,
    /// Time limit of one attempt: to the headers of the answer, and between two pieces of its body.
    limit: Duration,
}

/// A successful answer.
#[derive(Debug)]
pub(super) struct HttpAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The body as it arrived. A large body is not copied into one piece.
    pub(super) pieces: Vec<Bytes>,
}

impl Call {
    pub(super) fn new(method: Method, path: String, repeat: Repeat) -> Call {
        Call { method, path, repeat, headers: Vec::new(), body: None, limit: ANSWER_LIMIT }
    }

    pub(super) fn get(path: String) -> Call {
        Call::new(Method::GET, path, Repeat::Safe)
    }

    pub(super) fn query(mut self, pairs: impl IntoIterator<Item = (&'static str, String)>) -> Call {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        if !query.is_empty() {
            self.path.push('?');
            self.path.push_str(&query);
        }
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: &str) -> Result<Call> {
        let value = HeaderValue::try_from(value)
            .map_err(|_| ClientError::invalid(format!("{name}: {value:?} cannot be sent")))?;
        self.headers.push((HeaderName::from_static(name), value));
        Ok(self)
    }

    /// Sets a body of raw bytes.
    pub(super) fn raw(mut self, body: Bytes) -> Call {
        self.headers.push((CONTENT_TYPE, RAW));
        self.body = Some(body);
        self
    }

    /// Sets a longer time limit.
    pub(super) fn within(mut self, limit: Duration) -> Call {
        self.limit = limit;
        self
    }

    /// Adds the time that the call asks the server to wait, at most the allowed maximum.
    pub(super) fn waiting(self, wait: Duration) -> Call {
        self.within(wait.min(Duration::from_millis(WAIT_MAX.0)) + ANSWER_LIMIT)
    }

    fn limit(&self) -> Duration {
        let bytes = self.body.as_ref().map_or(0, Bytes::len) as u64;
        self.limit + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN)
    }
}

/// An attempt without a result.
enum Failed {
    /// The server did not carry out the request, and might accept it later.
    NotYet(ClientError),
    /// The server may or may not have carried out the request.
    Lost(ClientError),
    /// The server refused the request.
    Final(ClientError),
}

impl Transport {
    pub(super) fn new(url: &str) -> Result<Transport> {
        let base = url.trim().trim_end_matches('/').to_owned();
        let wrong = |why: &str| {
            let remedy = "use an address like http://127.0.0.1:7420, or unix:/path";
            ClientError::Configuration(format!("{url:?} is not the address of a server: {why}; {remedy}"))
        };
        let (http, request_base) = match base.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => {
                let connector = UnixConnector(Path::new(path).into());
                (Pool::Unix(builder().build(connector)), "http://localhost".to_owned())
            }
            Some(_) => return Err(wrong("a Unix socket needs its whole path")),
            None => {
                let uri: Uri = base.parse().map_err(|error: InvalidUri| wrong(&error.to_string()))?;
                let trust = match uri.scheme_str() {
                    Some("http") => Trust::NotNeeded,
                    Some("https") => Trust::System,
                    _ => return Err(wrong("it must begin with http://, https:// or unix:")),
                };
                if uri.host().is_none() || uri.query().is_some() {
                    return Err(wrong("it must be a host and a port, and at most a path"));
                }
                (Pool::tcp(&trust)?, base.clone())
            }
        };
        let retry_for = Duration::from_secs(10);
        Ok(Transport {
            http,
            base,
            request_base,
            token: None,
            name: None,
            lease: None,
            trace: Vec::new(),
            format: Format::MessagePack,
            retry_for,
        })
    }

    /// Whether the network between client and server can read what they send.
    pub(super) fn is_exposed(&self) -> bool {
        let Ok(uri) = self.base.parse::<Uri>() else { return false };
        let host = uri.host().unwrap_or_default();
        let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        let last = host.rsplit('.').next().unwrap_or_default();
        let is_loopback = address.map_or(last.eq_ignore_ascii_case("localhost"), |ip| ip.is_loopback());
        uri.scheme_str() == Some("http") && !is_loopback
    }

    pub(super) fn set_ca_file(&mut self, path: &Path) -> Result<()> {
        self.http = Pool::tcp(&Trust::File(path))?;
        Ok(())
    }

    pub(super) fn set_trace(&mut self, trace: &Trace) {
        let headers = [
            ("traceparent", Some(trace.parent.to_string())),
            ("tracestate", trace.state.as_ref().map(ToString::to_string)),
        ];
        let value = |text: Option<String>| HeaderValue::try_from(text?).ok();
        self.trace = headers.into_iter().filter_map(|(name, text)| Some((name, value(text)?))).collect();
    }

    pub(super) fn set_token(&mut self, token: &str) -> Result<()> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| {
            ClientError::Configuration("the token has characters that no token has".to_owned())
        })?;
        value.set_sensitive(true);
        self.token = Some(value);
        Ok(())
    }

    pub(super) fn set_name(&mut self, name: &str) -> Result<()> {
        let value = HeaderValue::try_from(name).map_err(|_| {
            ClientError::Configuration(format!("{name:?} cannot be the name of a client; use ASCII text"))
        })?;
        self.name = Some(value);
        Ok(())
    }

    pub(super) fn set_lease(&mut self, item: &ItemId, lease: &str) -> Result<()> {
        let value = HeaderValue::try_from(format!("{item} {}", lease.trim()));
        let mut value = value.map_err(|_| {
            ClientError::Configuration("the lease has characters that no lease has".to_owned())
        })?;
        value.set_sensitive(true);
        self.lease = Some(value);
        Ok(())
    }

    pub(super) fn url(&self) -> &str {
        &self.base
    }

    pub(super) fn body<T: Serialize>(&self, mut call: Call, body: &T) -> Result<Call> {
        let encoded = self.format.encode(body).map_err(|error| ClientError::invalid(error.to_string()))?;
        call.headers.push((CONTENT_TYPE, HeaderValue::from_static(self.format.content_type())));
        call.body = Some(encoded.into());
        Ok(call)
    }

    pub(super) async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let answer = self.exchange(call).await?;
        self.decode(&answer.headers, answer.pieces)
    }

    fn decode<T: DeserializeOwned>(&self, headers: &HeaderMap, pieces: Vec<Bytes>) -> Result<T> {
        let body = match <[Bytes; 1]>::try_from(pieces) {
            Ok([whole]) => whole,
            Err(pieces) => pieces.concat().into(),
        };
        let content_type = text(headers, &CONTENT_TYPE);
        let format = Format::of(content_type).or(body.is_empty().then_some(Format::Json));
        let format = format.ok_or_else(|| self.misunderstood(format!("content type {content_type:?}")))?;
        format.decode(&body).map_err(|error| self.misunderstood(error.to_string()))
    }

    pub(super) async fn call_empty(&self, call: Call) -> Result<()> {
        self.exchange(call).await.map(drop)
    }

    pub(super) fn misunderstood(&self, what: String) -> ClientError {
        ClientError::Protocol { url: self.base.clone(), what }
    }

    pub(super) fn unreachable(&self, cause: &(dyn std::error::Error + 'static)) -> ClientError {
        ClientError::Unreachable { url: self.base.clone(), cause: root(cause) }
    }

    /// Sends a call and reads the whole answer.
    pub(super) async fn exchange(&self, call: Call) -> Result<HttpAnswer> {
        self.with_retries(call.repeat, || self.attempt(&call)).await
    }

    /// Sends a call and leaves the body to the caller.
    pub(super) async fn open(&self, call: Call) -> Result<Response<Incoming>> {
        self.with_retries(call.repeat, || self.send(&call)).await
    }

    async fn with_retries<T, F>(&self, repeat: Repeat, attempt: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, Failed>>,
    {
        let mut give_up = pin!(tokio::time::sleep(self.retry_for));
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match attempt().await {
                Ok(answer) => return Ok(answer),
                Err(Failed::NotYet(error)) => error,
                Err(Failed::Lost(error)) if repeat == Repeat::Safe => error,
                Err(Failed::Lost(error) | Failed::Final(error)) => return Err(error),
            };
            tokio::select! {
                biased;
                () = &mut give_up => return Err(error),
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn timed<T>(
        &self,
        limit: Duration,
        part: impl Future<Output = T>,
    ) -> std::result::Result<T, Failed> {
        tokio::time::timeout(limit, part).await.map_err(|_| {
            let cause = format!("no answer in {} s", limit.as_secs());
            Failed::Lost(ClientError::Unreachable { url: self.base.clone(), cause })
        })
    }

    async fn attempt(&self, call: &Call) -> std::result::Result<HttpAnswer, Failed> {
        let response = self.send(call).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let pieces = self.read(call, response).await?;
        Ok(HttpAnswer { status, headers, pieces })
    }

    /// Sends a call once, with a body in pieces, and reads the whole answer.
    pub(super) async fn upload<T: DeserializeOwned>(
        &self,
        call: Call,
        pieces: mpsc::Receiver<io::Result<Bytes>>,
    ) -> Result<T> {
        let sent = async {
            let response = self.send_body(&call, RequestBody::Pieces(pieces)).await?;
            let headers = response.headers().clone();
            Ok((headers, self.read(&call, response).await?))
        };
        let (headers, pieces) = sent.await.map_err(|failed| match failed {
            Failed::NotYet(error) | Failed::Lost(error) | Failed::Final(error) => error,
        })?;
        self.decode(&headers, pieces)
    }

    async fn send(&self, call: &Call) -> std::result::Result<Response<Incoming>, Failed> {
        self.send_body(call, RequestBody::Whole(Full::new(call.body.clone().unwrap_or_default()))).await
    }

    /// Sends a request. Reads the body of the answer only if the server refused.
    async fn send_body(
        &self,
        call: &Call,
        body: RequestBody,
    ) -> std::result::Result<Response<Incoming>, Failed> {
        let request = self.request(call, body).map_err(Failed::Final)?;
        let response = match self.timed(call.limit(), self.http.request(request)).await? {
            Ok(response) => response,
            Err(error) if error.is_connect() => {
                return Err(match tls::failure(&self.base, &error) {
                    Some(error) => Failed::Final(error),
                    None => Failed::NotYet(self.unreachable(&error)),
                });
            }
            // A TLS server that is not Towline answers a request without TLS with an alert.
            Err(error) if is_parse_error(&error) => {
                let what = "it is not HTTP; if the server accepts only TLS, use https://";
                return Err(Failed::Final(self.misunderstood(what.to_owned())));
            }
            Err(error) => return Err(Failed::Lost(self.unreachable(&error))),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let is_problem = text(response.headers(), &CONTENT_TYPE).starts_with(PROBLEM_JSON);
        let body = self.read(call, response).await?.concat();
        let problem = is_problem.then(|| Format::Json.decode::<Problem>(&body).ok()).flatten();
        Err(match problem {
            Some(problem) => {
                let code = Code::parse(&problem.code);
                let refused = ClientError::Refused(Box::new(problem));
                match code {
                    Some(Code::TlsRequired) => {
                        Failed::Final(ClientError::TlsRequired { url: self.base.clone() })
                    }
                    // The server did nothing.
                    Some(Code::Busy | Code::Stopping | Code::RateLimited) => Failed::NotYet(refused),
                    Some(Code::StorageUnavailable) => Failed::Lost(refused),
                    _ => Failed::Final(refused),
                }
            }
            // This answer is from a proxy. The server may be back in a moment.
            None if PASSING.contains(&status) => {
                let cause = format!("status {status} of something in between");
                Failed::Lost(ClientError::Unreachable { url: self.base.clone(), cause })
            }
            None => Failed::Final(self.misunderstood(format!("status {status}"))),
        })
    }

    async fn read(
        &self,
        call: &Call,
        response: Response<Incoming>,
    ) -> std::result::Result<Vec<Bytes>, Failed> {
        let (mut body, mut pieces, mut bytes) = (response.into_body(), Vec::new(), 0);
        while let Some(frame) = self.timed(call.limit, body.frame()).await? {
            let frame = frame.map_err(|error| Failed::Lost(self.unreachable(&error)))?;
            let Ok(data) = frame.into_data() else { continue };
            bytes += data.len();
            if bytes > ANSWER_BYTES_MAX {
                let what = format!("it is longer than {ANSWER_BYTES_MAX} bytes");
                return Err(Failed::Final(self.misunderstood(what)));
            }
            pieces.push(data);
        }
        Ok(pieces)
    }

    fn request(&self, call: &Call, body: RequestBody) -> Result<Request<RequestBody>> {
        let mut request =
            Request::builder().method(call.method.clone()).uri(format!("{}{}", self.request_base, call.path));
        if !call.headers.iter().any(|(name, _)| *name == ACCEPT) {
            request = request.header(ACCEPT, self.format.content_type());
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        let agent = HeaderValue::from_static(concat!("towline-client/", env!("CARGO_PKG_VERSION")));
        request = request.header(USER_AGENT, agent);
        if let Some(name) = &self.name {
            request = request.header(CLIENT, name.clone());
        }
        if let Some(lease) = &self.lease {
            request = request.header(LEASE_HEADER, lease.clone());
        }
        for (name, value) in &self.trace {
            request = request.header(*name, value.clone());
        }
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        request.body(body).map_err(|error| ClientError::Configuration(error.to_string()))
    }
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn is_parse_error(error: &dyn std::error::Error) -> bool {
    let source = error.source();
    source.and_then(|source| source.downcast_ref::<hyper::Error>()).is_some_and(hyper::Error::is_parse)
}

/// The innermost cause, which tells a person what to do.
fn root(mut error: &dyn std::error::Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Asks a server that sends this text and then nothing.
    async fn ask(says: &'static str) -> ClientError {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let silent = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_u8().await.unwrap();
            stream.write_all(says.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        });
        let transport = Transport::new(&url).unwrap();
        let call = Call::new(Method::POST, "/v1/settle".to_owned(), Repeat::Unsafe);
        let error = transport.exchange(call.within(Duration::from_secs(1))).await.unwrap_err();
        silent.abort();
        error
    }

    #[tokio::test]
    async fn a_call_to_a_silent_server_times_out() {
        for says in ["", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhal"] {
            let ClientError::Unreachable { cause, .. } = ask(says).await else { panic!("{says:?}") };
            assert_eq!(cause, "no answer in 1 s");
        }
    }

    #[tokio::test]
    async fn an_answer_of_a_proxy_is_not_a_refusal() {
        for (status, passes) in
            [("502 Bad Gateway", true), ("503 Service Unavailable", true), ("404 Not Found", false)]
        {
            let says =
                format!("HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\nhello");
            let error = ask(says.leak()).await;
            assert_eq!(matches!(&error, ClientError::Unreachable { .. }), passes, "{error}");
            assert!(error.to_string().contains(status), "{error}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_not_http_is_not_repeated_and_the_message_names_https() {
        // The alert of a TLS server that got a request without TLS.
        let error = ask("\x15\x03\x03\x00\x02\x02\x32").await;
        assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
        assert!(error.to_string().contains("use https://"), "{error}");
    }

    #[test]
    fn a_large_body_extends_the_time_limit() {
        let call = Call::get("/".to_owned());
        assert_eq!(call.limit(), ANSWER_LIMIT);
        let call = call.raw(Bytes::from(vec![0; 16 << 20]));
        assert_eq!(call.limit(), ANSWER_LIMIT + Duration::from_secs(128));
        assert_eq!(
            Call::get("/".to_owned()).waiting(Duration::MAX).limit(),
            ANSWER_LIMIT + Duration::from_secs(300)
        );
    }
}
