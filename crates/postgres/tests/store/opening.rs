//! Opening a store: it creates the schema once, and refuses a database that it cannot use.

use crate::calls::*;
use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use std::thread;
use std::time::Duration;
use tokio_postgres::Config;
use towline_domain::id::SEQUENCE_ACCEPTED_MAX;
use towline_domain::{Millis, Policy};
use towline_postgres::{Options, Postgres, Time};
use towline_store::{Store, StoreError};

fn execute(sql: &str) {
    RUNTIME.block_on(async { connect(&SHARED.config()).await.unwrap().batch_execute(sql).await.unwrap() });
}

/// The time of the latest batch.
fn latest_of(schema: &str) -> i64 {
    RUNTIME.block_on(async {
        let client = connect(&SHARED.config()).await.unwrap();
        client.query_one(&format!("SELECT max(decided_at) FROM {schema}.sessions"), &[]).await.unwrap().get(0)
    })
}

fn refusal(config: &Config, schema: &str) -> String {
    match open(config, schema, Time::Database) {
        Err(StoreError::Unavailable { cause }) => cause,
        other => panic!("expected an unavailable store, got {other:?}"),
    }
}

#[test]
fn servers_that_open_at_the_same_time_create_one_schema() {
    let schema = new_schema();
    let stores: Vec<Postgres> = thread::scope(|scope| {
        let open = || open(&SHARED.config(), &schema, Time::Database).unwrap();
        let servers: Vec<_> = (0..6).map(|_| scope.spawn(open)).collect();
        servers.into_iter().map(|server| server.join().unwrap()).collect()
    });
    run(&stores[0], create("jobs", Policy::default())).unwrap();
    for store in &stores {
        assert_eq!(store.identity(), stores[0].identity());
        assert!(submitted(&run(store, submit("jobs", "work"))).1);
    }
    assert_eq!(counts(&stores[5], "jobs").pending, 6, "all servers use the same store");
}

#[test]
fn stores_in_two_schemas_are_separate() {
    let [one, other] = [new_schema(), new_schema()].map(|schema| {
        let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
        run(&store, create("jobs", Policy::default())).unwrap();
        store
    });
    run(&one, submit("jobs", "work")).unwrap();
    assert_ne!(one.identity(), other.identity());
    assert_eq!((counts(&one, "jobs").total(), counts(&other, "jobs").total()), (1, 0));
}

#[test]
fn a_server_that_may_not_migrate_refuses_an_older_schema() {
    let options = Options { schema: new_schema(), migrate: false, ..Options::default() };
    let refused = RUNTIME.block_on(Postgres::open(&SHARED.config().into(), options, Time::Database));
    let Err(StoreError::Unavailable { cause }) = refused else { panic!("it opened: {refused:?}") };
    assert!(cause.contains("at version 0") && cause.contains("`towline migrate`"), "{cause}");
}

#[test]
fn a_database_that_confirms_commits_before_they_are_durable_is_refused() {
    let mut hasty = SHARED.config();
    hasty.options("-c synchronous_commit=off");
    let cause = refusal(&hasty, &new_schema());
    assert!(cause.contains("synchronous_commit"), "{cause}");
}

#[test]
fn the_time_goes_on_although_the_clock_is_behind_the_latest_batch() {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy { visibility_timeout: Millis(500), ..Policy::default() })).unwrap();
    run(&store, submit("jobs", "work")).unwrap();
    drop(store);
    // As if the clock had been an hour ahead at that batch.
    execute(&format!("UPDATE {schema}.sessions SET decided_at = decided_at + 3600000 WHERE decided_at > 0"));
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    assert_eq!(leases(&run(&store, receive_call("jobs", 1, seed(0, 0)))).len(), 1);
    let metrics = block_on(Store::metrics(&store)).unwrap();
    assert!(metrics.clock.ahead_ms > 3_500_000, "{:?}", metrics.clock);
    // The lease lapses by the store's time, which runs at half speed.
    let lapsed = (1..600).any(|call| {
        thread::sleep(Duration::from_millis(50));
        !leases(&run(&store, receive_call("jobs", 1, seed(0, call)))).is_empty()
    });
    assert!(lapsed, "the store's time stands still");
}

#[test]
fn one_reading_years_ahead_at_a_start_costs_a_step() {
    const YEARS: i64 = 10 * 365 * 86_400_000;
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    drop(store);
    // As if the clock were ten years ahead now.
    execute(&format!("UPDATE {schema}.sessions SET decided_at = decided_at - {YEARS} WHERE decided_at > 0"));
    let latest = latest_of(&schema);
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, submit("jobs", "work")).unwrap();
    let metrics = block_on(Store::metrics(&store)).unwrap();
    assert!(metrics.clock.steps_cut == 1 && metrics.clock.ahead_ms < -YEARS / 2, "{:?}", metrics.clock);
    let step = latest_of(&schema) - latest;
    assert!((30 * 86_400_000..31 * 86_400_000).contains(&step), "the stored time went on by {step} ms");
}

#[test]
fn damaged_rows_are_reported_and_not_served() {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let (id, _) = submitted(&run(&store, submit("jobs", "work")));
    for (damage, is_named) in [
        ("UPDATE pages SET items = set_byte(items, 0, 99)", true),
        // A receive finds this damage after it committed the lease: it leaves the item out and delivers the others.
        ("UPDATE pages SET items = set_byte(items, 0, 1); DELETE FROM payloads", false),
    ] {
        execute(&format!("SET search_path = {schema}; {damage}"));
        let read = block_on(Store::get(&store, vec![id], towline_domain::FieldSet::ALL));
        assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{read:?}");
        let receive = block_on(Store::update(&store, vec![receive_call("jobs", 1, seed(0, 0))]));
        match receive {
            Err(StoreError::Corrupt { .. }) if is_named => {}
            Ok(answers) if !is_named => assert_eq!(leases(&answers.answers[0]), []),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(block_on(Store::metrics(&store)).unwrap().damages, 4, "each read and each receive met it");
}

#[test]
fn a_store_that_has_used_up_its_numbers_refuses_submits_in_words() {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    run(&store, submit("jobs", "before")).unwrap();
    execute(&format!("SELECT setval('{schema}.item_sequence', {SEQUENCE_ACCEPTED_MAX})"));
    let refusal = run(&store, submit("jobs", "after")).unwrap_err();
    assert_eq!(refusal.code(), "store_full");
    assert!(refusal.to_string().contains("towline export"), "{refusal}");
    assert_eq!(receive(&store, "jobs", 10, seed(0, 0)).len(), 1, "all else works");
}
