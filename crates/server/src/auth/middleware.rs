//! Authenticates and authorizes each request, and writes administrative calls to the audit log.

use super::audit::{AuditEntry, AuditSubject, AuditedRequest};
use super::requirement::{Requirement, RouteRequirements};
use super::revocable_body::RevocableBody;
use super::scope::{Resource, Right};
use super::secret::TokenSecret;
use super::token_cache::{ActiveToken, TokenCheck};
use super::token_request::TokenRequest;
use super::{AuthChallenge, Caller};
use crate::app::App;
use crate::connection::{ClientAddress, Held};
use crate::request::excerpt;
use crate::response::ProblemResponse;
use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Method};
use http_body::Body as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use towline_api::Code;
use towline_api::buffer::LEASE_HEADER;
use towline_api::compute::LeaseSecret;
use towline_domain::{FieldSet, ItemId, QueueName, Refusal, ScheduleName};

pub(crate) async fn authorize(
    State((app, requirements)): State<(App, Arc<RouteRequirements>)>,
    request: Request,
    next: Next,
) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let lease_secret = lease_secret(request.headers());
    if is_read && !app.auth.required && lease_secret.is_none() {
        return next.run(request).await;
    }
    let (requirement, operation) = requirements.of(&request);
    if app.is_importing() && !is_read && operation != "import" {
        let detail = "the server imports an export; try again when the import has ended";
        return ProblemResponse::new(Code::Busy, detail).into_response();
    }
    let is_audited =
        requirement.is_administrative() || requirement.is_for_audit_file() && app.auth.audit.has_file();
    let audited = (is_audited && !is_read).then(|| AuditedRequest::of(&request));
    let client = request.extensions().get::<ClientAddress>().cloned().unwrap_or_default();
    let authenticated = match lease_secret {
        Some(secret) if requirement != Requirement::Nothing => {
            authenticate_lease(&app, &secret).await.map(Some)
        }
        _ => authenticate(&app, requirement, request.headers(), &client).await,
    };
    let token = match authenticated {
        Ok(token) => token,
        Err(_) if requirement == Requirement::OptionalToken => None,
        Err(problem) => return problem.into_response(),
    };
    let response = match &token {
        Some(token) => run_with_token(&app, requirement, token, request, next).await,
        None => next.run(request).await,
    };
    let extensions = response.extensions();
    let subject = extensions.get::<AuditSubject>();
    let audited = audited.filter(|_| subject.is_some() || !requirement.is_audited_by_subject());
    if let Some(AuditedRequest { method, path }) = audited {
        app.auth.audit.write(&AuditEntry {
            time: app.now().into(),
            operation,
            method: Some(method.as_str()),
            path: Some(&path),
            subject: subject.map(|subject| subject.0.as_str()),
            token: token.as_ref().map(|token| token.record.id),
            name: token.as_ref().map(|token| token.record.name()),
            from: Some(&client),
            status: Some(response.status().as_u16()),
            code: extensions.get::<Code>().map(|code| code.name()),
        });
    }
    response
}

/// The token of the request, if the route needs one.
async fn authenticate(
    app: &App,
    requirement: Requirement,
    headers: &HeaderMap,
    client: &ClientAddress,
) -> Result<Option<Arc<ActiveToken>>, ProblemResponse> {
    let auth = &app.auth;
    if !auth.required || requirement == Requirement::Nothing {
        return Ok(None);
    }
    let internal = headers.get(AUTHORIZATION).and_then(|header| bearer(header.to_str().ok()?));
    if let (Some(text), Some((secret, token))) = (internal, &auth.internal)
        && secret.is(text)
    {
        return Ok(Some(Arc::clone(token)));
    }
    let Some(header) = headers.get(AUTHORIZATION) else {
        let detail = "this server requires a token; send `Authorization: Bearer tow_...`, or use TOWLINE_TOKEN or --token-file";
        return Err(ProblemResponse::new(Code::Unauthenticated, detail));
    };
    let now = app.now();
    let secret = header.to_str().ok().and_then(bearer).and_then(TokenSecret::parse);
    let mut check = secret.as_ref().and_then(|secret| auth.tokens.cached(secret, now));
    if let (Some(secret), None) = (&secret, &check) {
        let _turn = auth.lookups.turn(client.ip()).await?;
        // Another request may have loaded it while this one waited.
        check = auth.tokens.cached(secret, app.now());
        if check.is_none() {
            check = Some(auth.tokens.load(&app.broker, secret, app.now()).await?);
        }
    }
    let detail = match check {
        Some(TokenCheck::Valid(token)) => {
            token.used.store(now.0, Ordering::Relaxed);
            if let Some(seconds) = token.bucket.as_ref().and_then(|bucket| bucket.take(now).err()) {
                let name = token.record.name();
                let detail = format!("token {name:?} exceeds its rate limit; try again in {seconds} s");
                return Err(ProblemResponse::new(Code::RateLimited, detail).retry_after(seconds));
            }
            return Ok(Some(token));
        }
        Some(TokenCheck::Ended(why)) => format!("the token {why}; request a new one"),
        Some(TokenCheck::Unknown) => "this server does not know the token; request a new one".to_owned(),
        None => "the Authorization header has no token; send `Authorization: Bearer tow_...`".to_owned(),
    };
    if auth.lookups.reports(now) {
        tracing::warn!(%client, "refused a request: {detail}; the server reports at most one such request a minute");
    }
    Err(ProblemResponse::new(Code::Unauthenticated, detail).with_challenge(AuthChallenge::InvalidToken))
}

