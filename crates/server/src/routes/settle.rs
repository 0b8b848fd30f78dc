//! The calls of lease holders, one by one or in batches.

use super::queues::create_if_absent;
use super::{batch_results, unexpected};
use crate::app::App;
use crate::auth::{Caller, Right};
use crate::request::{DecodedBody, ItemPath, NoQuery, VerbPath};
use crate::response::{ProblemResponse, Responder, run_blocking_if_large};
use crate::traces::{self, RequestSpan};
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use std::collections::{BTreeSet, HashSet};
use towline_api::{Action, Element, SettleAnswer, SettleBody, SettleRequest, Settled, Text};
use towline_broker::entropy;
use towline_domain::change::Answer;
use towline_domain::{HandOff, ItemId, LeaseCall, LeaseToken, Refusal, Trace, limits};
use towline_store::{Answered, Operation, Reply, StoreError};

/// The golden ratio. Its multiples are spread evenly, so each call of a batch gets another jitter seed.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Settle many items, with any mix of verbs.
///
/// The server carries out the calls in order. The response contains a result for each call.
#[utoipa::path(post, path = "/v1/settle", operation_id = "settle_items", tag = "items", security(("token" = ["queue:{queue of each item}:receive"])), request_body = SettleRequest, responses(
    (status = 200, description = "The result for each call.", body = SettleAnswer),
    (status = 400, description = "The body is not valid."),
    (status = 413, description = "Too many calls, or the body is too large."),
    (status = 503, description = "Try again: repeating the same call is safe."),
))]
pub(super) async fn settle(
    State(app): State<App>,
    _: NoQuery,
    respond: Responder,
    caller: Caller,
    (request_span, headers): (RequestSpan, HeaderMap),
    DecodedBody(body, ..): DecodedBody<SettleBody>,
) -> Result<Response, ProblemResponse> {
    let count = body.actions.len();
    StoreError::check_size("actions", count, limits::BATCH_MAX)?;
    let good = body.actions.iter().filter_map(|action| action.0.as_ref().ok());
    let named: Vec<ItemId> = good.filter_map(|action| action.id.clone()?.into_domain("id").ok()).collect();
    let hidden: HashSet<ItemId> =
        caller.hidden_items(&app, &named, Right::Receive).await?.into_iter().collect();
    let Prepared { mut batch, ids, leases, invalid } =
        run_blocking_if_large(count * 64, || prepare(body.actions, &caller, &hidden));
    let calls = batch.iter_mut().filter_map(|operation| match operation {
        Operation::Lease { call, .. } => Some(&mut **call),
        _ => None,
    });
    prepare_hand_offs(&app, &caller, traces::of_headers(&headers), calls).await?;
    let span = match &app.traces {
        Some(traces) => traces.settle(&request_span, &app, "settle", &ids).await,
        None => None,
    };
    let answers = if batch.is_empty() { Vec::new() } else { app.broker.update(batch).await? };
    drop(span);
    let results =
        batch_results(invalid, answers, |index, answer| match (ids.get(index), leases.get(index)) {
            (Some(&id), Some(&lease)) => Ok(result(&app, (id, lease), answer)
                .unwrap_or_else(|problem| Settled::refused(Some(id.into()), problem.into_element_error()))),
            _ => Err(unexpected()),
        })?;
    respond.with_many(&SettleAnswer { results }, count)
}

/// The calls of a batch after their checks.
struct Prepared {
    batch: Vec<Operation>,
    /// The items of `batch`, in the same order.
    ids: Vec<ItemId>,
    /// Their leases.
    leases: Vec<LeaseToken>,
    /// For each call of the request, the result if it does not go to the store.
    invalid: Vec<Option<Settled>>,
}

fn prepare(actions: Vec<Element<Action>>, caller: &Caller, hidden: &HashSet<ItemId>) -> Prepared {
    let seed = entropy::number();
    let (batch, ids, leases, invalid) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut prepared = Prepared { batch, ids, leases, invalid };
    for (index, Element(action)) in actions.into_iter().enumerate() {
        let action = match action {
            Ok(action) => action,
            Err(error) => {
                let error = ProblemResponse::from(error).into_element_error();
                prepared.invalid.push(Some(Settled::refused(None, error)));
                continue;
            }
        };
        let named = action.id.clone();
        let seed = seed.wrapping_add((index as u64).wrapping_mul(SEED_STEP));
        let invalid = match prepare_one(action, seed, caller, hidden) {
            Ok((id, call)) => {
                prepared.leases.push(call.token);
                prepared.batch.push(Operation::Lease { id, call: Box::new(call) });
                prepared.ids.push(id);
                None
            }
            Err(problem) => Some(Settled::refused(named, problem.into_element_error())),
        };
        prepared.invalid.push(invalid);
    }
    prepared
}

