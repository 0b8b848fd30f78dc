//! `towline migrate`, and servers with --no-migrate.

use crate::postgres::Own;
use crate::rig::{Run, Server, towline};

pub fn url(server: &Own) -> String {
    format!("postgres://towline@{}/postgres", server.directory().to_str().unwrap().replace('/', "%2F"))
}

fn run(args: &[&str]) -> Run {
    Run::of(&mut towline(args))
}

#[test]
fn a_schema_is_checked_migrated_and_checked_again() {
    let database = Own::start();
    let store = url(&database);
    let check = ["migrate", "--store", &store, "--check"];
    let before = run(&check);
    assert_eq!(before.code, Some(1), "{before:?}");
    assert!(before.stdout.contains("is at version 0"), "{before:?}");
    assert!(before.stderr.contains("run `towline migrate`"), "{before:?}");

    // A server with --no-migrate says which command migrates.
    let refused = run(&["serve", "--listen", "127.0.0.1:0", "--store", &store, "--no-migrate"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("at version 0") && refused.stderr.contains("`towline migrate`"),
        "{refused:?}"
    );

    let migrated = run(&["migrate", "--store", &store, "-o", "json"]);
    assert_eq!(migrated.code, Some(0), "{migrated:?}");
    let migration: serde_json::Value = serde_json::from_str(&migrated.stdout).unwrap();
    assert_eq!((&migration["schema"], &migration["from"]), (&"towline".into(), &0.into()), "{migration}");
    let to = migration["to"].as_i64().unwrap();
    assert!(to > 0);

    let after = run(&check);
    assert_eq!((after.code, after.stderr.as_str()), (Some(0), ""), "{after:?}");
    assert!(after.stdout.contains(&format!("is at version {to}")), "{after:?}");
    let again = run(&["migrate", "--store", &store]);
    assert_eq!(again.code, Some(0));
    assert!(again.stdout.contains(&format!("at version {to} already")), "{again:?}");

    let server = Server::start_with(&[("TOWLINE_STORE", &store), ("TOWLINE_STORE_MIGRATE", "false")]);
    assert_eq!(server.ok(&["queue", "create", "jobs"]), "jobs");
}

#[test]
fn there_is_nothing_to_migrate_in_the_embedded_store() {
    let refused = run(&["migrate"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--store postgres://"), "{refused:?}");
}
