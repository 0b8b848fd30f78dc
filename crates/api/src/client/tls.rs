//! TLS of the client: which certificates it trusts, and how it reports one that it does not trust.

use super::{ClientError, Result};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, InvalidMessage, RootCertStore};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

pub(super) type Connector = HttpsConnector<HttpConnector>;

/// Which certificate authorities the client trusts.
#[derive(Debug)]
pub(super) enum Trust<'a> {
    /// The connection is not encrypted.
    NotNeeded,
    /// The system's certificate authorities.
    System,
    /// Only the certificates in this file.
    File(&'a Path),
}

pub(super) fn connector(mut http: HttpConnector, trust: &Trust<'_>) -> Result<Connector> {
    // The TLS connector passes `https` addresses to this one, so it must accept them.
    http.enforce_http(false);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Configuration(format!("no TLS: {error}")))?
        .with_root_certificates(roots(trust)?)
        .with_no_client_auth();
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .wrap_connector(http))
}

fn roots(trust: &Trust<'_>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::NotNeeded => {}
        // Without system certificates the first call fails with `Untrusted`, which says what to do.
        Trust::System => {
            let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Trust::File(path) => {
            let wrong = |why: String| {
                let path = path.display();
                ClientError::Configuration(format!(
                    "{path} cannot be trusted: {why}; use certificates in PEM"
                ))
            };
            let certs = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
            for cert in certs {
                let cert = cert.map_err(|error| wrong(error.to_string()))?;
                roots.add(cert).map_err(|error| wrong(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(wrong("there is no certificate in it".to_owned()));
            }
        }
    }
    Ok(roots)
}

/// What is wrong with TLS, if that is the cause of the error. The next call would fail in the same way.
pub(super) fn failure(url: &str, error: &(dyn Error + 'static)) -> Option<ClientError> {
    if let Some(error) = error.downcast_ref() {
        return explain(url.to_owned(), error);
    }
    // The source of an I/O error is the source of the error inside it, so look at that error itself too.
    let wrapped = error.downcast_ref().and_then(std::io::Error::get_ref);
    let inside = wrapped.and_then(|inner| failure(url, inner));
    inside.or_else(|| error.source().and_then(|source| failure(url, source)))
}

fn explain(url: String, error: &rustls::Error) -> Option<ClientError> {
    match error {
        // The server answered with text where TLS has records.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(ClientError::NoTls { url }),
        rustls::Error::InvalidCertificate(why) => Some(match why {
            CertificateError::NotValidForNameContext { presented, .. } => {
                let names = presented.iter().map(|name| plain_name(name)).collect();
                ClientError::WrongName { url, names }
            }
            CertificateError::ExpiredContext { .. } | CertificateError::NotValidYetContext { .. } => {
                ClientError::Expired { url, why: why.to_string() }
            }
            _ => ClientError::Untrusted { url, why: why.to_string() },
        }),
        _ => None,
    }
}

/// The TLS library names a name as `DnsName("localhost")` or `IpAddress(127.0.0.1)`.
fn plain_name(name: &str) -> String {
    let inside = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inside.unwrap_or(name).trim_matches('"').to_owned()
}
