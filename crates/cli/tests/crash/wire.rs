//! Converts wire types to the operations and answers that the checker knows.

use towline_api::{
    Action, Code, ErrorBody, ItemShown, NewItem, Problem, QueueShown, ReceiveAnswer, ReceiveRequest,
    ReceivedItem, Settled, Submission, Submitted, Time,
};
use towline_domain::change::{Answer, Errors};
use towline_domain::item::Claim;
use towline_domain::refusal::LostWhy;
use towline_domain::{
    Counts, FailureKind, Head, Item, ItemId, ItemState, KeyTag, Lease, LeaseToken, Millis, Outcome, Queue,
    QueueId, QueueName, QueueState, Refusal, State, Timestamp, TokenSeed,
};
use towline_store::{Answered, Operation, QueueView, ReceiveCall, Received, Reply, StoredItem};

pub fn queue_name(name: &str) -> QueueName {
    name.parse().unwrap()
}

pub fn submits(queue: &str, items: &[NewItem]) -> Vec<Operation> {
    let submit = |item: &NewItem| Operation::Submit {
        queue: queue_name(queue),
        submission: Box::new(item.clone().try_into().unwrap()),
    };
    items.iter().map(submit).collect()
}

pub fn leases(actions: &[Action]) -> Vec<Operation> {
    let lease = |action: &Action| {
        let (id, call) = action.clone().into_domain(0).unwrap();
        Operation::Lease { id, call: Box::new(call) }
    };
    actions.iter().map(lease).collect()
}

/// The server generates the lease tokens. The tokens of a lost answer are unknown.
pub fn receive(queue: &str, request: &ReceiveRequest) -> Operation {
    Operation::Receive(Box::new(ReceiveCall {
        queue: queue_name(queue),
        max: request.max.unwrap_or(1).try_into().unwrap(),
        visibility: request
            .visibility_timeout
            .clone()
            .map(|span| span.into_domain("visibility_timeout").unwrap()),
        assigned: false,
        seed: TokenSeed([0x5a; 32]),
        fields: towline_domain::FieldSet::ALL,
        make_buffers: false,
    }))
}

pub fn refusal(id: Option<ItemId>, code: &str, words: &str) -> Refusal {
    match (Code::parse(code), id) {
        (Some(Code::LeaseLost), Some(id)) => Refusal::LeaseLost { id, why: LostWhy::Superseded },
        (Some(Code::ItemNotFound), Some(id)) => Refusal::ItemNotFound { id },
        (Some(Code::KeyConflict), _) => {
            let quoted = |text: &str| text.split('"').nth(1).map(str::to_owned);
            let named = words.split([' ', ',']).find_map(|word| word.parse().ok());
            Refusal::KeyConflict {
                key: quoted(words).unwrap(),
                id: named.unwrap_or_else(|| panic!("a conflict that does not name the item: {words}")),
            }
        }
        (Some(_), _) => Refusal::Invalid { what: "call", message: words.to_owned() },
        (None, _) => panic!("{code:?} is not a code: {words}"),
    }
}

pub fn problem(id: Option<ItemId>, problem: &Problem) -> Refusal {
    refusal(id, &problem.code, &problem.detail)
}

fn error(id: Option<ItemId>, error: &ErrorBody) -> Answered {
    Err(refusal(id, &error.code, &error.message).into())
}

pub fn submitted(answer: &Submitted) -> Answered {
    if let Some(refused) = &answer.error {
        return error(None, refused);
    }
    let id = answer.id.clone().unwrap().into_domain("id").unwrap();
    Ok(Reply::Answer(Answer::Submitted { id, created: answer.created.unwrap() }))
}

pub fn settled(action: &Action, answer: &Settled) -> Answered {
    let id = action.id.clone().unwrap().into_domain("id").unwrap();
    if let Some(refused) = &answer.error {
        return error(Some(id), refused);
    }
    assert_eq!(answer.id.clone().unwrap().into_domain("id").unwrap(), id, "an answer about another item");
    Ok(Reply::Answer(match &answer.lease_expires_at {
        Some(until) => Answer::Leased { deadline: time(until) },
        None => Answer::State(item_state(answer.state.as_deref().unwrap())),
    }))
}

pub fn item_state(name: &str) -> ItemState {
    ItemState::parse(name).unwrap_or_else(|| panic!("{name:?} is not a state"))
}

fn time(time: &Time) -> Timestamp {
    time.clone().into_domain("time").unwrap()
}

fn queue_state(name: &str, since: Option<&Time>) -> QueueState {
    let since = since.map(time).unwrap_or_default();
    match name {
        "open" => QueueState::Open,
        "closed" => QueueState::Closed { since },
        "completed" => QueueState::Completed { since },
        other => panic!("{other:?} is not a queue's state"),
    }
}

/// `visibility` is the requested visibility timeout, or the queue's.
pub fn received(answer: &ReceiveAnswer, visibility: Millis) -> Received {
    let items = answer.items.iter().map(|item| received_item(item, visibility));
    Received {
        queue: queue_state(&answer.status, None),
        items: items.collect(),
        throttle: None,
        paused: false,
        more: 0,
    }
}

