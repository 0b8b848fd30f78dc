//! TLS: the certificate, and reloading it without interrupting connections.

use parking_lot::RwLock;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, ServerConfig};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// In order of preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The files of the certificate and of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM: the certificate of the server first, then the chain to its authority.
    pub cert: PathBuf,
    /// PEM, not encrypted.
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}: {error}")]
    Read { path: PathBuf, error: io::Error },
    #[error("{path}: {why}; use a PEM file")]
    Pem { path: PathBuf, why: String },
    #[error("cannot use {cert} and {key} together: {why}", cert = .0.cert.display(), key = .0.key.display(), why = .1)]
    Pair(TlsFiles, Error),
}

/// The TLS configuration of new connections.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    /// Replaced by a reload. Open connections keep the configuration they started with.
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    pub(crate) fn open(files: TlsFiles) -> Result<Tls, TlsError> {
        let config = RwLock::new(read(&files)?);
        Ok(Tls { files, config })
    }

    /// Reads the files again. If they are not valid, the configuration stays as it was.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let config = read(&self.files)?;
        *self.config.write() = config;
        Ok(())
    }

    /// The first of these hosts that the certificate is valid for, or else its first own name.
    pub(crate) fn host(&self, hosts: &[String]) -> Option<String> {
        let cert = CertificateDer::pem_file_iter(&self.files.cert).ok()?.find_map(Result::ok)?;
        let cert = ParsedCertificate::try_from(&cert).ok()?;
        let mut names = Vec::new();
        for host in hosts {
            match verify_server_name(&cert, &ServerName::try_from(host.as_str()).ok()?) {
                Ok(()) => return Some(host.clone()),
                Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                    presented,
                    ..
                })) => names = presented,
                Err(_) => return None,
            }
        }
        names.iter().find_map(|name| Some(name.strip_prefix("DnsName(\"")?.strip_suffix("\")")?.to_owned()))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let config = self.config.read();
        TlsAcceptor::from(Arc::clone(&config))
    }
}

/// How a client begins a connection to a port that accepts only TLS.
pub(crate) enum Handshake {
    Tls(Box<TlsStream<TcpStream>>),
    /// An HTTP request without TLS, not read yet. It gets an answer that says so.
    PlainHttp(TcpStream),
}

pub(crate) async fn handshake(acceptor: TlsAcceptor, stream: TcpStream) -> io::Result<Handshake> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    // A TLS handshake begins with 0x16, a request with the name of its method.
    if first[0].is_ascii_uppercase() {
        return Ok(Handshake::PlainHttp(stream));
    }
    Ok(Handshake::Tls(Box::new(acceptor.accept(stream).await?)))
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let certs: Vec<CertificateDer> = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect)
        .map_err(|error| pem_error(&files.cert, error))?;
    if certs.is_empty() {
        return Err(pem_error(&files.cert, pem::Error::NoItemsFound));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| pem_error(&files.key, error))?;
    let pair = |error| TlsError::Pair(files.clone(), error);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .map_err(pair)?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(Arc::new(config))
}

fn pem_error(path: &Path, error: pem::Error) -> TlsError {
    let path = path.to_owned();
    match error {
        pem::Error::Io(error) => TlsError::Read { path, error },
        pem::Error::NoItemsFound => {
            TlsError::Pem { path, why: "it contains no certificate or key".to_owned() }
        }
        // The error may quote the file, and a key must not end up in a log.
        _ => TlsError::Pem { path, why: "it is not valid PEM".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path, cert: &str, key: &str) -> TlsFiles {
        let files = TlsFiles { cert: directory.join("cert.pem"), key: directory.join("key.pem") };
        std::fs::write(&files.cert, cert).unwrap();
        std::fs::write(&files.key, key).unwrap();
        files
    }

    #[test]
    fn an_invalid_certificate_is_reported_and_the_old_one_stays() {
        let directory = tempfile::tempdir().unwrap();
        let generate = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (one, other) = (generate(), generate());
        let (cert, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        let tls = Tls::open(files(directory.path(), &cert, &key)).unwrap();
        let config = || Arc::clone(&tls.config.read());
        let before = config();
        let other_key = other.signing_key.serialize_pem();
        for (cert, key, named) in [
            ("", key.as_str(), "cert.pem"),
            ("garbage", &key, "cert.pem"),
            (&key, &key, "cert.pem"),
            (&cert, "", "key.pem"),
            (&cert, &cert, "key.pem"),
            (&cert, &other_key, "together"),
        ] {
            files(directory.path(), cert, key);
            let error = tls.reload().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
            assert!(!error.contains("PRIVATE"), "{error}");
            assert!(Arc::ptr_eq(&before, &config()));
        }
        std::fs::remove_file(directory.path().join("key.pem")).unwrap();
        assert!(matches!(tls.reload(), Err(TlsError::Read { .. })));
        files(directory.path(), &other.cert.pem(), &other_key);
        tls.reload().unwrap();
        assert!(!Arc::ptr_eq(&before, &config()));
    }
}
