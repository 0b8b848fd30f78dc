//! `enqueue` in SQL: part of the caller's transaction, checked like the API, submitted once, never lost.

use crate::calls::*;
use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use tokio_postgres::{Client, Config};
use towline_domain::{Body, Item, ItemState, Millis, Policy, Refusal, Schema, Submission};
use towline_postgres::{Postgres, Time};
use towline_store::{Operation, Reply};
use uuid::Uuid;

/// A store, and an application that may do nothing in it but enqueue.
struct Scene {
    schema: String,
    store: Postgres,
    application: Client,
    owner: Client,
}

fn connected(config: &Config) -> Client {
    RUNTIME.block_on(connect(config)).unwrap()
}

impl Scene {
    fn new(policy: Policy) -> Scene {
        let (schema, role) = (new_schema(), new_schema());
        let store = open(&SHARED.config(), &schema, Time::Database).unwrap();
        run(&store, create("jobs", policy)).unwrap();
        let owner = connected(&SHARED.config());
        let grants = format!(
            "SET search_path = {schema};
             CREATE ROLE {role} LOGIN;
             GRANT USAGE ON SCHEMA {schema} TO {role};
             GRANT EXECUTE ON FUNCTION {schema}.enqueue TO {role};"
        );
        RUNTIME.block_on(owner.batch_execute(&grants)).unwrap();
        let application = connected(SHARED.config().user(&role));
        Scene { schema, store, application, owner }
    }

    fn execute(&self, sql: &str) {
        RUNTIME.block_on(self.application.batch_execute(sql)).unwrap();
    }

    /// Calls `enqueue` with these arguments, as the application.
    fn enqueue(&self, arguments: &str) -> Result<Uuid, (String, String)> {
        let sql = format!("SELECT {}.enqueue({arguments})", self.schema);
        match RUNTIME.block_on(self.application.query_one(&sql, &[])) {
            Ok(row) => Ok(row.get(0)),
            Err(error) => {
                let error = error.as_db_error().unwrap_or_else(|| panic!("{error}"));
                let words = format!("{}; {}", error.message(), error.hint().unwrap_or_default());
                Err((error.code().code().to_owned(), words))
            }
        }
    }

    fn ask(&self, sql: &str) -> i64 {
        RUNTIME.block_on(self.owner.query_one(sql, &[])).unwrap().get(0)
    }

    fn until_submitted(&self) {
        until("the inbox is empty", || self.ask("SELECT count(*) FROM inbox") == 0);
    }

