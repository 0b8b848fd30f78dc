//! Opening: the schema is made once, by one of those who come at the same time, and only used where it can be.

use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use crate::words::*;
use std::thread;
use tokio_postgres::Config;
use towline_domain::Policy;
use towline_postgres::{Options, Postgres, Time};
use towline_store::StoreError;

fn execute(sql: &str) {
    RUNTIME.block_on(async { connect(&SHARED.config()).await.unwrap().batch_execute(sql).await.unwrap() });
}

fn refusal(config: &Config, schema: &str) -> String {
    match open(config, schema, Time::Database) {
        Err(StoreError::Unavailable { cause }) => cause,
        other => panic!("it opened, or failed otherwise: {other:?}"),
    }
}

#[test]
fn many_servers_that_open_at_once_make_one_schema() {
    let schema = new_schema();
    let stores: Vec<Postgres> = thread::scope(|scope| {
        let open = || open(&SHARED.config(), &schema, Time::Database).unwrap();
        let servers: Vec<_> = (0..6).map(|_| scope.spawn(open)).collect();
        servers.into_iter().map(|server| server.join().unwrap()).collect()
    });
    run(&stores[0], create("jobs", Policy::default())).unwrap();
    for store in &stores {
        assert!(submitted(&run(store, submit("jobs", "work"))).1);
    }
    assert_eq!(counts(&stores[5], "jobs").pending, 6, "all of them mean the same store");
}

#[test]
fn stores_in_two_schemas_know_nothing_of_each_other() {
    let [one, other] = [new_schema(), new_schema()].map(|schema| {
        let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
        run(&store, create("jobs", Policy::default())).unwrap();
        store
    });
    run(&one, submit("jobs", "work")).unwrap();
    assert_eq!((counts(&one, "jobs").total(), counts(&other, "jobs").total()), (1, 0));
}

#[test]
fn an_older_schema_is_refused_by_who_may_not_migrate() {
    let options = Options { schema: new_schema(), migrate: false, ..Options::default() };
    let refused = RUNTIME.block_on(Postgres::open(&SHARED.config().into(), options, Time::Database));
    let Err(StoreError::Unavailable { cause }) = refused else { panic!("it opened: {refused:?}") };
    assert!(cause.contains("at version 0") && cause.contains("`towline migrate`"), "{cause}");
}

#[test]
fn a_database_that_answers_before_it_is_durable_is_refused() {
    let mut hasty = SHARED.config();
    hasty.options("-c synchronous_commit=off");
    let cause = refusal(&hasty, &new_schema());
    assert!(cause.contains("synchronous_commit"), "{cause}");
}

#[test]
fn what_this_store_cannot_have_written_is_told_and_not_served() {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let (id, _) = submitted(&run(&store, submit("jobs", "work")));
    for (damage, is_named) in [
        ("UPDATE pages SET items = set_byte(items, 0, 99)", true),
        // Its lease is committed when that is found: it is left out, and holds up nobody.
        ("UPDATE pages SET items = set_byte(items, 0, 1); DELETE FROM payloads", false),
    ] {
        execute(&format!("SET search_path = {schema}; {damage}"));
        let read = block_on(towline_store::Store::get(&store, vec![id], towline_domain::FieldSet::ALL));
        assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{read:?}");
        let receive =
            block_on(towline_store::Store::update(&store, vec![receive_call("jobs", 1, seed(0, 0))]));
        match receive {
            Err(StoreError::Corrupt { .. }) if is_named => {}
            Ok(answers) if !is_named => assert_eq!(leases(&answers[0]), []),
            other => panic!("{other:?}"),
        }
    }
}
