//! Migrations: the schema moves forward only, and says which servers can use it.

use crate::calls::*;
use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use tokio_postgres::Config;
use towline_domain::ItemState;
use towline_domain::Policy;
use towline_postgres::{Migrated, Options, Postgres, Time, migrate, schema_version};
use towline_store::StoreError;

fn options(schema: &str) -> Options {
    Options { schema: schema.to_owned(), ..Options::default() }
}

fn execute(sql: &str) {
    let config = SHARED.config();
    RUNTIME.block_on(async { connect(&config).await.unwrap().batch_execute(sql).await.unwrap() });
}

/// Records a migration by a newer server.
fn newer(schema: &str, version: i32, compatible_with: i32) {
    execute(&format!(
        "INSERT INTO {schema}.towline_schema (version, compatible_with) VALUES ({version}, {compatible_with})"
    ));
}

fn cause_of<T: std::fmt::Debug>(result: towline_store::Result<T>) -> String {
    match result {
        Err(StoreError::Unavailable { cause }) => cause,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn a_migration_reports_both_versions_and_a_second_one_does_nothing() {
    let schema = new_schema();
    let before = RUNTIME.block_on(schema_version(&SHARED.config().into(), &options(&schema))).unwrap();
    assert!(before.version == 0 && before.is_behind());
    let latest = before.known;
    let migrated = RUNTIME.block_on(migrate(&SHARED.config().into(), &options(&schema))).unwrap();
    assert_eq!(migrated, Migrated { from: 0, to: latest });
    let again = RUNTIME.block_on(migrate(&SHARED.config().into(), &options(&schema))).unwrap();
    assert_eq!(again, Migrated { from: latest, to: latest });
    let after = RUNTIME.block_on(schema_version(&SHARED.config().into(), &options(&schema))).unwrap();
    assert!(after.version == latest && !after.is_behind() && !after.is_incompatible());
    let no_migration = Options { migrate: false, ..options(&schema) };
    RUNTIME.block_on(Postgres::open(&SHARED.config().into(), no_migration, Time::Database)).unwrap();
}

#[test]
fn a_server_uses_a_newer_schema_that_is_compatible() {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    newer(&schema, 1000, 1);
    // A running server, a starting server, and a server that migrates.
    assert!(submitted(&run(&store, submit("jobs", "running"))).1);
    let started = open(&SHARED.config(), &schema, Time::Database).unwrap();
    assert!(submitted(&run(&started, submit("jobs", "started"))).1);
    let migrated = RUNTIME.block_on(migrate(&SHARED.config().into(), &options(&schema))).unwrap();
    assert_eq!(migrated, Migrated { from: 1000, to: 1000 });
    assert_eq!(counts(&store, "jobs").pending, 2);
}

#[test]
fn a_server_refuses_a_newer_schema_that_is_not_compatible() {
    let schema = new_schema();
    let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    newer(&schema, 1000, 1000);
    // A later version with a smaller demand does not take the demand back.
    newer(&schema, 1001, 1);
    let refusals = [
        cause_of(open(&SHARED.config(), &schema, Time::Database)),
        cause_of(RUNTIME.block_on(migrate(&SHARED.config().into(), &options(&schema)))),
    ];
    for cause in refusals {
        assert!(cause.contains("at version 1001") && cause.contains("that know version 1000"), "{cause}");
        assert!(cause.contains("use a newer server"), "{cause}");
    }
    // A running server finds out when it connects again.
    execute(&format!(
        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN {schema}.sessions ON objid = session::oid
         WHERE locktype = 'advisory' AND classid::bigint = (SELECT salt & 4294967295 FROM {schema}.catalog)"
    ));
    let cause = cause_of(block_on(towline_store::Store::update(&store, vec![submit("jobs", "late")])));
    assert!(cause.contains("use a newer server"), "{cause}");
}

#[test]
fn a_server_works_with_a_role_that_cannot_change_the_schema() {
    let (schema, owner, server) = (new_schema(), new_schema(), new_schema());
    let as_role = |role: &str| -> Config {
        let mut config = SHARED.config();
        config.user(role);
        config
    };
    execute(&format!(
        "CREATE ROLE {owner} LOGIN; CREATE ROLE {server} LOGIN; CREATE SCHEMA {schema} AUTHORIZATION {owner};"
    ));
    RUNTIME.block_on(migrate(&as_role(&owner).into(), &options(&schema))).unwrap();
    execute(&format!(
        "GRANT USAGE ON SCHEMA {schema} TO {server};
         GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA {schema} TO {server};
         GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA {schema} TO {server};"
    ));
    let no_migration = Options { migrate: false, ..options(&schema) };
    let store =
        RUNTIME.block_on(Postgres::open(&as_role(&server).into(), no_migration, Time::Database)).unwrap();
    run(&store, create("jobs", Policy::default())).unwrap();
    let (id, _) = submitted(&run(&store, submit("jobs", "work")));
    let [(given, token)] = receive(&store, "jobs", 5, seed(0, 0))[..] else { panic!("one item") };
    assert_eq!((given, run(&store, lease(id, token, commit()))), (id, left(ItemState::Completed)));
    drop(store);
    // A role that may not migrate gets a clear error.
    execute(&format!("DELETE FROM {schema}.towline_schema"));
    let cause = cause_of(RUNTIME.block_on(migrate(&as_role(&server).into(), &options(&schema))));
    assert!(cause.contains("cannot migrate") && cause.contains("permission denied"), "{cause}");
}
