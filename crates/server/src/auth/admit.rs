//! Lets in who may, one request at a time, and tells the audit log of administrative acts.

use super::audit::{About, Asked, Entry};
use super::needs::Table;
use super::registry::{Holder, Shown};
use super::scope::{Needs, Right};
use super::secret::Secret;
use super::until::Until;
use super::{Caller, Failed};
use crate::app::App;
use crate::listen::Peer;
use crate::refuse::Refused;
use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Method};
use http_body::Body as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use towline_api::Code;
use towline_domain::{FieldSet, ItemId, QueueName, Refusal, ScheduleName};

pub(crate) async fn admit(
    State((app, table)): State<(App, Arc<Table>)>,
    request: Request,
    next: Next,
) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if reads && !app.auth.required {
        return next.run(request).await;
    }
    let (needs, act) = table.of(&request);
    let asked = (needs.is_administrative() && !reads).then(|| Asked::of(&request));
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let holder = match identify(&app, needs, request.headers(), peer).await {
        Ok(holder) => holder,
        Err(refused) => return refused.into_response(),
    };
    let response = match &holder {
        Some(holder) => guarded(&app, needs, holder, request, next).await,
        None => next.run(request).await,
    };
    if let Some(Asked { method, path }) = asked {
        let extensions = response.extensions();
        app.auth.audit.tell(&Entry {
            time: app.now().into(),
            act,
            method: method.as_str(),
            path: &path,
            about: extensions.get::<About>().map(|about| about.0.as_str()),
            token: holder.as_ref().map(|holder| holder.record.id),
            name: holder.as_ref().map(|holder| holder.record.name()),
            from: peer,
            status: response.status().as_u16(),
            code: extensions.get::<Code>().map(|code| code.name()),
        });
    }
    response
}

