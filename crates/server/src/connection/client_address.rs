//! Where a request comes from. A trusted proxy names the client in `X-Forwarded-For` or `Forwarded`.

use http::header::{FORWARDED, HeaderName};
use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;
use serde::{Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    /// A process on this machine, through a Unix socket.
    #[default]
    Unix,
}

impl Peer {
    pub(super) fn ip(self) -> Option<IpAddr> {
        match self {
            Peer::Tcp(address) => Some(address.ip().to_canonical()),
            Peer::Unix => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(address) => address.fmt(f),
            Peer::Unix => f.write_str("unix"),
        }
    }
}

/// The proxies whose word counts about the address of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrustedProxies {
    pub networks: Vec<IpNet>,
    /// Whether every client of a Unix socket is a proxy.
    pub unix: bool,
}

impl TrustedProxies {
    fn has(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    pub(crate) fn has_peer(&self, peer: Peer) -> bool {
        peer.ip().map_or(self.unix, |address| self.has(address))
    }
}

/// The address of the client, an extension of each request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ClientAddress {
    peer: Peer,
    /// As the proxies that are trusted name it.
    forwarded: Option<IpAddr>,
}

impl ClientAddress {
    pub(crate) fn new(peer: Peer, headers: &HeaderMap, trusted: &TrustedProxies) -> ClientAddress {
        let forwarded = if trusted.has_peer(peer) { forwarded(headers, trusted) } else { None };
        ClientAddress { peer, forwarded }
    }

    /// What limits count. All clients of a Unix socket have the same.
    pub(crate) fn ip(&self) -> IpAddr {
        self.forwarded.or(self.peer.ip()).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.forwarded {
            Some(client) => write!(f, "{client} via {}", self.peer),
            None => self.peer.fmt(f),
        }
    }
}

impl Serialize for ClientAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The client that the headers name. A proxy sets one of the two headers and passes the other one on as the client sent it, so if
/// they disagree, neither counts.
fn forwarded(headers: &HeaderMap, trusted: &TrustedProxies) -> Option<IpAddr> {
    let named = |name: HeaderName, address: fn(&str) -> Option<IpAddr>| {
        headers.contains_key(&name).then(|| client(headers.get_all(name).iter(), address, trusted))
    };
    match (named(X_FORWARDED_FOR, plain_address), named(FORWARDED, forwarded_for)) {
        (Some(client), None) | (None, Some(client)) => client,
        (Some(one), Some(other)) if one == other => one,
        _ => None,
    }
}

/// Each proxy appends the address that it saw. So from the last one back, the first that is not a trusted proxy is the client.
fn client<'a>(
    values: impl DoubleEndedIterator<Item = &'a HeaderValue>,
    address: fn(&str) -> Option<IpAddr>,
    trusted: &TrustedProxies,
) -> Option<IpAddr> {
    let mut client = None;
    for value in values.rev() {
        for entry in value.to_str().ok()?.rsplit(',') {
            // A client may have forged the entries before one that cannot be parsed.
            let Some(address) = address(entry.trim()) else { return client };
            client = Some(address);
            if !trusted.has(address) {
                return client;
            }
        }
    }
    client
}

/// An address, with or without a port.
fn plain_address(text: &str) -> Option<IpAddr> {
    let address: Option<IpAddr> = text.parse().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    let address = address.or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok());
    address.map(|address| address.to_canonical())
}

/// The `for` parameter of an element of `Forwarded` (RFC 7239).
fn forwarded_for(element: &str) -> Option<IpAddr> {
    element.split(';').find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.eq_ignore_ascii_case("for").then(|| plain_address(value.trim_matches('"')))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(peer: &str, headers: &[(&'static str, &'static str)]) -> String {
        let trusted = TrustedProxies {
            networks: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::1/128".parse().unwrap()],
            unix: true,
        };
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect();
        let peer = peer.parse().map_or(Peer::Unix, Peer::Tcp);
        ClientAddress::new(peer, &headers, &trusted).ip().to_string()
    }

    #[test]
    fn only_trusted_proxies_name_their_clients() {
        let header = &[("x-forwarded-for", "192.0.2.7")];
        assert_eq!(seen("198.51.100.1:5", header), "198.51.100.1");
        assert_eq!(seen("10.1.2.3:5", header), "192.0.2.7");
        assert_eq!(seen("[::ffff:10.1.2.3]:5", header), "192.0.2.7");
        assert_eq!(seen("[2001:db8::1]:5", header), "192.0.2.7");
        assert_eq!(seen("unix", header), "192.0.2.7");
        assert_eq!(
            (seen("10.1.2.3:5", &[]), seen("unix", &[])),
            ("10.1.2.3".to_owned(), "0.0.0.0".to_owned())
        );
    }

    #[test]
    fn the_client_is_the_last_address_that_no_trusted_proxy_has() {
        for (value, client) in [
            ("203.0.113.9, 192.0.2.7", "192.0.2.7"),
            ("203.0.113.9, 192.0.2.7, 10.9.9.9", "192.0.2.7"),
            ("10.0.0.7,10.0.0.8", "10.0.0.7"),
            ("203.0.113.9, nonsense", "10.1.2.3"),
            ("nonsense, 10.0.0.8", "10.0.0.8"),
            ("192.0.2.7:1234", "192.0.2.7"),
            ("[2001:db8::7]:1234", "2001:db8::7"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("2001:db8::7", "2001:db8::7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("", "10.1.2.3"),
        ] {
            let value: &'static str = value;
            assert_eq!(seen("10.1.2.3:5", &[("x-forwarded-for", value)]), client, "{value}");
        }
        for (value, client) in [
            ("for=192.0.2.7;proto=https;by=10.0.0.1", "192.0.2.7"),
            ("For=\"[2001:db8::7]:47011\"", "2001:db8::7"),
            ("for=203.0.113.9, for=192.0.2.7, for=10.0.0.1", "192.0.2.7"),
            ("for=192.0.2.7, for=unknown", "10.1.2.3"),
            ("for=_hidden", "10.1.2.3"),
            ("proto=https", "10.1.2.3"),
        ] {
            let value: &'static str = value;
            assert_eq!(seen("10.1.2.3:5", &[("forwarded", value)]), client, "{value}");
        }
        let several = [("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "192.0.2.7, 10.0.0.1")];
        assert_eq!(seen("10.1.2.3:5", &several), "192.0.2.7");
    }

    #[test]
    fn headers_that_disagree_do_not_count() {
        let both = |one, other| seen("10.1.2.3:5", &[("x-forwarded-for", one), ("forwarded", other)]);
        assert_eq!(both("192.0.2.7", "for=192.0.2.7"), "192.0.2.7");
        assert_eq!(both("192.0.2.7", "for=203.0.113.9"), "10.1.2.3");
    }
}
