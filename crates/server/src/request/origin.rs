//! Rejects requests from pages of other sites. A browser on the same machine can reach a server on loopback, so such a page could
//! otherwise call it.

use super::excerpt;
use crate::app::App;
use crate::response::ProblemResponse;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Uri};
use std::net::IpAddr;
use towline_api::Code;

pub(crate) async fn reject_foreign_origin(State(app): State<App>, request: Request, next: Next) -> Response {
    match check(&app, request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<(), ProblemResponse> {
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    // HTTP/2 sends the host as the authority, and so does a request line with an absolute URL. What a proxy or a route makes of a
    // request with several names differs, so each of them must be a name of this server.
    let authority = uri.authority().map(|authority| authority.as_str().to_owned());
    let mut hosts = authority.into_iter().chain(headers.get_all(HOST).iter().map(text)).peekable();
    let host = hosts.peek().cloned();
    if let Some(known) = &app.hosts
        && let Some(foreign) = hosts.find(|host| !is_own(host, known))
    {
        let foreign = excerpt(&foreign);
        let detail = format!(
            "the host {foreign:?} is not this server; use its IP address or localhost, or add the name to the setting hosts"
        );
        return Err(ProblemResponse::new(Code::CrossOrigin, detail));
    }
    let Some(origin) = headers.get(ORIGIN).map(text) else { return Ok(()) };
    // If this server has no TLS, a proxy may terminate it, so the scheme may differ.
    let own =
        origin.split_once("://").filter(|(scheme, _)| !app.tls || *scheme == "https").map(|(_, rest)| rest);
    if own.is_none() || own != host.as_deref() {
        let detail = format!("pages of {:?} may not call this server", excerpt(&origin));
        return Err(ProblemResponse::new(Code::CrossOrigin, detail));
    }
    Ok(())
}

/// Whether a page of another site cannot have made the name point to this server.
fn is_own(host: &str, known: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.parse::<IpAddr>().is_ok()
        || name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
        || known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_configured_names_are_own() {
        let known = ["queue.example".to_owned()];
        for own in [
            "localhost",
            "LOCALHOST:7420",
            "127.0.0.1:7420",
            "10.0.0.1",
            "[2001:db8::1]:7420",
            "[::1]",
            "a.localhost:1",
            "Queue.Example:7420",
        ] {
            assert!(is_own(own, &known), "{own}");
        }
        for foreign in [
            "evil.example:7420",
            "localhost.evil.example",
            "a.queue.example",
            "queue.example.evil.example",
            "127.0.0.1.nip.io",
            "",
            ":",
            "[evil.example]",
        ] {
            assert!(!is_own(foreign, &known), "{foreign}");
        }
    }
}