fn prepare_one(
    action: Action,
    seed: u64,
    caller: &Caller,
    hidden: &HashSet<ItemId>,
) -> Result<(ItemId, LeaseCall), ProblemResponse> {
    let (id, call) = action.into_domain(seed)?;
    if hidden.contains(&id) {
        return Err(Refusal::ItemNotFound { id }.into());
    }
    check_rights(caller, &call)?;
    Ok((id, call))
}

/// Checks the rights beside that to receive: to submit to the queue an item goes to, and to those of the items it hands off.
fn check_rights(caller: &Caller, call: &LeaseCall) -> Result<(), ProblemResponse> {
    caller.check_target(call.adjust.queue.as_ref())?;
    for HandOff { queue, submission } in &call.adjust.then_submit {
        caller.check(queue, Right::Submit)?;
        caller.check_group(submission.body.group.as_deref())?;
    }
    Ok(())
}

/// Prepares the items that calls hand off: gives those without a trace that of the request, and creates their queues if the
/// server creates queues.
async fn prepare_hand_offs<'a>(
    app: &App,
    caller: &Caller,
    trace: Option<Trace>,
    calls: impl Iterator<Item = &'a mut LeaseCall>,
) -> Result<(), ProblemResponse> {
    let mut queues = BTreeSet::new();
    for item in calls.flat_map(|call| &mut call.adjust.then_submit) {
        let body = &mut item.submission.body;
        body.trace = body.trace.take().or_else(|| trace.clone().map(Box::new));
        queues.insert(item.queue.clone());
    }
    for queue in queues {
        create_if_absent(app, caller, &queue).await?;
    }
    Ok(())
}

fn result(
    app: &App,
    (id, lease): (ItemId, LeaseToken),
    answer: Answered,
) -> Result<Settled, ProblemResponse> {
    match answer? {
        Reply::Answer(Answer::State(state)) => {
            app.consumers.settled(id, lease, None);
            Ok(Settled::state(id, state))
        }
        Reply::Answer(Answer::HandedOff(handed_off)) => {
            app.consumers.settled(id, lease, None);
            Ok(Settled::handed_off(id, handed_off.items.into_iter().map(|item| item.id)))
        }
        Reply::Answer(Answer::Leased { deadline }) => {
            app.consumers.settled(id, lease, Some(deadline));
            Ok(Settled::held(id, deadline))
        }
        _ => Err(unexpected()),
    }
}

/// Settle an item, or keep its lease: heartbeat, edit, commit, fail, retry, release or defer. `pause` and `cancel` have routes of
/// their own.
///
/// Repeating the same call with the same lease returns the same result.
#[utoipa::path(post, path = "/v1/items/{id}/{verb}", operation_id = "settle_item", tag = "items", security(("token" = ["queue:{queue of the item}:receive"])), request_body = Action,
    params(("id" = String, Path, format = Uuid), ("verb" = towline_api::VerbName, Path)),
    responses(
        (status = 200, description = "The new state of the item.", body = Settled),
        (status = 409, description = "The lease is lost, or another call has settled it."),
        (status = 422, description = "The result does not match the schema of the queue. The lease is still held."),
    ))]
pub(super) async fn settle_one(
    State(app): State<App>,
    (NoQuery, request_span, headers): (NoQuery, RequestSpan, HeaderMap),
    respond: Responder,
    ItemPath(id): ItemPath,
    VerbPath(verb): VerbPath,
    caller: Caller,
    DecodedBody(mut action, ..): DecodedBody<Action>,
) -> Result<Response, ProblemResponse> {
    let same_id = action.id.as_ref().is_none_or(|named| *named == Text::from(id));
    if !same_id || action.verb.as_ref().is_some_and(|named| *named != Text::from(verb)) {
        let message = "the body and the path differ; omit `id` and `verb` in the body".to_owned();
        return Err(Refusal::Invalid { what: "id", message }.into());
    }
    (action.id, action.verb) = (Some(id.into()), Some(verb.into()));
    let (id, mut call) = action.into_domain(entropy::number())?;
    check_rights(&caller, &call)?;
    prepare_hand_offs(&app, &caller, traces::of_headers(&headers), std::iter::once(&mut call)).await?;
    let span = match &app.traces {
        Some(traces) => traces.settle(&request_span, &app, verb.name(), &[id]).await,
        None => None,
    };
    let lease = call.token;
    let answer = app.broker.update(vec![Operation::Lease { id, call: Box::new(call) }]).await?.pop();
    drop(span);
    respond.with(&result(&app, (id, lease), answer.ok_or(StoreError::Closed)?)?)
}