    fn receive(&self, max: u32) -> Vec<Item> {
        match run(&self.store, receive_call("jobs", max, seed(0, 0))) {
            Ok(Reply::Received(received)) => received.items,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_commit_delivers_and_a_rollback_leaves_nothing() {
    let scene = Scene::new(Policy::default());
    scene.execute("BEGIN");
    scene.enqueue("'jobs', '{\"n\": 1}'").unwrap();
    scene.execute("ROLLBACK; BEGIN");
    let id = scene
        .enqueue(
            "'jobs', params => '{\"n\": 2, \"deep\": {\"a\": [1.50, null]}}', payload_text => 'grüß', priority => -3,
             tags => '{\"team\": \"red\"}', inputs => '{\"raw\": \"b1\"}', item_group => 'g', source => 's',
             fairness_key => 'f', max_retries => 7, expire_after => '1 hour'",
        )
        .unwrap();
    assert_eq!(counts(&scene.store, "jobs").total(), 0, "not before the commit");
    scene.execute("COMMIT");
    until("it is delivered", || counts(&scene.store, "jobs").total() == 1);
    let [item] = &scene.receive(10)[..] else { panic!("one item") };
    assert_eq!((item.head.id.0, item.head.priority), (id, -3));
    assert_eq!(item.fields.blob.as_deref(), Some("grüß".as_bytes()));
    let params: Vec<_> =
        item.body.params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(params, [("deep", "{\"a\":[1.50,null]}"), ("n", "2")]);
    assert_eq!(item.body.tags["team"], "red");
    assert_eq!(item.body.inputs["raw"].as_str(), "b1");
    assert_eq!((item.body.group.as_deref(), item.body.source.as_deref()), (Some("g"), Some("s")));
    assert_eq!(item.head.extras.as_ref().unwrap().overrides.max_retries, Some(7));
    assert!(item.head.expires_at.is_some());
    assert_eq!(scene.ask("SELECT count(*) FROM inbox") + scene.ask("SELECT count(*) FROM inbox_refused"), 0);
}

#[test]
fn items_are_delivered_in_the_order_of_enqueue_and_not_before_they_are_ready() {
    let scene = Scene::new(Policy::default());
    let mut ids = Vec::new();
    scene.execute("BEGIN");
    scene.enqueue("'jobs', delay => '1 day'").unwrap();
    scene.enqueue("'jobs', ready_at => '2100-01-01Z'").unwrap();
    for _ in 0..20 {
        ids.push(scene.enqueue("'jobs', payload => '\\x00ff'").unwrap());
    }
    scene.execute("COMMIT");
    scene.until_submitted();
    let counts = counts(&scene.store, "jobs");
    assert_eq!((counts.pending, counts.scheduled), (20, 2));
    let given: Vec<Uuid> = scene.receive(100).iter().map(|item| item.head.id.0).collect();
    assert_eq!(given, ids);
}

#[test]
fn an_error_of_enqueue_names_the_value_and_the_remedy() {
    let scene = Scene::new(Policy::default());
    let declare = |text: &str| Schema::declare(text).unwrap();
    let strict = Schema {
        inputs: [declare("raw")].into(),
        input_params: [declare("level"), declare("note?")].into(),
        ..Schema::default()
    };
    let policy = Box::new(Policy::default());
    let create_strict =
        Operation::CreateQueue { queue: "strict".parse().unwrap(), schema: Box::new(strict), policy };
    run(&scene.store, create_strict).unwrap();
    run(&scene.store, create("closed", Policy::default())).unwrap();
    run(&scene.store, Operation::CloseQueue { queue: "closed".parse().unwrap() }).unwrap();
    let id = scene.enqueue("'jobs'").unwrap();
    let long = "x".repeat(600);
    for (arguments, code, words) in [
        ("'nowhere'".to_owned(), "TW404", &["nowhere", "queue create"][..]),
        ("NULL".to_owned(), "TW404", &["NULL"]),
        ("'closed'".to_owned(), "TW409", &["closed", "open queue"]),
        ("'jobs', priority => 40000".to_owned(), "TW400", &["40000", "32767"]),
        ("'jobs', priority => NULL".to_owned(), "TW400", &["priority NULL"]),
        ("'jobs', '[1]'".to_owned(), "TW400", &["params is [1]", "name"]),
        ("'jobs', NULL".to_owned(), "TW400", &["params is NULL"]),
        ("'jobs', tags => '{\"a\": 1}'".to_owned(), "TW400", &["tags \"a\" is 1", "quotes"]),
        (format!("'jobs', tags => '{{\"a\": \"{long}\"}}'"), "TW400", &["600 bytes", "512"]),
        (format!("'jobs', idempotency_key => '{long}'"), "TW400", &["600 bytes", "512"]),
        ("'jobs', item_group => ''".to_owned(), "TW400", &["item_group", "0 bytes"]),
        ("'jobs', delay => '-1 s'".to_owned(), "TW400", &["delay -00:00:01"]),
        ("'jobs', delay => '1 s', ready_at => now()".to_owned(), "TW400", &["both"]),
        ("'jobs', ready_at => 'infinity'".to_owned(), "TW400", &["infinity", "9999"]),
        ("'jobs', payload => '', payload_text => ''".to_owned(), "TW400", &["both"]),
        ("'jobs', payload_text => repeat('x', 4194305)".to_owned(), "TW413", &["4194305", "buffer"]),
        ("'jobs', jsonb_build_object('a', repeat('x', 1048576))".to_owned(), "TW413", &["1 MiB"]),
        ("'jobs', max_retries => -1".to_owned(), "TW400", &["max_retries -1"]),
        ("'jobs', expire_after => '0'".to_owned(), "TW400", &["expire_after"]),
        (format!("'jobs', id => '{id}'"), "TW409", &["is taken"]),
        ("'strict', '{\"level\": 1}'".to_owned(), "TW422", &["input \"raw\" is missing", "declares: raw"]),
        (
            "'strict', '{\"level\": 1, \"x\": 1}', inputs => '{\"raw\": \"b\"}'".to_owned(),
            "TW422",
            &["unknown input parameter \"x\"", "level, note"],
        ),
    ] {
        let (said, message) = scene.enqueue(&arguments).unwrap_err();
        assert_eq!(said, code, "{}: {message}", &arguments[..arguments.len().min(80)]);
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
    scene.enqueue("'strict', '{\"level\": 1}', inputs => '{\"raw\": \"b\"}'").unwrap();
    scene.until_submitted();
    assert_eq!(counts(&scene.store, "strict").pending, 1);
}

#[test]
fn the_right_to_enqueue_includes_no_other_right() {
    let scene = Scene::new(Policy::default());
    let schema = &scene.schema;
    for forbidden in [format!("SELECT * FROM {schema}.inbox"), format!("DELETE FROM {schema}.pages")] {
        let refused = RUNTIME.block_on(scene.application.batch_execute(&forbidden)).unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "42501", "{forbidden}");
    }
    scene.execute(
        "CREATE TEMPORARY TABLE queues (id integer, name text, definition text);
         INSERT INTO queues VALUES (1, 'mine', '{\"state\": \"open\", \"schema\": {}}');",
    );
    assert_eq!(scene.enqueue("'mine'").unwrap_err().0, "TW404");
    let stranger = new_schema();
    let grant = format!("CREATE ROLE {stranger} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {stranger}");
    RUNTIME.block_on(scene.owner.batch_execute(&grant)).unwrap();
    let stranger = connected(SHARED.config().user(&stranger));
    let sql = format!("SELECT {schema}.enqueue('jobs')");
    let refused = RUNTIME.block_on(stranger.batch_execute(&sql)).unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "42501", "USAGE alone is not enough");
}

#[test]
fn one_idempotency_key_is_one_item() {
    let scene = Scene::new(Policy::default());
    scene.execute("BEGIN");
    let first = scene.enqueue("'jobs', idempotency_key => 'k'").unwrap();
    assert_eq!(scene.enqueue("'jobs', idempotency_key => 'k'"), Ok(first), "in the inbox");
    scene.execute("COMMIT");
    scene.until_submitted();
    assert_eq!(scene.enqueue("'jobs', idempotency_key => 'k'"), Ok(first), "submitted");
    scene.until_submitted();
    assert_eq!(counts(&scene.store, "jobs").total(), 1);
    assert_eq!(scene.ask("SELECT count(*) FROM inbox_refused"), 0);
}

#[test]
fn an_entry_that_cannot_be_submitted_is_kept_with_the_reason() {
    let scene = Scene::new(Policy::default());
    scene.execute("BEGIN");
    let id = scene.enqueue("'jobs', '{\"n\": 1}'").unwrap();
    run(&scene.store, Operation::DeleteQueue { queue: "jobs".parse().unwrap(), force: true }).unwrap();
    run(&scene.store, create("mails", Policy::default())).unwrap();
    scene.enqueue("'mails'").unwrap();
    scene.execute("COMMIT");
    scene.until_submitted();
    let refused = RUNTIME
        .block_on(scene.owner.query_one("SELECT id, code, reason, params::text FROM inbox_refused", &[]))
        .unwrap();
    assert_eq!((refused.get::<_, Uuid>(0), refused.get::<_, &str>(1)), (id, "queue_not_found"));
    assert!(refused.get::<_, &str>(2).contains("jobs"));
    assert_eq!(refused.get::<_, &str>(3), "{\"n\": 1}");
    assert_eq!(counts(&scene.store, "mails").pending, 1, "other entries are not blocked");
}

#[test]
fn an_entry_whose_key_a_client_used_meanwhile_is_refused_with_the_code_of_the_api() {
    let scene = Scene::new(Policy::default());
    scene.execute("BEGIN");
    let promised = scene.enqueue("'jobs', idempotency_key => 'k'").unwrap();
    let body = Body { idempotency_key: Some("k".to_owned()), ..Body::default() };
    let submission = Box::new(Submission { body, ..Submission::default() });
    let submit = Operation::Submit { queue: "jobs".parse().unwrap(), submission };
    let (id, created) = submitted(&run(&scene.store, submit));
    assert!(created);
    scene.execute("COMMIT");
    scene.until_submitted();
    let refused =
        RUNTIME.block_on(scene.owner.query_one("SELECT id, code, reason FROM inbox_refused", &[])).unwrap();
    let known = Refusal::KeyConflict { key: "k".to_owned(), id };
    assert_eq!((refused.get::<_, Uuid>(0), refused.get::<_, &str>(1)), (promised, known.code()));
    assert!(refused.get::<_, &str>(2).contains(&id.to_string()));
}

#[test]
fn entries_of_a_full_queue_stay_in_the_inbox_and_block_no_other_queue() {
    let scene = Scene::new(Policy { depth_limit: Some(2), ..Policy::default() });
    run(&scene.store, create("mails", Policy::default())).unwrap();
    scene.execute("BEGIN");
    for _ in 0..5 {
        scene.enqueue("'jobs'").unwrap();
    }
    scene.enqueue("'mails'").unwrap();
    scene.execute("COMMIT");
    until("the item of the other queue is submitted", || counts(&scene.store, "mails").pending == 1);
    let mut done = 0;
    while done < 5 {
        until("an item is pending", || counts(&scene.store, "jobs").pending > 0);
        for item in scene.receive(10) {
            let token = item.head.lease().unwrap().token;
            assert_eq!(run(&scene.store, lease(item.head.id, token, commit())), left(ItemState::Completed));
            done += 1;
        }
    }
    scene.until_submitted();
    assert_eq!(counts(&scene.store, "jobs").completed, 5);
}

#[test]
fn several_servers_submit_each_entry_once() {
    let scene = Scene::new(Policy { visibility_timeout: Millis::days(1), ..Policy::default() });
    let servers = [0, 1].map(|_| open(&SHARED.config(), &scene.schema, Time::Database).unwrap());
    let role = RUNTIME.block_on(scene.application.query_one("SELECT current_user::text", &[])).unwrap();
    let role: String = role.get(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let client = connected(SHARED.config().user(&role));
            let sql = format!("SELECT {}.enqueue('jobs') FROM generate_series(1, 5)", scene.schema);
            scope.spawn(move || {
                for _ in 0..40 {
                    RUNTIME.block_on(client.query(&sql, &[])).unwrap();
                }
            });
        }
    });
    scene.until_submitted();
    assert_eq!(counts(&servers[0], "jobs").pending, 800);
    assert_eq!(scene.ask("SELECT count(*) FROM inbox_refused"), 0);
    assert_eq!(scene.ask("SELECT count(DISTINCT id) FROM chosen_ids"), 800);
}
