//! `towline import --from cyclotron`.

use crate::migrate::url;
use crate::postgres::Own;
use crate::rig::{Run, Server, piped, until};
use serde_json::{Value, json};

const SCHEMA: &str = include_str!("cyclotron.sql");

/// A database with jobs in every state.
fn cyclotron() -> Own {
    let database = Own::start();
    sql(&database, SCHEMA);
    database
}

fn sql(database: &Own, statements: &str) {
    let directory = database.directory().to_str().unwrap().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = format!("host={directory} user=towline dbname=postgres");
        let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(statements).await.unwrap();
    });
}

fn import(server: &Server, database: &Own, more: &[&str]) -> Run {
    let url = url(database);
    server.run(&[&["import", "--from", "cyclotron", &url, "-o", "json"][..], more].concat())
}

fn report(run: Run) -> Value {
    serde_json::from_str(&run.ok(&["import"])).unwrap()
}

fn counts(server: &Server, queue: &str) -> Value {
    server.json(&["queue", "counts", queue, "-o", "json"])
}

#[test]
fn the_jobs_of_cyclotron_become_items() {
    let (database, server) = (cyclotron(), Server::start());
    let first = report(import(&server, &database, &[]));
    let not_imported = json!({"running": 1, "completed": 1, "failed": 2, "dead_letters": 1});
    assert_eq!(
        first,
        json!({"created": 1201, "repeated": 0, "paused": 1, "refused": 0, "not_imported": not_imported})
    );
    let hog = counts(&server, "hog");
    assert_eq!(
        [&hog["pending"], &hog["scheduled"], &hog["paused"]],
        [&json!(959), &json!(1), &json!(1)],
        "{hog}"
    );
    assert_eq!(counts(&server, "hogoverflow")["pending"], 240);
    let show = |n: u32| server.json(&["item", "show", &format!("01900000-0000-7000-8000-{n:012x}")]);
    let (large, later, small) = (show(1), show(7), show(4));
    assert_eq!(large["payload"].as_str().unwrap().len(), 1_000_000_usize.div_ceil(3) * 4);
    assert_eq!(later["ready_at"], "2099-01-01T00:00:00.000Z");
    assert_eq!((&small["priority"], &small["tags"]["team_id"]), (&json!(-2), &json!("1")));
    assert_eq!(small["tags"]["function_id"], "11111111-2222-4333-8444-555555555555");
    assert_eq!((&small["state_blob"], &small["parameters"]), (&json!("dm0gNA=="), &json!("eyJuIjo0fQ==")));
    assert!(small["payload"].is_null() && small["metadata"].is_null(), "{small}");
    assert_eq!(show(3)["payload"], "AP8=");
    // Lower priorities first, then the earlier schedule, as in Cyclotron.
    let (id, lease) = server.receive(&["hog"]);
    assert_eq!(id, "01900000-0000-7000-8000-000000000004");
    server.ok(&["item", "commit", &id, "--lease", &lease]);

    // A repeated import changes nothing, also for what is finished, and takes what was left out.
    let again = report(import(&server, &database, &["--dead-letters", "dead", "--with-running"]));
    assert_eq!((&again["created"], &again["repeated"]), (&json!(2), &json!(1201)), "{again}");
    assert_eq!(counts(&server, "hog")["completed"], 1);
    let dead = server.json(&["item", "show", "a1900000-0000-4000-8000-000000000006"]);
    assert_eq!(
        (&dead["queue"], &dead["tags"]["original_queue"], &dead["tags"]["reason"]),
        (&json!("dead"), &json!("hog"), &json!("poison pill"))
    );
}

#[test]
fn a_killed_import_continues() {
    let (database, server) = (cyclotron(), Server::start());
    let url = url(&database);
    let mut command = server.command(&["import", "--from", "cyclotron", &url]);
    let mut child = piped(&mut command).spawn().unwrap();
    until("jobs are imported", || {
        let run = server.run(&["queue", "counts", "hogoverflow", "-o", "json"]);
        run.code == Some(0) && !run.stdout.contains("\"pending\": 0")
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let done = report(import(&server, &database, &[]));
    let sum = done["created"].as_u64().unwrap() + done["repeated"].as_u64().unwrap();
    assert_eq!((sum, &done["refused"]), (1201, &json!(0)), "{done}");
    assert_eq!(counts(&server, "hogoverflow")["pending"], 240);
}

#[test]
fn a_job_that_cannot_be_imported_is_named() {
    let (database, server) = (Own::start(), Server::start());
    let empty = import(&server, &database, &[]);
    assert!(empty.code == Some(1) && empty.stderr.contains("cyclotron_jobs"), "{empty:?}");
    sql(&database, SCHEMA);
    sql(&database, "UPDATE cyclotron_jobs SET queue_name = 'not a name' WHERE queue_name = 'hogoverflow'");
    let refused = import(&server, &database, &[]);
    assert!(refused.code != Some(0) && refused.stderr.contains("not a name"), "{refused:?}");
    let done = report(import(&server, &database, &["--queue", "not a name=overflow"]));
    assert_eq!(done["refused"], 0, "{done}");
    assert_eq!(counts(&server, "overflow")["pending"], 240);
    let offline = server.run(&["import", "--from", "cyclotron", "postgres://x/y", "--data", "somewhere"]);
    assert_eq!(offline.code, Some(2), "{offline:?}");
}
