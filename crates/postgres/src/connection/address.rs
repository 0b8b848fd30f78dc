//! The address of a database, with libpq's `sslmode` and `sslrootcert`.

use crate::connection::tls::{self, Connector, TlsMode};
use std::path::PathBuf;
use std::str::FromStr;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use towline_store::StoreError;

/// The address of a database. Its `Debug` output has no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub config: Config,
    tls_mode: TlsMode,
    /// A PEM file with the certificates of trusted authorities; `None`: the ones that the system trusts.
    roots: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressError(String);

impl std::fmt::Display for AddressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AddressError {}

/// Takes the TLS mode from the configuration, or the default of an address if the configuration sets none.
impl From<Config> for Address {
    fn from(config: Config) -> Address {
        let tls_mode = match config.get_ssl_mode() {
            SslMode::Disable => TlsMode::Disable,
            SslMode::Require => TlsMode::Require,
            _ => default_tls_mode(&config),
        };
        Address { config, tls_mode, roots: None }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Address, AddressError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots) = (None, None);
        let mut rest_of_query = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value.parse().map_err(AddressError)?),
                Some(("sslrootcert", value)) => roots = Some(decoded(value)?),
                _ => rest_of_query.push(pair),
            }
        }
        let rest = if rest_of_query.is_empty() {
            base.to_owned()
        } else {
            format!("{base}?{}", rest_of_query.join("&"))
        };
        let config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
            // Only the cause: the text before it says no more than that the configuration is invalid.
            AddressError(std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string))
        })?;
        let tls_mode = mode.unwrap_or_else(|| default_tls_mode(&config));
        let roots = roots.filter(|path| path != "system").map(PathBuf::from);
        Ok(Address { config, tls_mode, roots })
    }
}

fn decoded(value: &str) -> Result<String, AddressError> {
    let wrong = || AddressError(format!("sslrootcert={value}: not a path"));
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or_else(wrong)?;
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// The default: a connection to another machine is encrypted, and its certificate is verified.
fn default_tls_mode(config: &Config) -> TlsMode {
    let is_local = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    };
    if config.get_hosts().iter().all(is_local) { TlsMode::Prefer } else { TlsMode::VerifyFull }
}

impl Address {
    /// Reads the certificates, and returns what is needed to connect.
    pub(crate) fn target(&self, config: Config) -> Result<Target, StoreError> {
        let mut config = config;
        let sockets = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        config.ssl_mode(match self.tls_mode {
            // Like libpq, does not encrypt on a Unix socket.
            _ if sockets => SslMode::Disable,
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        let needs_roots = config.get_ssl_mode() != SslMode::Disable;
        let connector = tls::connector(self.tls_mode, self.roots.as_deref().filter(|_| needs_roots))
            .map_err(|cause| StoreError::Unavailable { cause })?;
        Ok(Target { config, connector })
    }
}

/// What is needed to connect.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) config: Config,
    pub(crate) connector: Connector,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.config.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Address {
        url.parse().unwrap()
    }

    #[test]
    fn a_connection_to_another_machine_is_verified_by_default() {
        for (url, tls_mode) in [
            ("postgres://u@%2Ftmp/db", TlsMode::Prefer),
            ("postgres://u@localhost/db", TlsMode::Prefer),
            ("postgres://u@127.0.0.1:6543/db", TlsMode::Prefer),
            ("postgres://u@[::1]/db", TlsMode::Prefer),
            ("postgres://u@db.internal/db", TlsMode::VerifyFull),
            ("postgres://u@10.0.0.1/db", TlsMode::VerifyFull),
            ("postgres://u@localhost,db.internal/db", TlsMode::VerifyFull),
            ("postgres://u@db.internal/db?sslmode=require", TlsMode::Require),
            ("postgres://u@localhost/db?connect_timeout=3&sslmode=verify-ca", TlsMode::VerifyCa),
            ("postgres://u@db.internal/db?sslmode=disable", TlsMode::Disable),
            ("postgres://u@db.internal/db?sslmode=prefer", TlsMode::Prefer),
        ] {
            assert_eq!(address(url).tls_mode, tls_mode, "{url}");
        }
    }

    #[test]
    fn parameters_of_tls_are_taken_out_of_the_address() {
        let address =
            address("postgres://u:p@h/db?sslrootcert=%2Fa%20b&connect_timeout=3&sslmode=verify-full");
        assert_eq!(address.config, "postgres://u:p@h/db?connect_timeout=3".parse().unwrap());
        assert_eq!(address.roots, Some(PathBuf::from("/a b")));
        assert_eq!(self::address("postgres://h/db?sslrootcert=system").roots, None);
    }

    #[test]
    fn an_error_names_the_wrong_parameter() {
        for (url, words) in [
            ("postgres://h/db?sslmode=allow", "disable, prefer, require, verify-ca or verify-full"),
            ("postgres://h/db?sslrootcert=%2", "%2"),
            ("postgres://h/db?nonsense=1", "nonsense"),
            ("postgres://h:x/db", "port"),
        ] {
            let message = url.parse::<Address>().unwrap_err().to_string();
            assert!(message.contains(words), "{url}: {message}");
        }
    }
}