fn received_item(item: &ReceivedItem, visibility: Millis) -> Item {
    assert_eq!(item.attempt, item.retries + 1, "{item:?}");
    let submission = NewItem {
        inputs: item.inputs.clone(),
        params: item.params.clone(),
        idempotency_key: item.idempotency_key.clone(),
        tags: item.tags.clone(),
        fairness_key: item.fairness_key.clone(),
        group: item.group.clone(),
        parent: item.parent.clone(),
        source: item.source.clone(),
        payload: item.payload.clone(),
        state_blob: item.state_blob.clone(),
        metadata: item.metadata.clone(),
        parameters: item.parameters.clone(),
        ..NewItem::default()
    };
    let submission = Submission::try_from(submission).unwrap();
    let lease = Lease {
        token: item.lease.clone().into_domain("lease").unwrap(),
        deadline: time(&item.lease_expires_at),
        visibility,
        unacknowledged: false,
        renewals: 0,
        buffers: None,
    };
    let head = Head {
        id: item.id.clone().into_domain("id").unwrap(),
        queue: QueueId(0),
        state: State::Processing(lease),
        priority: item.priority,
        created_at: time(&item.created_at),
        ready_at: time(&item.ready_at),
        retries: item.retries,
        deliveries: item.deliveries,
        revision: 0,
        transitions: 0,
        expires_at: None,
        last_settle: None,
        group: None,
        fairness_key: KeyTag::NONE,
        changed_at: None,
        heartbeat_at: None,
        extras: None,
    };
    Item {
        head,
        body: submission.body,
        fields: submission.fields,
        outcome: Outcome::default(),
        errors: Errors::default(),
    }
}

/// This test deletes no queues, so a name always means the same queue.
fn queue_id(name: &str) -> QueueId {
    QueueId(name.bytes().fold(1, |id, byte| id.wrapping_mul(31).wrapping_add(u32::from(byte))))
}

pub fn queue(shown: &QueueShown) -> QueueView {
    let counts = &shown.counts;
    QueueView {
        queue: Queue {
            id: queue_id(&shown.name),
            name: queue_name(&shown.name),
            schema: shown.schema.clone().try_into().unwrap(),
            policy: shown.policy.clone().try_into().unwrap(),
            state: queue_state(&shown.state, shown.since.as_ref()),
            paused: shown.paused,
            created_at: time(&shown.created_at),
            revision: 0,
        },
        counts: Counts {
            pending: counts.pending,
            scheduled: counts.scheduled,
            processing: counts.processing,
            paused: counts.paused,
            completed: counts.completed,
            failed: counts.failed,
        },
        oldest_ready: shown.oldest_ready_at.as_ref().map(time),
    }
}

fn shown_state(item: &ItemShown) -> State {
    let (at, remove_at) = (item.finished_at.as_ref().map(time), item.remove_at.as_ref().map(time));
    match item.state.as_str() {
        "pending" | "scheduled" => State::Pending,
        "paused" => State::Paused,
        "processing" => State::Processing(Lease {
            // The API does not show these. The checker knows them, or knows that they are unknown.
            token: TokenSeed([0; 32]).token(0, Timestamp(0)),
            deadline: time(item.lease_expires_at.as_ref().unwrap()),
            visibility: Millis::ZERO,
            unacknowledged: false,
            renewals: 0,
            buffers: None,
        }),
        "completed" => State::Completed { at: at.unwrap(), remove_at },
        "failed" => {
            let kind = [
                FailureKind::Explicit,
                FailureKind::RetriesExhausted,
                FailureKind::Expired,
                FailureKind::Cancelled,
                FailureKind::Poison,
            ];
            let kind = kind.into_iter().find(|kind| Some(kind.name()) == item.failure.as_deref());
            State::Failed { at: at.unwrap(), remove_at, kind: kind.unwrap() }
        }
        other => panic!("{other:?} is not a state"),
    }
}

pub fn shown_item(item: ItemShown) -> StoredItem {
    assert_eq!(item.attempt, item.retries + 1, "{item:?}");
    let state = shown_state(&item);
    let queue = queue_id(&item.queue);
    let submission = NewItem {
        inputs: item.inputs,
        params: item.params,
        idempotency_key: item.idempotency_key,
        tags: item.tags,
        fairness_key: item.fairness_key,
        group: item.group,
        parent: item.parent,
        source: item.source,
        payload: item.payload,
        state_blob: item.state_blob,
        metadata: item.metadata,
        parameters: item.parameters,
        ..NewItem::default()
    };
    let mut submission = Submission::try_from(submission).unwrap();
    // The API shows that an item has a key, but not for which content.
    submission.body.claim =
        submission.body.idempotency_key.is_some().then(|| Claim { queue, content: Default::default() });
    let outcome = Action { outputs: item.outputs, output_params: item.output_params, ..commit_of_nothing() };
    let (_, call) = outcome.into_domain(0).unwrap();
    let towline_domain::command::Verb::Commit(mut outcome) = call.verb else { unreachable!() };
    outcome.handed_off =
        item.handed_off.into_iter().map(|id| id.into_domain("handed_off").unwrap()).collect();
    let head = Head {
        id: item.id.into_domain("id").unwrap(),
        queue,
        state,
        priority: item.priority,
        created_at: time(&item.created_at),
        ready_at: time(&item.ready_at),
        retries: item.retries,
        deliveries: item.deliveries,
        revision: 0,
        transitions: item.transitions,
        expires_at: item.expires_at.as_ref().map(time),
        last_settle: None,
        group: None,
        fairness_key: KeyTag::NONE,
        changed_at: None,
        heartbeat_at: None,
        extras: None,
    };
    StoredItem {
        queue: queue_name(&item.queue),
        item: Item {
            head,
            body: submission.body,
            fields: submission.fields,
            outcome,
            errors: Errors::default(),
        },
    }
}

fn commit_of_nothing() -> Action {
    let id = "01890000-0000-7000-8000-000000000000".parse().unwrap();
    Action::new(towline_api::VerbName::Commit, id, nobodys_token())
}

pub fn nobodys_token() -> LeaseToken {
    TokenSeed([0x77; 32]).token(7, Timestamp(0))
}
