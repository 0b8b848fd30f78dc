//! The way to the collector: OTLP as protobuf over HTTP, with the client that is in the house.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use rustls::{ClientConfig, RootCertStore};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use towline_api::Secret;

/// One call.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Of an answer, which nobody reads far.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Why the latest call was not answered: the exporter does not tell.
#[derive(Debug, Clone, Default)]
pub(super) struct Cause(Arc<Mutex<Option<String>>>);

impl Cause {
    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self) -> Option<String> {
        self.lock().take()
    }
}

pub(super) fn exporter(
    endpoint: &str,
    headers: &[(String, Secret)],
    resource: &Resource,
) -> Result<(SpanExporter, Cause), String> {
    let headers: HashMap<String, String> =
        headers.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
    let cause = Cause::default();
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Post::new(cause.clone())?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint)
        .with_headers(headers)
        .build()
        .map_err(|error| error.to_string())?;
    exporter.set_resource(resource);
    Ok((exporter, cause))
}

#[derive(Debug)]
struct Post {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    cause: Cause,
}

impl Post {
    fn new(cause: Cause) -> Result<Post, String> {
        let mut roots = RootCertStore::empty();
        // If there are none, the first call over TLS says so.
        let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("no TLS: {error}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CALL_MAX));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Ok(Post { client: Client::builder(TokioExecutor::new()).build(connector), cause })
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let exchange = async {
            let (parts, body) = self.client.request(request.map(Full::new)).await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
            Ok(Response::from_parts(parts, body))
        };
        let answer = tokio::time::timeout(CALL_MAX, exchange).await.unwrap_or_else(|late| Err(late.into()));
        *self.cause.lock() = answer.as_ref().err().map(|error: &HttpError| root(&**error));
        answer
    }
}

impl HttpClient for Post {
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> BoxFuture<'f, Result<Response<Bytes>, HttpError>>
    where
        'a: 'f,
        Self: 'f,
    {
        self.send(request).boxed()
    }
}

/// The innermost cause: what a person can act on.
fn root(mut error: &dyn std::error::Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