/// Whose token was shown, if one is needed.
async fn identify(
    app: &App,
    needs: Needs,
    headers: &HeaderMap,
    peer: Option<SocketAddr>,
) -> Result<Option<Arc<Holder>>, Refused> {
    let auth = &app.auth;
    if !auth.required || needs == Needs::Nothing {
        return Ok(None);
    }
    let Some(header) = headers.get(AUTHORIZATION) else {
        let detail = "this server asks for a token; show one as `Authorization: Bearer tow_...`, with TOWLINE_TOKEN or --token-file";
        return Err(Refused::new(Code::Unauthenticated, detail));
    };
    let now = app.now();
    let address = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
    let secret = header.to_str().ok().and_then(bearer).and_then(Secret::parse);
    let mut shown = secret.as_ref().and_then(|secret| auth.registry.recall(secret, now));
    if !matches!(shown, Some(Shown::Good(_))) {
        // Only who guesses comes here often: a token that is in use is known.
        if let Some(seconds) = auth.failures.wait(address, now) {
            let detail =
                format!("too many tokens that are not good came from {address}; try again in {seconds} s");
            return Err(Refused::new(Code::RateLimited, detail).retry_after(seconds));
        }
        if let (Some(secret), None) = (&secret, &shown) {
            shown = Some(auth.registry.ask(&app.broker, secret, now).await?);
        }
    }
    let detail = match shown {
        Some(Shown::Good(holder)) => {
            holder.used.store(now.0, Ordering::Relaxed);
            if let Some(seconds) = holder.bucket.as_ref().and_then(|bucket| bucket.take(now).err()) {
                let detail = format!(
                    "token {:?} calls more often than it may; try again in {seconds} s",
                    holder.record.name()
                );
                return Err(Refused::new(Code::RateLimited, detail).retry_after(seconds));
            }
            return Ok(Some(holder));
        }
        Some(Shown::Ended(why)) => format!("the token {why}; ask for a new one"),
        Some(Shown::Unknown) => "there is no such token here; ask for one".to_owned(),
        None => "that is not a token; show one as `Authorization: Bearer tow_...`".to_owned(),
    };
    if auth.failures.count(address, now) {
        tracing::warn!(%address, "too many tokens that are not good; more are refused unseen for a while");
    }
    Err(Refused::new(Code::Unauthenticated, detail).after(Failed::BadToken))
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Carries out what the token allows, for as long as it is good.
async fn guarded(app: &App, needs: Needs, holder: &Arc<Holder>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    if let Err(refused) = allow(app, needs, holder, &mut parts).await {
        return refused.into_response();
    }
    parts.extensions.insert(Caller::token(Arc::clone(holder)));
    let ended = holder.ended();
    tokio::pin!(ended);
    let response = tokio::select! {
        biased;
        response = next.run(Request::from_parts(parts, body)) => response,
        () = &mut ended => {
            let detail = "the token ended while the call went on; whether it was carried out is not known";
            return Refused::new(Code::Unauthenticated, detail).after(Failed::BadToken).into_response();
        }
    };
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    // A stream goes on after the answer has begun.
    response.map(|body| Body::new(Until::new(body, Arc::clone(holder))))
}

async fn allow(app: &App, needs: Needs, holder: &Holder, parts: &mut Parts) -> Result<(), Refused> {
    let access = &holder.record.access;
    let allowed = match needs {
        Needs::Nothing | Needs::Token => true,
        Needs::Queue(right) => {
            let Some(queue) = param::<QueueName>(parts, "queue").await else { return Ok(()) };
            if !access.queue(&queue, right) {
                return Err(forbidden(holder, &format!("queue:{queue}:{right}")));
            }
            true
        }
        Needs::Item(right) if access.every_queue(right) => true,
        Needs::Item(right) if access.some_queue(right) => {
            let Some(id) = param::<ItemId>(parts, "id").await else { return Ok(()) };
            return check_items(app, holder, &[id], right).await?.pop().map_or(Ok(()), |id| {
                // Whether there is one elsewhere is not for this caller to know.
                Err(Refusal::ItemNotFound { id }.into())
            });
        }
        Needs::Schedule(right) if access.every_queue(right) => true,
        Needs::Schedule(right) if access.some_queue(right) => {
            let Some(name) = param::<ScheduleName>(parts, "schedule").await else { return Ok(()) };
            let found = app.broker.schedule(&name).await?;
            if found.is_none_or(|schedule| access.queue(&schedule.spec.queue, right)) {
                return Ok(());
            }
            if parts.method == Method::PUT {
                // Its name is taken, which a caller cannot but learn; by which queue is not for this one to know.
                return Err(forbidden(holder, &needs.to_string()));
            }
            return Err(Refusal::ScheduleNotFound { name: name.to_string() }.into());
        }
        Needs::Each(right) => access.some_queue(right),
        Needs::EveryQueue(right) => access.every_queue(right),
        Needs::ReadBuffers => access.read_buffers(),
        Needs::WriteBuffers => access.write_buffers(),
        Needs::CopyBuffers => access.read_buffers() && access.write_buffers(),
        Needs::ReadRecords => access.read_records(),
        Needs::WriteRecords => access.write_records(),
        Needs::Publish => access.publish(),
        Needs::Subscribe => access.subscribe(),
        Needs::Item(_) | Needs::Schedule(_) => false,
        Needs::Admin => access.admin(),
    };
    if allowed { Ok(()) } else { Err(forbidden(holder, &needs.to_string())) }
}

/// A value in the path. One that cannot be read is for the route to refuse.
async fn param<T: std::str::FromStr>(parts: &mut Parts, name: &str) -> Option<T> {
    let params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    params.iter().find(|(key, _)| *key == name)?.1.parse().ok()
}

/// Those of the items that are in queues on which the caller has not this right.
pub(super) async fn check_items(
    app: &App,
    holder: &Holder,
    ids: &[ItemId],
    right: Right,
) -> Result<Vec<ItemId>, Refused> {
    let access = &holder.record.access;
    let found = app.broker.store().get(ids.to_vec(), FieldSet::HEADS).await?;
    let foreign = ids
        .iter()
        .zip(found)
        .filter(|(_, found)| found.as_ref().is_some_and(|stored| !access.queue(&stored.queue, right)));
    Ok(foreign.map(|(id, _)| *id).collect())
}

pub(super) fn forbidden(holder: &Holder, needed: &str) -> Refused {
    let detail =
        format!("token {:?} does not allow this; it takes one with the scope {needed}", holder.record.name());
    Refused::new(Code::Forbidden, detail).after(Failed::Scope)
}