/// The token of a replica or a slot of a trigger, if the request has one.
fn lease_secret(headers: &HeaderMap) -> Option<LeaseSecret> {
    LeaseSecret::parse(bearer(headers.get(AUTHORIZATION)?.to_str().ok()?)?)
}

async fn authenticate_lease(app: &App, secret: &LeaseSecret) -> Result<Arc<ActiveToken>, ProblemResponse> {
    if let Some(token) = app.auth.leases.check(&app.compute, secret, app.now()).await? {
        return Ok(token);
    }
    let detail = "the lease of this token has ended; the program that has it should stop";
    Err(ProblemResponse::new(Code::Unauthenticated, detail).with_challenge(AuthChallenge::InvalidToken))
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Runs the route if the token permits it. Ends the request when the token ends.
async fn run_with_token(
    app: &App,
    requirement: Requirement,
    token: &Arc<ActiveToken>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    if let Err(problem) = check_requirement(app, requirement, token, &mut parts).await {
        return problem.into_response();
    }
    let requests_max = app.auth.requests_max;
    let Some(in_progress) = TokenRequest::begin(token, requests_max) else {
        let name = token.record.name();
        let detail = format!(
            "token {name:?} has {requests_max} requests in progress, the most of one token; let some end, or use several tokens"
        );
        return ProblemResponse::new(Code::RateLimited, detail).retry_after(1).into_response();
    };
    parts.extensions.insert(Caller::token(Arc::clone(&in_progress)));
    let ended = token.ended();
    tokio::pin!(ended);
    let mut response = tokio::select! {
        biased;
        response = next.run(Request::from_parts(parts, body)) => response,
        () = &mut ended => {
            let detail = "the token ended during the request; the server may or may not have carried it out";
            return ProblemResponse::new(Code::Unauthenticated, detail)
                .with_challenge(AuthChallenge::InvalidToken)
                .into_response();
        }
    };
    response.extensions_mut().insert(Held::new(in_progress));
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    // A stream continues after this function has returned the head of the response.
    response.map(|body| Body::new(RevocableBody::new(body, Arc::clone(token))))
}

async fn check_requirement(
    app: &App,
    requirement: Requirement,
    token: &ActiveToken,
    parts: &mut Parts,
) -> Result<(), ProblemResponse> {
    let access = &token.record.access;
    let permitted = match requirement {
        Requirement::Nothing
        | Requirement::OptionalToken
        | Requirement::Token
        | Requirement::Records
        | Requirement::EachRecord => true,
        Requirement::Queue(right) => {
            let Some(queue) = path_param::<QueueName>(parts, "queue").await else { return Ok(()) };
            if !access.queue(&queue, right) {
                return Err(forbidden(token, &format!("queue:{queue}:{right}")));
            }
            true
        }
        Requirement::Item(right) if access.every_queue(right) => true,
        Requirement::Item(right) if access.some_queue(right) => {
            let Some(id) = path_param::<ItemId>(parts, "id").await else { return Ok(()) };
            return hidden_items(app, token, &[id], right).await?.pop().map_or(Ok(()), |id| {
                // "Forbidden" would tell the client that the item exists.
                Err(Refusal::ItemNotFound { id }.into())
            });
        }
        Requirement::Schedule(right) if access.every_queue(right) => true,
        Requirement::Schedule(right) if access.some_queue(right) => {
            let Some(name) = path_param::<ScheduleName>(parts, "schedule").await else { return Ok(()) };
            let found = app.broker.schedule(&name).await?;
            if found.is_none_or(|schedule| access.queue(&schedule.spec.queue, right)) {
                return Ok(());
            }
            let matched = parts.extensions.get::<MatchedPath>();
            let applies = matched.is_some_and(|path| path.as_str().ends_with("{schedule}/apply"));
            if parts.method == Method::PUT || applies {
                // The client must learn that the name is taken, but not which queue the schedule submits to.
                return Err(forbidden(token, &requirement.to_string()));
            }
            return Err(Refusal::ScheduleNotFound { name: name.to_string() }.into());
        }
        Requirement::EachItem(right) => access.some_queue(right),
        Requirement::EveryQueue(right) => access.every_queue(right),
        Requirement::Group(right) => match path_text(parts, "group").await {
            Some(group) if !access.group(&group, right) => {
                return Err(forbidden(token, &format!("group:{}:{right}", excerpt(&group))));
            }
            _ => true,
        },
        Requirement::Topic(right) => return check_part(parts, "topic", Resource::Topic, token, right).await,
        Requirement::Record(right) => return check_part(parts, "key", Resource::Records, token, right).await,
        // To list is to read without knowing the id.
        Requirement::Buffers(right @ Right::Read) => access.has(Resource::Buffers, "", right),
        Requirement::Buffers(right) => access.buffer_by_id(right),
        Requirement::LeasedBuffer(right) => {
            access.buffer_by_id(right) || is_leased(app, parts, right).await?
        }
        Requirement::BufferCopy => {
            [Right::Read, Right::Write].into_iter().all(|right| access.has(Resource::Buffers, "", right))
        }
        Requirement::Metrics => access.has(Resource::Metrics, "", Right::Read),
        Requirement::Compute(right) => access.has(Resource::Compute, "", right),
        Requirement::Item(_) | Requirement::Schedule(_) => false,
        Requirement::Admin => access.admin(),
    };
    if permitted { Ok(()) } else { Err(forbidden(token, &requirement.to_string())) }
}

/// A parameter of the path. `None` if it is not valid: then the route itself rejects the request.
async fn path_param<T: std::str::FromStr>(parts: &mut Parts, name: &str) -> Option<T> {
    path_text(parts, name).await?.parse().ok()
}

async fn path_text(parts: &mut Parts, name: &str) -> Option<String> {
    let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    Some(params.iter().find(|(key, _)| *key == name)?.1.to_owned())
}

/// Checks a right on the part of a resource that the path names.
async fn check_part(
    parts: &mut Parts,
    name: &str,
    resource: Resource,
    token: &ActiveToken,
    right: Right,
) -> Result<(), ProblemResponse> {
    match path_text(parts, name).await {
        Some(part) if !token.record.access.has(resource, &part, right) => {
            Err(forbidden(token, &format!("{}:{}:{right}", resource.name(), excerpt(&part))))
        }
        _ => Ok(()),
    }
}

/// Whether the request has a valid lease, in the header [`LEASE_HEADER`], and the buffer in the path belongs to the item: an input or
/// an output of the attempt to read, an output of the attempt to write.
async fn is_leased(app: &App, parts: &mut Parts, right: Right) -> Result<bool, ProblemResponse> {
    let Some(header) = parts.headers.get(LEASE_HEADER).cloned() else { return Ok(false) };
    let lease = header.to_str().ok().and_then(|text| text.trim().split_once(' '));
    let lease = lease.and_then(|(item, lease)| Some((item.parse().ok()?, lease.trim().parse().ok()?)));
    let Some((item, lease)) = lease else {
        let detail = format!("{LEASE_HEADER}: use the id of an item, a space, and the lease on it");
        return Err(ProblemResponse::new(Code::Invalid, detail));
    };
    let Some(buffer) = path_param(parts, "id").await else { return Ok(false) };
    Ok(app.broker.holder_may_use(item, lease, &buffer, right == Right::Write).await?)
}

/// The items in queues for which the token lacks the right.
pub(super) async fn hidden_items(
    app: &App,
    token: &ActiveToken,
    ids: &[ItemId],
    right: Right,
) -> Result<Vec<ItemId>, ProblemResponse> {
    let access = &token.record.access;
    let found = app.broker.store().get(ids.to_vec(), FieldSet::HEADS).await?;
    let hidden = ids
        .iter()
        .zip(found)
        .filter(|(_, found)| found.as_ref().is_some_and(|stored| !access.queue(&stored.queue, right)));
    Ok(hidden.map(|(id, _)| *id).collect())
}

pub(super) fn forbidden(token: &ActiveToken, scope: &str) -> ProblemResponse {
    let detail =
        format!("token {:?} does not permit this; use a token with the scope {scope}", token.record.name());
    ProblemResponse::new(Code::Forbidden, detail).with_challenge(AuthChallenge::InsufficientScope)
}
