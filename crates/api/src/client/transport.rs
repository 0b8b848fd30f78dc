//! Sends calls and reads answers: addresses, formats, connections, repetition.

use super::{ClientError, Result};
use crate::code::Code;
use crate::format::Format;
use crate::problem::{PROBLEM_JSON, Problem};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::pin;
use std::time::Duration;

/// The most a client reads of one answer: a page of the largest items and more.
const ANSWER_BYTES_MAX: usize = 1 << 30;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_MAX: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub(super) struct Transport {
    http: Client<HttpConnector, Full<Bytes>>,
    /// Without a slash at the end.
    base: String,
    token: Option<HeaderValue>,
    pub(super) format: Format,
    pub(super) patience: Duration,
}

/// Whether a call may be sent again when its answer was lost.
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
    body: Option<Bytes>,
}

impl Call {
    pub(super) fn new(method: Method, path: String, repeat: Repeat) -> Call {
        Call { method, path, repeat, body: None }
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
}

/// An attempt that brought no result.
enum Failed {
    /// The request was not carried out, and may be another time.
    NotYet(ClientError),
    /// Nobody knows whether the request was carried out.
    Lost(ClientError),
    /// The server has answered.
    Final(ClientError),
}

impl Transport {
    pub(super) fn new(url: &str) -> Result<Transport> {
        let base = url.trim().trim_end_matches('/').to_owned();
        let wrong = |why: &str| {
            let remedy = "use an address like http://127.0.0.1:7420";
            ClientError::Configuration(format!("{url:?} is not the address of a server: {why}; {remedy}"))
        };
        let uri: Uri = base.parse().map_err(|error: http::uri::InvalidUri| wrong(&error.to_string()))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(wrong("this client speaks http, not https")),
            _ => return Err(wrong("it must begin with http://")),
        }
        if uri.host().is_none() || uri.query().is_some() {
            return Err(wrong("it must be a host and a port, and at most a path"));
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            // The server hangs up on who is silent for 30 s: a connection must not be taken up again at that moment.
            .pool_idle_timeout(IDLE_MAX)
            // A request that a dead connection never took is sent on another; all else is decided in `exchange`.
            .retry_canceled_requests(true)
            .build(connector);
        let patience = Duration::from_secs(10);
        Ok(Transport { http, base, token: None, format: Format::MessagePack, patience })
    }

    pub(super) fn set_token(&mut self, token: &str) -> Result<()> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| {
            ClientError::Configuration("the token has characters that no token has".to_owned())
        })?;
        value.set_sensitive(true);
        self.token = Some(value);
        Ok(())
    }

    pub(super) fn url(&self) -> &str {
        &self.base
    }

    pub(super) fn body<T: Serialize>(&self, mut call: Call, body: &T) -> Result<Call> {
        let encoded = self.format.encode(body).map_err(|error| ClientError::invalid(error.to_string()))?;
        call.body = Some(encoded.into());
        Ok(call)
    }

    pub(super) async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let (format, body) = self.exchange(call).await?;
        format.decode(&body).map_err(|error| self.misunderstood(error.to_string()))
    }

    pub(super) async fn call_empty(&self, call: Call) -> Result<()> {
        self.exchange(call).await.map(drop)
    }

    fn misunderstood(&self, what: String) -> ClientError {
        ClientError::Protocol { url: self.base.clone(), what }
    }

    async fn exchange(&self, call: Call) -> Result<(Format, Bytes)> {
        let mut patience = pin!(tokio::time::sleep(self.patience));
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.attempt(&call).await {
                Ok(answer) => return Ok(answer),
                Err(Failed::NotYet(error)) => error,
                Err(Failed::Lost(error)) if call.repeat == Repeat::Safe => error,
                Err(Failed::Lost(error) | Failed::Final(error)) => return Err(error),
            };
            tokio::select! {
                biased;
                () = &mut patience => return Err(error),
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&self, call: &Call) -> std::result::Result<(Format, Bytes), Failed> {
        let request = self.request(call).map_err(Failed::Final)?;
        let unreachable = |cause: &(dyn std::error::Error + 'static)| ClientError::Unreachable {
            url: self.base.clone(),
            cause: root(cause),
        };
        let response = match self.http.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Err(Failed::NotYet(unreachable(&error))),
            Err(error) => return Err(Failed::Lost(unreachable(&error))),
        };
        let (status, content_type) = (response.status(), response.headers().get(CONTENT_TYPE).cloned());
        let body = read(response).await.map_err(|error| Failed::Lost(unreachable(&*error)))?;
        let content_type = content_type.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
        if status.is_success() {
            let format = Format::of(content_type).or(body.is_empty().then_some(Format::Json));
            let misunderstood =
                || Failed::Final(self.misunderstood(format!("content type {content_type:?}")));
            return Ok((format.ok_or_else(misunderstood)?, body));
        }
        let is_problem = content_type.starts_with(PROBLEM_JSON);
        let problem = is_problem.then(|| Format::Json.decode::<Problem>(&body).ok()).flatten();
        Err(match problem {
            // Nothing of it was done.
            Some(problem) if matches!(Code::parse(&problem.code), Some(Code::Busy | Code::Stopping)) => {
                Failed::NotYet(ClientError::Refused(Box::new(problem)))
            }
            Some(problem) => Failed::Final(ClientError::Refused(Box::new(problem))),
            None => Failed::Final(self.misunderstood(format!("status {status}"))),
        })
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", self.base, call.path))
            .header(ACCEPT, self.format.content_type());
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, self.format.content_type());
        }
        request
            .body(Full::new(call.body.clone().unwrap_or_default()))
            .map_err(|error| ClientError::Configuration(error.to_string()))
    }
}

async fn read(
    response: Response<Incoming>,
) -> std::result::Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    Ok(Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?.to_bytes())
}

/// The innermost cause: what a person can act on.
fn root(mut error: &dyn std::error::Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
