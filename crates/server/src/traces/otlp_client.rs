//! The HTTP client of the span exporter: OTLP as protobuf over HTTP.

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
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use towline_api::Secret;

/// Limit for one request.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Limit for the body of a response.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Why the last request failed. The exporter itself does not report it.
#[derive(Debug, Clone, Default)]
pub(super) struct LastError(Arc<Mutex<Option<String>>>);

impl LastError {
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().take()
    }
}

pub(super) fn exporter(
    endpoint: &str,
    headers: &[(String, Secret)],
    resource: &Resource,
) -> Result<(SpanExporter, LastError), String> {
    let headers: HashMap<String, String> =
        headers.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
    let last_error = LastError::default();
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(OtlpClient::new(last_error.clone())?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint)
        .with_headers(headers)
        .build()
        .map_err(|error| error.to_string())?;
    exporter.set_resource(resource);
    Ok((exporter, last_error))
}

#[derive(Debug)]
struct OtlpClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    last_error: LastError,
}

impl OtlpClient {
    fn new(last_error: LastError) -> Result<OtlpClient, String> {
        let mut roots = RootCertStore::empty();
        // Without root certificates, the first request over TLS fails.
        let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("cannot set up TLS: {error}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(REQUEST_MAX));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Ok(OtlpClient { client: Client::builder(TokioExecutor::new()).build(connector), last_error })
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let exchange = async {
            let (parts, body) = self.client.request(request.map(Full::new)).await?.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await?.to_bytes();
            Ok(Response::from_parts(parts, body))
        };
        let response =
            tokio::time::timeout(REQUEST_MAX, exchange).await.unwrap_or_else(|late| Err(late.into()));
        *self.last_error.0.lock() = response.as_ref().err().map(|error: &HttpError| root_cause(&**error));
        response
    }
}

impl HttpClient for OtlpClient {
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

/// The innermost error, which is the most helpful one.
fn root_cause(mut error: &dyn std::error::Error) -> String {
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
