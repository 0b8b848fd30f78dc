//! Rejects requests from pages of other sites. A browser on the same machine can reach a server on loopback, so such a page could
//! otherwise call it.

use super::excerpt;
use crate::app::App;
use crate::response::ProblemResponse;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Uri};
use std::net::IpAddr;
use towline_api::Code;

pub(crate) async fn reject_foreign_origin(State(app): State<App>, request: Request, next: Next) -> Response {
    match check(&app, request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<(), ProblemResponse> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    // HTTP/2 sends the host as the authority.
    let host = text(HOST).or_else(|| uri.authority().map(Authority::as_str));
    if let Some(host) = host.filter(|host| app.loopback_only && !is_loopback(host)) {
        let host = excerpt(host);
        let detail = format!("the host {host:?} is not this server; use localhost, 127.0.0.1 or [::1]");
        return Err(ProblemResponse::new(Code::CrossOrigin, detail));
    }
    let Some(origin) = text(ORIGIN) else { return Ok(()) };
    // If this server has no TLS, a proxy may terminate it, so the scheme may differ.
    let own =
        origin.split_once("://").filter(|(scheme, _)| !app.tls || *scheme == "https").map(|(_, rest)| rest);
    if own.is_none() || own != host {
        let detail = format!("pages of {:?} may not call this server", excerpt(origin));
        return Err(ProblemResponse::new(Code::CrossOrigin, detail));
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
    fn loopback_names_are_recognized() {
        for loopback in [
            "localhost",
            "LOCALHOST:7420",
            "127.0.0.1:7420",
            "127.1.2.3",
            "[::1]:7420",
            "[::1]",
            "a.localhost:1",
        ] {
            assert!(is_loopback(loopback), "{loopback}");
        }
        for other in
            ["evil.example:7420", "localhost.evil.example", "10.0.0.1", "[::2]:7420", "", "127.0.0.1.nip.io"]
        {
            assert!(!is_loopback(other), "{other}");
        }
    }
}
