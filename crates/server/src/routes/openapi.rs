//! Completes the OpenAPI description with the security scheme, with the errors that many routes share, and with MessagePack.

mod answers;
mod examples;
mod schemas;

use crate::auth::SCHEME;
use towline_api::{Format, PROBLEM_JSON};
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};

const JSON: &str = "application/json";
const EVERY_ROUTE: [(&str, &str); 8] = [
    ("400", "The request is not valid; `detail` says why."),
    ("401", "The server requires a token, and the request has no valid one."),
    (
        "403",
        "The token does not permit this; or the request comes from a page of another site; or its host is not this server.",
    ),
    ("405", "The path does not support this method."),
    ("429", "The token or the address exceeds its rate limit; or the queue is full."),
    ("500", "Internal error, or stored data is damaged."),
    (
        "503",
        "The server is busy or stopping and did nothing; or the store is not available. `code` says which.",
    ),
    ("507", "The disk or the store is full."),
];
const WITH_BODY: [(&str, &str); 3] = [
    ("408", "The client stopped sending the body."),
    ("413", "The body, or something in it, is too large."),
    ("415", "The content type is missing, or it is neither JSON nor MessagePack."),
];
const NOT_FOUND: [(&str, &str); 9] = [
    ("/v1/queues/{queue}", "The queue does not exist."),
    ("/v1/items/{id}", "The item does not exist."),
    ("/v1/schedules/{schedule}", "The schedule does not exist."),
    ("/v1/buffers/{id}", "The buffer does not exist."),
    ("/v1/tokens/{id}", "The token does not exist."),
    ("/v1/codespecs/{codespec}", "The codespec does not exist."),
    ("/v1/runs/{id}", "The run does not exist."),
    ("/v1/services/{service}", "The service does not exist."),
    ("/v1/triggers/{trigger}", "The trigger does not exist."),
];

const TOKEN: &str = "`tow_<id>_<secret>`, if the server requires tokens. Each route names the scope it requires, with the \
                     queue of the path or of the item in place of the braces; or `any` token; or none.";

/// Adds the security scheme, and to every operation the errors that it does not list itself.
pub(super) fn complete(openapi: &mut OpenApi) {
    answers::complete(openapi);
    schemas::complete(openapi);
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(TOKEN)).build();
    let components = openapi.components.get_or_insert_default();
    components.add_security_scheme(SCHEME, SecurityScheme::Http(scheme));
    for (path, item) in &mut openapi.paths.paths {
        let not_found = NOT_FOUND.iter().find(|(resource, _)| path.starts_with(resource));
        // PUT creates the resource.
        let put_not_found = not_found.filter(|(resource, _)| path != resource);
        let operations = [
            (&mut item.get, not_found),
            (&mut item.put, put_not_found),
            (&mut item.post, not_found),
            (&mut item.patch, not_found),
            (&mut item.delete, not_found),
        ];
        for (operation, not_found) in operations {
            if let Some(operation) = operation {
                add_message_pack(operation);
                add_errors(operation, not_found.map(|(_, description)| *description));
            }
        }
    }
    examples::add(openapi);
}

/// Every body in JSON can be one in MessagePack.
fn add_message_pack(operation: &mut Operation) {
    let packed = |json: &Content| {
        let content = ContentBuilder::new().schema(json.schema.clone()).build();
        (Format::MessagePack.content_type().to_owned(), RefOr::T(content))
    };
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        let added = json(body.content.get_mut(JSON)).map(|json| packed(json));
        body.content.extend(added);
    }
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response {
            let added = json(response.content.get_mut(JSON)).map(|json| packed(json));
            response.content.extend(added);
        }
    }
}

fn json(content: Option<&mut RefOr<Content>>) -> Option<&mut Content> {
    match content {
        Some(RefOr::T(content)) => Some(content),
        _ => None,
    }
}

/// The body of a request, if it is JSON.
fn request_body(operation: &mut Operation) -> Option<&mut Content> {
    match &mut operation.request_body {
        Some(RefOr::T(body)) => json(body.content.get_mut(JSON)),
        _ => None,
    }
}

fn reference(schema: &str) -> Ref {
    Ref::from_schema_name(schema)
}

fn add_errors(operation: &mut Operation, not_found: Option<&str>) {
    let with_body = if operation.request_body.is_some() { &WITH_BODY[..] } else { &[] };
    let not_found = not_found.map(|description| ("404", description));
    let responses = &mut operation.responses.responses;
    for (status, description) in EVERY_ROUTE.iter().chain(with_body).copied().chain(not_found) {
        let response = || RefOr::T(ResponseBuilder::new().description(description).build());
        responses.entry(status.to_owned()).or_insert_with(response);
    }
    for (_, response) in responses.iter_mut().filter(|(status, _)| status.as_str() >= "400") {
        if let RefOr::T(Response { content, .. }) = response {
            content.insert(PROBLEM_JSON.to_owned(), RefOr::T(problem()));
        }
    }
}

fn problem() -> Content {
    ContentBuilder::new().schema(Some(reference("Problem"))).build()
}
