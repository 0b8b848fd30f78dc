//! Parsers for the values of settings. An error says which values are allowed.

use super::{ComputeRunner, LogFormat, StoreChoice};
use crate::connection::{ListenAddress, TrustedProxies};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use towline_buffers::{BufferError, Location, Secret, WriteOnce};
use towline_domain::Millis;
use towline_embedded::Durability;
use towline_postgres::{Address, AddressError};
use tracing_subscriber::EnvFilter;

const HOSTS_MAX: usize = 100;
/// The longest name in the domain name system.
const HOST_BYTES_MAX: usize = 253;
const PROXIES_MAX: usize = 1000;

pub(crate) fn listen(value: &str) -> Result<ListenAddress, String> {
    match value.strip_prefix("unix:") {
        Some(path) if path.starts_with('/') => Ok(ListenAddress::Unix(path.into())),
        Some(_) => Err("use the whole path of a Unix socket, like unix:/run/towline/socket".to_owned()),
        None => address(value)
            .map(ListenAddress::Tcp)
            .map_err(|why| format!("{why}, or unix:/path for a Unix socket")),
    }
}

pub(super) fn compute_runner(value: &str) -> Result<ComputeRunner, String> {
    match value {
        "off" => Ok(ComputeRunner::Off),
        "process" => Ok(ComputeRunner::Process),
        "container" => Ok(ComputeRunner::Container),
        _ => Err("use process, container or off".to_owned()),
    }
}

/// `:PORT` stands for all interfaces, as in most servers. `localhost` is not looked up: it is the loopback address.
pub(super) fn address(value: &str) -> Result<SocketAddr, String> {
    let port = |text: &str| text.parse().ok();
    let named = |(host, text): (&str, &str)| match host {
        "" => Some(SocketAddr::from(([0, 0, 0, 0], port(text)?))),
        "localhost" => Some(SocketAddr::from(([127, 0, 0, 1], port(text)?))),
        _ => None,
    };
    value.parse().ok().or_else(|| value.split_once(':').and_then(named)).ok_or_else(|| {
        "use an IP address and a port, like 127.0.0.1:7420, localhost:7420, or :7420 for all interfaces"
            .to_owned()
    })
}

fn several(value: &str, max: usize) -> Result<Vec<&str>, String> {
    let values: Vec<&str> = value.split_whitespace().collect();
    if values.len() > max {
        return Err(format!("{} given; use at most {max}", values.len()));
    }
    Ok(values)
}

/// Names of hosts, in lower case.
pub(super) fn hosts(value: &str) -> Result<Vec<String>, String> {
    let host =
        |name: &str| match name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
            true if name.len() <= HOST_BYTES_MAX => Ok(name.to_ascii_lowercase()),
            _ => Err(format!("{name:?}: use names without scheme and port, like queue.example")),
        };
    several(value, HOSTS_MAX)?.into_iter().map(host).collect()
}

pub(super) fn proxies(value: &str) -> Result<TrustedProxies, String> {
    let mut proxies = TrustedProxies::default();
    for proxy in several(value, PROXIES_MAX)? {
        let network = || proxy.parse().ok().or_else(|| Some(IpNet::from(proxy.parse::<IpAddr>().ok()?)));
        match proxy {
            "unix" => proxies.unix = true,
            _ => proxies.networks.push(network().ok_or_else(|| {
                format!("{proxy:?}: use addresses like 10.0.0.7, networks like 10.0.0.0/8, or unix")
            })?),
        }
    }
    Ok(proxies)
}

pub(super) fn directory(value: &str) -> Result<PathBuf, String> {
    if value.is_empty() { Err("use the path of a directory".to_owned()) } else { Ok(value.into()) }
}

pub(super) fn boolean(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| "use true or false".to_owned())
}

pub(super) fn number(value: &str, min: usize, max: usize) -> Result<usize, String> {
    match value.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("use a number from {min} to {max}")),
    }
}

pub(super) fn millis(value: &str, min: Millis, max: Millis) -> Result<Millis, String> {
    let millis = Millis::parse(value).map_err(|error| error.to_string())?;
    if (min..=max).contains(&millis) { Ok(millis) } else { Err(format!("use {min} to {max}")) }
}

pub(super) fn duration(value: &str, min: Millis, max: Millis) -> Result<Duration, String> {
    millis(value, min, max).map(|millis| Duration::from_millis(millis.0))
}

pub(crate) fn secret_file(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read the file: {error}"))?;
    match text.trim() {
        "" => Err("the file is empty".to_owned()),
        secret => Ok(secret.to_owned()),
    }
}

pub(super) fn secret(path: &str) -> Result<Secret, String> {
    secret_file(path).map(Secret::new)
}

pub(super) fn store(value: &str) -> Result<StoreChoice, String> {
    if value == "embedded" {
        return Ok(StoreChoice::Embedded);
    }
    let usage = || "use embedded, or postgres://user@host/database".to_owned();
    let mut addresses: Vec<Address> = Vec::new();
    for url in value.split_whitespace() {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(usage());
        }
        addresses
            .push(url.parse().map_err(|error: AddressError| format!("not a database address: {error}"))?);
    }
    if addresses.is_empty() { Err(usage()) } else { Ok(StoreChoice::Postgres(addresses)) }
}

pub(super) fn durability(value: &str) -> Result<Durability, String> {
    match value.strip_prefix("interval:").map(str::parse) {
        None if value == "sync" => Ok(Durability::Sync),
        Some(Ok(ms @ 1..=60_000)) => Ok(Durability::Interval(Duration::from_millis(ms))),
        _ => Err("use sync, or interval:<milliseconds> with 1 to 60000".to_owned()),
    }
}

pub(super) fn log_filter(value: &str) -> Result<String, String> {
    EnvFilter::from_str(value).map(|_| value.to_owned()).map_err(|error| error.to_string())
}

pub(super) fn log_format(value: &str) -> Result<LogFormat, String> {
    match value {
        "pretty" => Ok(LogFormat::Pretty),
        "json" => Ok(LogFormat::Json),
        _ => Err("use pretty or json".to_owned()),
    }
}

pub(super) fn s3_endpoint(value: &str) -> Result<String, String> {
    let uri: http::Uri = value.parse().map_err(|_| "not a URL; use https://host:9000".to_owned())?;
    match uri.authority().filter(|_| matches!(uri.scheme_str(), Some("http" | "https"))) {
        Some(authority) if !authority.as_str().contains('@') => Ok(value.to_owned()),
        Some(_) => {
            Err("leave the user and the password out; use s3_access_key_id and s3_secret_access_key_file"
                .to_owned())
        }
        _ => Err("use a URL like https://host:9000".to_owned()),
    }
}

pub(super) fn location(value: &str) -> Result<Location, String> {
    if value.starts_with("s3://") && value.contains('@') {
        return Err("leave keys out; use s3_access_key_id and s3_secret_access_key_file".to_owned());
    }
    value.parse().map_err(|error: BufferError| error.to_string())
}

pub(super) fn write_once(value: &str) -> Result<WriteOnce, String> {
    match value {
        "service" => Ok(WriteOnce::ByService),
        "process" => Ok(WriteOnce::ByProcess),
        _ => Err("use service or process".to_owned()),
    }
}
