//! Servers tell each other what they bring: a hint, which may be lost and comes again.

use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use crate::words::*;
use std::time::Duration;
use towline_domain::{Policy, PolicyPatch, QueueName};
use towline_postgres::{PeerHints, Postgres, Time};
use towline_store::Operation;

/// Longer than anything takes; what is not there by then never comes.
const NEVER: Duration = Duration::from_secs(60);

/// Waits until the store has heard of it.
fn hears(store: &Postgres, what: &str, so: impl Fn(&PeerHints) -> bool) -> PeerHints {
    RUNTIME.block_on(async {
        let all = async {
            loop {
                let heard = store.peer_hints().await;
                if so(&heard) {
                    return heard;
                }
            }
        };
        tokio::time::timeout(NEVER, all).await.unwrap_or_else(|_| panic!("never heard: {what}"))
    })
}

fn pair() -> (String, Postgres, Postgres) {
    let schema = new_schema();
    let [one, other] = [0, 1].map(|_| open(&SHARED.config(), &schema, Time::Database).unwrap());
    for store in [&one, &other] {
        hears(store, "itself", |heard| heard.hears);
    }
    run(&one, create("jobs", Policy::default())).unwrap();
    // A queue that is not known yet may be any.
    hears(&other, "the new queue", |heard| heard.anything);
    run(&one, submit("jobs", "from one")).unwrap();
    hears(&other, "something in the new queue", |heard| heard.anything);
    run(&other, submit("jobs", "from the other")).unwrap();
    hears(&one, "something in a queue that it knows", ready);
    (schema, one, other)
}

fn ready(heard: &PeerHints) -> bool {
    heard.ready.contains_key(&jobs())
}

fn jobs() -> QueueName {
    "jobs".parse().unwrap()
}

#[test]
fn what_becomes_ready_at_one_server_is_heard_at_another() {
    let (_, one, other) = pair();
    let submits = (0..7).map(|n| submit("jobs", &n.to_string())).collect();
    update(&one, submits);
    let heard = hears(&other, "the submits", ready);
    assert_eq!(heard.ready[&jobs()], 7, "how many, together");
    let given = receive(&one, "jobs", 3, seed(0, 0));
    update(&one, given.iter().map(|&(id, token)| lease(id, token, release())).collect());
    assert_eq!(hears(&other, "what was released", ready).ready[&jobs()], 3);
    run(&one, Operation::CloseQueue { queue: jobs() }).unwrap();
    hears(&other, "the closing", ready);
}

#[test]
fn a_listener_that_loses_its_connection_comes_back_and_knows_that_it_missed_something() {
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
        // That it was deaf may be over before anybody asks.
        hears(store, "itself again", |heard| heard.hears && heard.anything);
    }
    run(&one, submit("jobs", "after")).unwrap();
    hears(&other, "the submit", |heard| heard.anything || ready(heard));
}

#[test]
fn servers_in_two_schemas_do_not_hear_each_other() {
    let (_, one, _) = pair();
    let (_, stranger, neighbour) = pair();
    run(&one, submit("jobs", "mine")).unwrap();
    update(&neighbour, (0..5).map(|n| submit("jobs", &n.to_string())).collect());
    // What comes first is the neighbour's, and all of it.
    let heard = hears(&stranger, "the neighbour", |heard| !heard.ready.is_empty());
    assert_eq!(heard.ready[&jobs()], 5);
}

#[test]
fn an_end_of_one_key_is_heard_though_another_key_takes_as_much() {
    let (_, one, other) = pair();
    let given = receive(&one, "jobs", 5, seed(0, 0));
    update(&one, given.iter().map(|&(id, token)| lease(id, token, commit())).collect());
    let patch = PolicyPatch { concurrency_per_key: Some(Some(1)), ..PolicyPatch::default() };
    run(&one, Operation::ChangePolicy { queue: jobs(), patch: Box::new(patch) }).unwrap();
    update(&one, ["a", "a", "b"].map(|key| of_key("jobs", key)).into());
    // The change, and the three.
    let mut so_far = 0;
    while so_far < 4 {
        so_far += hears(&other, "the submits", ready).ready[&jobs()];
    }
    let [(id, token)] = receive(&one, "jobs", 1, seed(0, 1))[..] else { panic!("one item") };
    let batch = vec![lease(id, token, commit()), receive_call("jobs", 1, seed(0, 2))];
    assert_eq!(leases(&update(&one, batch)[1]).len(), 1);
    assert_eq!(hears(&other, "the end", ready).ready[&jobs()], 1);
}
