//! TLS to the database.

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
pub(crate) enum Protection {
    Disable,
    /// Encrypted if the server can.
    Prefer,
    /// Encrypted, whoever answers; with certificates given, one of theirs.
    Require,
    /// Encrypted, and the certificate is signed by somebody who is trusted.
    VerifyCa,
    /// And it is for the host that was named.
    VerifyFull,
}

impl FromStr for Protection {
    type Err = String;

    fn from_str(text: &str) -> Result<Protection, String> {
        match text {
            "disable" => Ok(Protection::Disable),
            "prefer" => Ok(Protection::Prefer),
            "require" => Ok(Protection::Require),
            "verify-ca" => Ok(Protection::VerifyCa),
            "verify-full" => Ok(Protection::VerifyFull),
            other => Err(format!("sslmode={other}: use disable, prefer, require, verify-ca or verify-full")),
        }
    }
}

pub(crate) fn connector(protection: Protection, roots: Option<&Path>) -> Result<Connector, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let check = match (protection, roots) {
        (Protection::VerifyFull, _) => Check::Name,
        (Protection::VerifyCa, _) | (Protection::Require, Some(_)) => Check::Signature,
        (Protection::Disable | Protection::Prefer | Protection::Require, _) => Check::Nothing,
    };
    let trusted = match check {
        Check::Nothing => None,
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
            true => Err("the system trusts no certificates; name some with sslrootcert=<file>".to_owned()),
            false => Ok(roots),
        };
    };
    let wrong = |why: String| format!("sslrootcert={}: {why}", path.display());
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() { Err(wrong("there is no certificate in it".to_owned())) } else { Ok(roots) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    Nothing,
    Signature,
    Name,
}

/// Checks as much of a certificate as was asked for. That the server holds its key is checked always.
#[derive(Debug)]
struct Verifier {
    check: Check,
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
            // The name is looked at last: everything else is well.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == Check::Signature => Ok(ServerCertVerified::assertion()),
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

/// A fault of a connection, with what to do about a handshake that failed.
pub(crate) fn explained(error: StoreError) -> StoreError {
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
        // The same name, another key.
        (
            "BadSignature",
            "whoever is trusted under that name did not sign the certificate; name its CA with sslrootcert=<file>",
        ),
        (
            "UnknownIssuer",
            "nobody who is trusted signed the certificate of the database; name its CA with sslrootcert=<file>",
        ),
        (
            "not valid for name",
            "the certificate of the database is for another host; name that one, or say sslmode=verify-ca",
        ),
        ("Expired", "the certificate of the database has expired; renew it"),
        (
            "server does not support TLS",
            "turn ssl on in PostgreSQL, or say sslmode=disable if the network around it is trusted",
        ),
    ];
    remedies.into_iter().find(|(sign, _)| words.contains(sign)).map(|(_, remedy)| remedy)
}
