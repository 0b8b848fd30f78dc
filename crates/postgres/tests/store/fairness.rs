//! Fairness keys: many items of one tenant do not delay the few of another. `TOWLINE_SOAK=1` uses 100,000 items.

use crate::calls::*;
use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use towline_domain::{Fairness, Flow, Policy, PolicyPatch};
use towline_postgres::{Postgres, Time};
use towline_store::{Operation, Reply, Store};

fn many() -> usize {
    if std::env::var_os("TOWLINE_SOAK").is_some() { 100_000 } else { 5_000 }
}

fn fair() -> Flow {
    Flow { fairness: Some(Fairness::default()), ..Flow::default() }
}

fn submit_many(store: &dyn Store, tenant: &str, count: usize) {
    for first in (0..count).step_by(1000) {
        let batch =
            (first..count.min(first + 1000)).map(|_| submit_with_fairness_key("jobs", tenant)).collect();
        update(store, batch);
    }
}

/// The fairness keys of the next items, received one by one.
fn next_keys(store: &dyn Store, receives: usize) -> Vec<String> {
    let one = |n| match run(store, receive_call("jobs", 1, seed(0, n))) {
        Ok(Reply::Received(received)) => received.items[0].body.fairness_key.clone().unwrap(),
        other => panic!("a receive was answered with {other:?}"),
    };
    (0..receives).map(one).collect()
}

fn count(keys: &[String], key: &str) -> usize {
    keys.iter().filter(|other| *other == key).count()
}

fn turn_on_fairness(store: &dyn Store) {
    let patch = PolicyPatch { fairness: Some(fair().fairness), ..PolicyPatch::default() };
    let queue = "jobs".parse().unwrap();
    run(store, Operation::ChangePolicy { queue, patch: Box::new(patch) }).unwrap();
}

fn new_store(policy: Policy) -> (Postgres, String) {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", policy)).unwrap();
    (store, schema)
}

fn number(schema: &str, query: &str) -> i64 {
    RUNTIME.block_on(async {
        let client = connect(SHARED.config().options(format!("-c search_path={schema}"))).await.unwrap();
        client.query_one(query, &[]).await.unwrap().get(0)
    })
}

#[test]
fn ten_items_are_delivered_within_twenty_receives_behind_a_long_backlog() {
    let (store, _) = new_store(Policy { flow: fair(), ..Policy::default() });
    submit_many(&store, "large", many());
    submit_many(&store, "small", 10);
    let given = next_keys(&store, 20);
    assert_eq!(count(&given, "small"), 10, "{given:?}");
}

#[test]
fn two_servers_share_one_round_robin() {
    let (one, schema) = new_store(Policy { flow: fair(), ..Policy::default() });
    let other = open(&SHARED.config(), &schema, Time::Database).unwrap();
    for tenant in ["a", "b", "c"] {
        submit_many(&one, tenant, 50);
    }
    let mut given = Vec::new();
    for n in 0..30 {
        given.extend(next_keys(if n % 2 == 0 { &one } else { &other }, 1));
    }
    assert_eq!(["a", "b", "c"].map(|tenant| count(&given, tenant)), [10; 3], "{given:?}");
}

#[test]
fn a_concurrency_limit_for_each_key_holds_over_all_servers() {
    let flow = Flow { concurrency_per_key: Some(2), ..Flow::default() };
    let (one, schema) = new_store(Policy { flow, ..Policy::default() });
    let other = open(&SHARED.config(), &schema, Time::Database).unwrap();
    submit_many(&one, "large", 100);
    submit_many(&one, "small", 3);
    let first = receive(&one, "jobs", 3, seed(0, 0));
    let second = receive(&other, "jobs", 50, seed(0, 1));
    assert_eq!((first.len(), second.len()), (3, 1), "two items of each key");
    assert_eq!(receive(&one, "jobs", 50, seed(0, 2)).len(), 0);
    for (id, token) in second {
        run(&one, lease(id, token, commit())).unwrap();
    }
    assert_eq!(receive(&other, "jobs", 50, seed(0, 3)).len(), 1);
    assert_eq!(number(&schema, "SELECT sum(leased_count)::bigint FROM pages"), 4);
    assert_eq!(number(&schema, "SELECT sum(processing)::bigint FROM counters"), 4);
}

#[test]
fn items_of_keys_at_their_limit_are_not_receivable() {
    let flow = Flow { concurrency_per_key: Some(1), ..Flow::default() };
    let (store, schema) = new_store(Policy { flow, ..Policy::default() });
    // A receive that found nothing asks this, to find out whether another transaction has locked the items.
    let receivable = || number(&schema, "SELECT has_receivable_key(id, 1)::integer::bigint FROM queues");
    assert_eq!(receivable(), 0);
    submit_many(&store, "full", 20);
    assert_eq!(receivable(), 1);
    assert_eq!(next_keys(&store, 1), ["full"]);
    assert_eq!(receivable(), 0);
    submit_many(&store, "open", 1);
    assert_eq!(receivable(), 1);
}

#[test]
fn items_from_before_fairness_move_to_pages_by_key_step_by_step() {
    let (store, schema) = new_store(Policy::default());
    submit_many(&store, "large", many());
    submit_many(&store, "small", 10);
    turn_on_fairness(&store);
    let waiting = "SELECT count(*) FROM pages WHERE order_rank IS NOT NULL AND fairness_key IS NULL";
    assert!(number(&schema, waiting) > 0);
    let mut given = Vec::new();
    // Each receive moves some of them.
    while number(&schema, waiting) > 0 {
        given.extend(next_keys(&store, 1));
        assert!(given.len() < 1000, "it makes no progress");
    }
    given.extend(next_keys(&store, 20));
    assert_eq!(count(&given, "small"), 10, "{given:?}");
    assert_eq!(
        number(&schema, "SELECT count(*) FROM round_robins WHERE keyed_rank IS NULL"),
        1,
        "all items have moved"
    );
    let rest = run(&store, receive_call("jobs", 10_000, seed(1, 0)));
    assert_eq!(leases(&rest).len(), (many() + 10 - given.len()).min(10_000));
}

#[test]
fn a_page_that_another_transaction_has_locked_is_moved_later() {
    let (store, schema) = new_store(Policy::default());
    submit_many(&store, "a", 2);
    submit_many(&store, "b", 2);
    turn_on_fairness(&store);
    // Another transaction has locked the first page.
    RUNTIME.block_on(async {
        let mut client = connect(SHARED.config().options(format!("-c search_path={schema}"))).await.unwrap();
        let held = client.transaction().await.unwrap();
        held.execute("SELECT 1 FROM pages ORDER BY first_seq LIMIT 1 FOR UPDATE", &[]).await.unwrap();
        let call = receive_call("jobs", 4, seed(0, 0));
        let answered = store.update(vec![call]).await.unwrap().answers.remove(0);
        assert_eq!(leases(&answered).len(), 2, "the items behind it are delivered");
        held.rollback().await.unwrap();
    });
    assert_eq!(next_keys(&store, 2), ["a", "a"]);
}
