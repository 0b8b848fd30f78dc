//! Keeps pages of other sites out: a browser on this machine can reach a server that listens on loopback.

use crate::app::App;
use crate::refuse::Refused;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Uri};
use std::net::IpAddr;
use towline_api::Code;

pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    match check(&app, request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

fn check(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    // HTTP/2 has the authority in the request line.
    let host = text(HOST).or_else(|| uri.authority().map(Authority::as_str));
    if let Some(host) = host.filter(|host| app.loopback_only && !is_loopback(host)) {
        let shown: String = host.chars().take(100).collect();
        let detail = format!("this server is not {shown:?}; call it as localhost, 127.0.0.1 or [::1]");
        return Err(Refused::new(Code::CrossOrigin, detail));
    }
    let Some(origin) = text(ORIGIN) else { return Ok(()) };
    // Without TLS here, who encrypts may be a proxy in between.
    let own =
        origin.split_once("://").filter(|(scheme, _)| !app.tls || *scheme == "https").map(|(_, rest)| rest);
    if own.is_none() || own != host {
        let shown: String = origin.chars().take(100).collect();
        return Err(Refused::new(Code::CrossOrigin, format!("a page of {shown:?} may not call this server")));
    }
    Ok(())
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        || name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        for own in [
            "localhost",
            "LOCALHOST:7420",
            "127.0.0.1:7420",
            "127.1.2.3",
            "[::1]:7420",
            "[::1]",
            "a.localhost:1",
        ] {
            assert!(is_loopback(own), "{own}");
        }
        for other in
            ["evil.example:7420", "localhost.evil.example", "10.0.0.1", "[::2]:7420", "", "127.0.0.1.nip.io"]
        {
            assert!(!is_loopback(other), "{other}");
        }
    }
}
