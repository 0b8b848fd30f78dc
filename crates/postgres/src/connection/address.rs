//! Where a database is, and how the way there is protected: libpq's `sslmode` and `sslrootcert`.

use crate::connection::tls::{self, Connector, Protection};
use std::path::PathBuf;
use std::str::FromStr;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use towline_store::StoreError;

/// Its `Debug` leaves the password out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub config: Config,
    protection: Protection,
    /// Certificates of those who are trusted, in PEM; `None`: those that the system trusts.
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

/// As the configuration says; what it leaves open is decided as for an address.
impl From<Config> for Address {
    fn from(config: Config) -> Address {
        let protection = match config.get_ssl_mode() {
            SslMode::Disable => Protection::Disable,
            SslMode::Require => Protection::Require,
            _ => usual(&config),
        };
        Address { config, protection, roots: None }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Address, AddressError> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots) = (None, None);
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value.parse().map_err(AddressError)?),
                Some(("sslrootcert", value)) => roots = Some(decoded(value)?),
                _ => others.push(pair),
            }
        }
        let rest = if others.is_empty() { place.to_owned() } else { format!("{place}?{}", others.join("&")) };
        let config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
            // The cause alone: the text before it says only that something is wrong.
            AddressError(std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string))
        })?;
        let protection = mode.unwrap_or_else(|| usual(&config));
        let roots = roots.filter(|path| path != "system").map(PathBuf::from);
        Ok(Address { config, protection, roots })
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

/// What leaves the machine is encrypted, and goes to whom it is meant for, unless somebody says otherwise.
fn usual(config: &Config) -> Protection {
    let near = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    };
    if config.get_hosts().iter().all(near) { Protection::Prefer } else { Protection::VerifyFull }
}

impl Address {
    /// Ready to connect; reads the certificates.
    pub(crate) fn target(&self, config: Config) -> Result<Target, StoreError> {
        let mut config = config;
        let sockets = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        config.ssl_mode(match self.protection {
            // As with libpq, nothing is encrypted on a socket of this machine.
            _ if sockets => SslMode::Disable,
            Protection::Disable => SslMode::Disable,
            Protection::Prefer => SslMode::Prefer,
            Protection::Require | Protection::VerifyCa | Protection::VerifyFull => SslMode::Require,
        });
        let needs_roots = config.get_ssl_mode() != SslMode::Disable;
        let connector = tls::connector(self.protection, self.roots.as_deref().filter(|_| needs_roots))
            .map_err(|cause| StoreError::Unavailable { cause })?;
        Ok(Target { config, connector })
    }
}

/// All that is needed to connect.
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
    fn what_leaves_the_machine_is_verified_unless_told_otherwise() {
        for (url, protection) in [
            ("postgres://u@%2Ftmp/db", Protection::Prefer),
            ("postgres://u@localhost/db", Protection::Prefer),
            ("postgres://u@127.0.0.1:6543/db", Protection::Prefer),
            ("postgres://u@[::1]/db", Protection::Prefer),
            ("postgres://u@db.internal/db", Protection::VerifyFull),
            ("postgres://u@10.0.0.1/db", Protection::VerifyFull),
            ("postgres://u@localhost,db.internal/db", Protection::VerifyFull),
            ("postgres://u@db.internal/db?sslmode=require", Protection::Require),
            ("postgres://u@localhost/db?connect_timeout=3&sslmode=verify-ca", Protection::VerifyCa),
            ("postgres://u@db.internal/db?sslmode=disable", Protection::Disable),
            ("postgres://u@db.internal/db?sslmode=prefer", Protection::Prefer),
        ] {
            assert_eq!(address(url).protection, protection, "{url}");
        }
    }

    #[test]
    fn the_rest_of_an_address_is_as_it_was() {
        let address =
            address("postgres://u:p@h/db?sslrootcert=%2Fa%20b&connect_timeout=3&sslmode=verify-full");
        assert_eq!(address.config, "postgres://u:p@h/db?connect_timeout=3".parse().unwrap());
        assert_eq!(address.roots, Some(PathBuf::from("/a b")));
        assert_eq!(self::address("postgres://h/db?sslrootcert=system").roots, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
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
