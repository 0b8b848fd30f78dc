//! The calls of lease holders, one by one or thousands at a time.

use super::{merge, unexpected};
use crate::answer::{Reply, aside};
use crate::app::App;
use crate::auth::{Caller, Right};
use crate::body::Wire;
use crate::path::{ItemPath, VerbPath};
use crate::query::NoQuery;
use crate::refuse::Refused;
use crate::traces::Within;
use axum::extract::State;
use axum::response::Response;
use std::collections::HashSet;
use towline_api::{Action, Problem, SettleAnswer, SettleRequest, Settled, Text};
use towline_broker::entropy;
use towline_domain::change::Answer;
use towline_domain::{ItemId, Refusal, limits};
use towline_store::{Operation, Reply as Stored, StoreError};

/// The golden ratio: multiples of it are spread evenly over all numbers.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Calls of mixed verbs, carried out in order, each answered by itself.
#[utoipa::path(post, path = "/v1/settle", operation_id = "settle_items", tag = "items", security(("token" = ["queue:{queue of each item}:receive"])), request_body = SettleRequest, responses(
    (status = 200, description = "What became of each.", body = SettleAnswer),
    (status = 400, description = "The body cannot be read.", body = Problem, content_type = "application/problem+json"),
    (status = 413, description = "Too many, or too large.", body = Problem, content_type = "application/problem+json"),
    (status = 503, description = "Try again; the same call again is safe.", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn settle(
    State(app): State<App>,
    _: NoQuery,
    reply: Reply,
    caller: Caller,
    within: Within,
    Wire(body): Wire<SettleRequest>,
) -> Result<Response, Refused> {
    let count = body.actions.len();
    StoreError::check_size("actions", count, limits::BATCH_MAX)?;
    let named: Vec<ItemId> =
        body.actions.iter().filter_map(|action| action.id.clone()?.into_domain("id").ok()).collect();
    let foreign: HashSet<ItemId> = caller.foreign(&app, &named, Right::Receive).await?.into_iter().collect();
    let (batch, ids, refused) = aside(count * 64, || prepare(body.actions, &caller, &foreign));
    let settling = match &app.traces {
        Some(traces) => {
            let ids: Vec<ItemId> = ids.iter().flatten().copied().collect();
            traces.settle(&within, &app, "settle", &ids).await
        }
        None => None,
    };
    let answers = if batch.is_empty() { Vec::new() } else { app.broker.update(batch).await? };
    drop(settling);
    let mut broken = false;
    let results = merge(refused, answers, |at, answer| {
        let Some(id) = ids[at] else { return Settled::default() };
        settled(id, answer).unwrap_or_else(|refusal| match refusal {
            Some(refusal) => Settled::refused(Some(id.into()), &refusal),
            None => {
                broken = true;
                Settled::default()
            }
        })
    });
    if broken || results.len() != count {
        return Err(unexpected());
    }
    reply.with_long(&SettleAnswer { results }, count)
}

type Prepared = (Vec<Operation>, Vec<Option<ItemId>>, Vec<Option<Settled>>);

fn prepare(actions: Vec<Action>, caller: &Caller, foreign: &HashSet<ItemId>) -> Prepared {
    let seed = entropy::number();
    let count = actions.len();
    let (mut batch, mut ids, mut refused) =
        (Vec::with_capacity(count), Vec::with_capacity(count), Vec::with_capacity(count));
    for (at, action) in actions.into_iter().enumerate() {
        let named = action.id.clone();
        match action.into_domain(seed.wrapping_add((at as u64).wrapping_mul(SPREAD))) {
            // To this caller it is not there.
            Ok((id, _)) if foreign.contains(&id) => {
                ids.push(None);
                refused.push(Some(Settled::refused(named, &Refusal::ItemNotFound { id })));
            }
            Ok((id, call)) => {
                if let Err(forbidden) = caller.check_target(call.adjust.queue.as_ref()) {
                    ids.push(None);
                    let error = Some(forbidden.element());
                    refused.push(Some(Settled { id: named, error, ..Settled::default() }));
                    continue;
                }
                batch.push(Operation::Lease { id, call: Box::new(call) });
                ids.push(Some(id));
                refused.push(None);
            }
            Err(refusal) => {
                ids.push(None);
                refused.push(Some(Settled::refused(named, &refusal)));
            }
        }
    }
    (batch, ids, refused)
}

/// `Err(None)`: an answer to another question.
fn settled(id: ItemId, answer: Result<Stored, Refusal>) -> Result<Settled, Option<Refusal>> {
    match answer {
        Ok(Stored::Answer(Answer::State(state))) => Ok(Settled::state(id, state)),
        Ok(Stored::Answer(Answer::Leased { deadline })) => Ok(Settled::held(id, deadline)),
        Ok(_) => Err(None),
        Err(refusal) => Err(Some(refusal)),
    }
}

/// One call of a lease holder: heartbeat, edit, commit, fail, retry, release or defer.
///
/// The same call with the same lease again gets the same answer.
#[utoipa::path(post, path = "/v1/items/{id}/{verb}", operation_id = "act_on_item", tag = "items", security(("token" = ["queue:{queue of the item}:receive"])), request_body = Action,
    params(("id" = String, Path, format = Uuid), ("verb" = towline_api::VerbName, Path)),
    responses(
        (status = 200, description = "The item's state now.", body = Settled),
        (status = 400, description = "Refused.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such item.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The lease is lost, or was settled by another call.", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The queue's schema asks for another result; the lease is kept.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn act(
    State(app): State<App>,
    (NoQuery, within): (NoQuery, Within),
    reply: Reply,
    ItemPath(id): ItemPath,
    VerbPath(verb): VerbPath,
    caller: Caller,
    Wire(mut action): Wire<Action>,
) -> Result<Response, Refused> {
    let same_id = action.id.as_ref().is_none_or(|named| *named == Text::from(id));
    if !same_id || action.verb.as_ref().is_some_and(|named| *named != Text::from(verb)) {
        let message = "the body names another than the path; leave `id` and `verb` out of it".to_owned();
        return Err(Refusal::Invalid { what: "id", message }.into());
    }
    (action.id, action.verb) = (Some(id.into()), Some(verb.into()));
    let (id, call) = action.into_domain(entropy::number())?;
    caller.check_target(call.adjust.queue.as_ref())?;
    let settling = match &app.traces {
        Some(traces) => traces.settle(&within, &app, verb.name(), &[id]).await,
        None => None,
    };
    let answer = app.broker.update(vec![Operation::Lease { id, call: Box::new(call) }]).await?.pop();
    drop(settling);
    let settled = settled(id, answer.ok_or(StoreError::Closed)?);
    reply.with(&settled.map_err(|refusal| refusal.map_or_else(unexpected, Refused::from))?)
}
