//! TLS: the certificate, and how it is read anew under connections that go on.

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;

/// HTTP/2 for who can.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Where certificate and key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM: the server's own certificate first, then those that lead to its authority.
    pub cert: PathBuf,
    /// PEM, not encrypted.
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}: {error}")]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{path}: {why}; use PEM, as a certificate authority gives it")]
    Pem { path: PathBuf, why: String },
    #[error("{cert} and {key} cannot be used together: {why}", cert = .0.cert.display(), key = .0.key.display(), why = .1)]
    Pair(TlsFiles, rustls::Error),
}

/// What connections are accepted with.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    /// For the connections to come; those there are keep what they began with.
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    pub(crate) fn open(files: TlsFiles) -> Result<Tls, TlsError> {
        let config = RwLock::new(read(&files)?);
        Ok(Tls { files, config })
    }

    /// Reads the files again. What cannot be used leaves everything as it was.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let config = read(&self.files)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&config))
    }
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let certs: Vec<CertificateDer> = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(&files.cert, error))?;
    if certs.is_empty() {
        return Err(wrong(&files.cert, pem::Error::NoItemsFound));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, error))?;
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

fn wrong(path: &Path, error: pem::Error) -> TlsError {
    let path = path.to_owned();
    match error {
        pem::Error::Io(error) => TlsError::Read { path, error },
        pem::Error::NoItemsFound => TlsError::Pem { path, why: "it has none of what is needed".to_owned() },
        // Of what it says only the kind is told: a key must not end up in a log.
        _ => TlsError::Pem { path, why: "it cannot be read".to_owned() },
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
    fn what_cannot_be_used_is_told_and_leaves_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (one, other) = (made(), made());
        let (cert, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        let tls = Tls::open(files(directory.path(), &cert, &key)).unwrap();
        let config = || Arc::clone(&tls.config.read().unwrap());
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
