//! Peer hints: servers notify each other of ready items. A hint may be lost.

use crate::calls::*;
use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use std::time::Duration;
use towline_domain::{ItemId, Policy, PolicyPatch, QueueName};
use towline_postgres::{Postgres, Time};
use towline_store::{Operation, PeerHints};

/// Longer than any step of a test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits for hints that meet a condition.
fn wait_for_hints(store: &Postgres, what: &str, condition: impl Fn(&PeerHints) -> bool) -> PeerHints {
    RUNTIME.block_on(async {
        let all = async {
            loop {
                let hints = store.peer_hints().await;
                if condition(&hints) {
                    return hints;
                }
            }
        };
        tokio::time::timeout(TIMEOUT, all).await.unwrap_or_else(|_| panic!("no hint of {what}"))
    })
}

fn pair() -> (String, Postgres, Postgres) {
    let schema = new_schema();
    let [one, other] = [0, 1].map(|_| open(&SHARED.config(), &schema, Time::Database).unwrap());
    for store in [&one, &other] {
        wait_for_hints(store, "its own notification", |hints| hints.listening);
    }
    run(&one, create("jobs", Policy::default())).unwrap();
    // A server does not know the name of a new queue: its hint covers all queues.
    wait_for_hints(&other, "the new queue", |hints| hints.anything);
    run(&one, submit("jobs", "from one")).unwrap();
    wait_for_hints(&other, "an item in the new queue", |hints| hints.anything);
    run(&other, submit("jobs", "from the other")).unwrap();
    wait_for_hints(&one, "an item in a known queue", ready);
    (schema, one, other)
}

fn ready(hints: &PeerHints) -> bool {
    hints.ready.contains_key(&jobs())
}

fn jobs() -> QueueName {
    "jobs".parse().unwrap()
}

#[test]
fn a_server_gets_hints_of_items_that_another_one_made_ready() {
    let (_, one, other) = pair();
    let submits = (0..7).map(|n| submit("jobs", &n.to_string())).collect();
    update(&one, submits);
    let hints = wait_for_hints(&other, "the submits", ready);
    assert_eq!(hints.ready[&jobs()], 7, "the sum of all submits");
    let given = receive(&one, "jobs", 3, seed(0, 0));
    update(&one, given.iter().map(|&(id, token)| lease(id, token, release())).collect());
    assert_eq!(wait_for_hints(&other, "the released items", ready).ready[&jobs()], 3);
    run(&one, Operation::CloseQueue { queue: jobs() }).unwrap();
    wait_for_hints(&other, "the closing", ready);
}

#[test]
fn a_listener_that_lost_its_connection_reconnects_and_hints_at_all_queues() {
    let (schema, one, other) = pair();
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE application_name = 'towline listens to {schema}'"
    );
    let ended = RUNTIME.block_on(async {
        connect(&SHARED.config()).await.unwrap().query_one(&sql, &[]).await.unwrap().get::<_, i64>(0)
    });
    assert_eq!(ended, 2, "one listener a server");
    for store in [&one, &other] {
        // The listener may reconnect before the test asks for the first time.
        wait_for_hints(store, "its own notification again", |hints| hints.listening && hints.anything);
    }
    run(&one, submit("jobs", "after")).unwrap();
    wait_for_hints(&other, "the submit", |hints| hints.anything || ready(hints));
}

#[test]
fn servers_in_two_schemas_get_no_hints_of_each_other() {
    let (_, one, _) = pair();
    let (_, stranger, neighbour) = pair();
    run(&one, submit("jobs", "mine")).unwrap();
    update(&neighbour, (0..5).map(|n| submit("jobs", &n.to_string())).collect());
    // The first hints are those of the server in the same schema, and complete.
    let hints = wait_for_hints(&stranger, "the neighbour", |hints| !hints.ready.is_empty());
    assert_eq!(hints.ready[&jobs()], 5);
}

#[test]
fn a_lease_end_of_one_key_is_hinted_although_another_key_gets_a_lease() {
    let (_, one, other) = pair();
    let given = receive(&one, "jobs", 5, seed(0, 0));
    update(&one, given.iter().map(|&(id, token)| lease(id, token, commit())).collect());
    let patch = PolicyPatch { concurrency_per_key: Some(Some(1)), ..PolicyPatch::default() };
    run(&one, Operation::ChangePolicy { queue: jobs(), patch: Box::new(patch) }).unwrap();
    update(&one, ["a", "a", "b"].map(|key| submit_with_fairness_key("jobs", key)).into());
    // The change of the policy, and three submits.
    let mut so_far = 0;
    while so_far < 4 {
        so_far += wait_for_hints(&other, "the submits", ready).ready[&jobs()];
    }
    let [(id, token)] = receive(&one, "jobs", 1, seed(0, 1))[..] else { panic!("one item") };
    let batch = vec![lease(id, token, commit()), receive_call("jobs", 1, seed(0, 2))];
    assert_eq!(leases(&update(&one, batch)[1]).len(), 1);
    assert_eq!(wait_for_hints(&other, "the end", ready).ready[&jobs()], 1);
}

#[test]
fn the_end_of_items_at_another_server_is_hinted() {
    let (_, one, other) = pair();
    let given = receive(&one, "jobs", 2, seed(0, 0));
    let (first, token) = given[0];
    run(&one, lease(first, token, commit())).unwrap();
    wait_for_hints(&other, "the commit", |hints| hints.left.contains(&first));
    // More than one notification names.
    let batch = (0..100).map(|n| submit("jobs", &n.to_string())).collect();
    let ids: Vec<_> = update(&one, batch).iter().map(|answered| submitted(answered).0).collect();
    let cancel = |&id: &ItemId| Operation::Cancel { id, reason: String::new() };
    update(&one, ids.iter().map(cancel).collect());
    let hints = wait_for_hints(&other, "the cancelled items", |hints| hints.left_unnamed.contains(&jobs()));
    assert!(!hints.anything);
    run(&one, Operation::DeleteQueue { queue: jobs(), force: true }).unwrap();
    let deleted = |hints: &PeerHints| hints.anything || hints.left_unnamed.contains(&jobs());
    wait_for_hints(&other, "the deleted queue", deleted);
}
