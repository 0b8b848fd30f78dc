//! TLS to the database, with the meaning that libpq gives to `sslmode`.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;
use towline_store::StoreError;

pub(crate) type Connector = MakeRustlsConnect;

/// libpq's `sslmode`, without `allow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsMode {
    Disable,
    /// Encrypts if the server can.
    Prefer,
    /// Encrypts. Checks the certificate's authority only if `sslrootcert` is given.
    Require,
    /// Encrypts, and checks that a trusted authority signed the certificate.
    VerifyCa,
    /// As `VerifyCa`, and checks that the certificate is for the host of the address.
    VerifyFull,
}

impl FromStr for TlsMode {
    type Err = String;

    fn from_str(text: &str) -> Result<TlsMode, String> {
        match text {
            "disable" => Ok(TlsMode::Disable),
            "prefer" => Ok(TlsMode::Prefer),
            "require" => Ok(TlsMode::Require),
            "verify-ca" => Ok(TlsMode::VerifyCa),
            "verify-full" => Ok(TlsMode::VerifyFull),
            other => Err(format!("sslmode={other}: use disable, prefer, require, verify-ca or verify-full")),
        }
    }
}

pub(crate) fn connector(tls_mode: TlsMode, roots: Option<&Path>) -> Result<Connector, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let check = match (tls_mode, roots) {
        (TlsMode::VerifyFull, _) => CertificateCheck::Name,
        (TlsMode::VerifyCa, _) | (TlsMode::Require, Some(_)) => CertificateCheck::Signature,
        (TlsMode::Disable | TlsMode::Prefer | TlsMode::Require, _) => CertificateCheck::Nothing,
    };
    let trusted = match check {
        CertificateCheck::Nothing => None,
        _ => {
            let roots = Arc::new(read_roots(roots)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            Some(verifier.map_err(|error| format!("no certificate to trust: {error}"))?)
        }
    };
    let verifier = Verifier { check, trusted, provider: provider.clone() };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("no TLS: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn read_roots(path: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(path) = path else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return match roots.is_empty() {
            true => Err("the system has no trusted certificates; set sslrootcert=<file>".to_owned()),
            false => Ok(roots),
        };
    };
    let wrong = |why: String| format!("sslrootcert={}: {why}", path.display());
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() { Err(wrong("the file has no certificate".to_owned())) } else { Ok(roots) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CertificateCheck {
    Nothing,
    Signature,
    Name,
}

/// Checks as much of a certificate as the TLS mode asks for. It always checks that the server has the certificate's key.
#[derive(Debug)]
struct Verifier {
    check: CertificateCheck,
    trusted: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        let verified = trusted.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // rustls checks the name last, so everything else is valid.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == CertificateCheck::Signature => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Adds to the error of a failed TLS handshake what to do about it.
pub(crate) fn with_remedy(error: StoreError) -> StoreError {
    match error {
        StoreError::Unavailable { cause } => {
            let cause = match remedy(&cause) {
                Some(remedy) => format!("{cause}; {remedy}"),
                None => cause,
            };
            StoreError::Unavailable { cause }
        }
        other => other,
    }
}

fn remedy(words: &str) -> Option<&'static str> {
    let remedies = [
        (
            "BadSignature",
            "the trusted authority of that name did not sign the certificate of the database; set sslrootcert=<file> to the \
             authority that did",
        ),
        (
            "UnknownIssuer",
            "no trusted authority signed the certificate of the database; set sslrootcert=<file> to the one that did",
        ),
        (
            "not valid for name",
            "the certificate of the database is for another host; use that host name, or sslmode=verify-ca",
        ),
        ("Expired", "the certificate of the database has expired; renew it"),
        (
            "server does not support TLS",
            "turn on ssl in PostgreSQL, or use sslmode=disable if you trust the network",
        ),
    ];
    remedies.into_iter().find(|(sign, _)| words.contains(sign)).map(|(_, remedy)| remedy)
}
