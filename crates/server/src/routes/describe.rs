//! What can happen on any route, said once.

use crate::auth::SCHEME;
use towline_api::PROBLEM_JSON;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};

const ANYWHERE: [(&str, &str); 8] = [
    ("400", "Something in the request is not allowed or not known; the detail says what."),
    ("401", "The server asks for a token, and none that is good was shown."),
    (
        "403",
        "The token does not allow this; or a page of another site called, or the server was called by a name that is not its own.",
    ),
    ("405", "The path does not take this method."),
    ("429", "The token, or the address, has called too often; or the queue is full."),
    ("500", "The server made a mistake, or stored data is damaged."),
    (
        "503",
        "The server is busy or stopping, and nothing was done; or its store cannot be used. The code tells which.",
    ),
    ("507", "The disk or the store is full."),
];
const WITH_BODY: [(&str, &str); 3] = [
    ("408", "The body stopped coming."),
    ("413", "The body, or something in it, is larger than allowed."),
    ("415", "The body is neither JSON nor MessagePack, or does not say which."),
];

/// How a token is shown.
const TOKEN: &str = "`tow_<id>_<secret>`, if the server asks for tokens. What a route needs is named beside it: a scope, with the \
                     queue of the path or of the item in its place; `any` token; or nothing.";

/// Says how a token is shown, and adds to every operation the answers it does not name itself.
pub(super) fn complete(description: &mut OpenApi) {
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(TOKEN)).build();
    let components = description.components.get_or_insert_default();
    components.add_security_scheme(SCHEME, SecurityScheme::Http(scheme));
    for path in description.paths.paths.values_mut() {
        let operations = [&mut path.get, &mut path.put, &mut path.post, &mut path.patch, &mut path.delete];
        operations.into_iter().flatten().for_each(add);
    }
}

fn add(operation: &mut Operation) {
    let with_body = if operation.request_body.is_some() { &WITH_BODY[..] } else { &[] };
    for (status, words) in ANYWHERE.iter().chain(with_body) {
        let responses = &mut operation.responses.responses;
        responses.entry((*status).to_owned()).or_insert_with(|| RefOr::T(problem(words)));
    }
}

fn problem(words: &str) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new().description(words).content(PROBLEM_JSON, content).build()
}
