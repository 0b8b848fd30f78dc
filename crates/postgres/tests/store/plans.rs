//! The plans of the statements that batches send often: they follow an index and start at the position given to them.

use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use towline_postgres::Time;

const FUNCTIONS: &str = include_str!("../../migrations/0001_store_functions.sql");

macro_rules! query {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("../../queries/", $file)), "\n"),+)
    };
}

/// The statement of a function's cursor, prepared with parameters of these types in place of these names.
fn cursor_of(function: &str, parameters: &[(&str, &str)]) -> String {
    let body = FUNCTIONS.split(&format!("CREATE FUNCTION {function}(")).nth(1).unwrap();
    let statement = body.split("OPEN next_pages FOR").nth(1).unwrap().split(';').next().unwrap();
    prepared(statement, parameters)
}

fn prepared(statement: &str, parameters: &[(&str, &str)]) -> String {
    let numbered = (1..).zip(parameters);
    let statement = numbered
        .fold(statement.to_owned(), |text, (number, (name, _))| text.replace(name, &format!("${number}")));
    let types: Vec<&str> = parameters.iter().map(|(_, kind)| *kind).collect();
    format!("({}) AS {statement}", types.join(", "))
}

/// The generic plan of a statement on empty tables: only the form of the statement decides, not statistics.
fn plan(statement: &str, parameters: &str) -> String {
    let schema = new_schema();
    drop(open(&SHARED.config(), &schema, Time::Database).unwrap());
    RUNTIME.block_on(async {
        let client = connect(&SHARED.config()).await.unwrap();
        let settings = format!(
            "SET search_path = {schema}; SET enable_seqscan = off; SET enable_bitmapscan = off;
             SET plan_cache_mode = force_generic_plan; PREPARE statement {statement};"
        );
        client.batch_execute(&settings).await.unwrap();
        let rows = client.query(&format!("EXPLAIN EXECUTE statement({parameters})"), &[]).await.unwrap();
        client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0) + "\n").collect()
    })
}

fn follows(plan: &str, index: &str, condition: &str) {
    assert!(plan.contains(index), "{plan}");
    let mut bounds = plan.lines().filter(|line| line.contains("Index Cond"));
    assert!(bounds.any(|bounds| bounds.contains(condition)), "{plan}");
    assert!(!plan.contains("Sort"), "{plan}");
}

#[test]
fn a_sweep_reads_only_pages_that_are_due() {
    let cursor = cursor_of("lock_due_pages", &[("after_time", "bigint"), ("until_time", "bigint")]);
    follows(&plan(&cursor, "0, 5"), "pages_wake", "wake_at <= $");
}

#[test]
fn a_receive_starts_behind_its_start_position() {
    let parameters = [
        ("queue_id", "integer"),
        ("after_rank", "bigint"),
        ("after_time", "bigint"),
        ("after_seq", "bigint"),
    ];
    let plan = plan(&cursor_of("lock_ready_pages", &parameters), "1, 0, 0, 0");
    follows(&plan, "pages_ready", "ROW(order_rank, order_time, order_seq) > ROW($2, $3, $4)");
}

#[test]
fn a_receive_by_fairness_key_starts_behind_its_start_position() {
    let parameters = [
        ("queue_id", "integer"),
        ("keys[n]", "bigint"),
        ("ranks[n]", "bigint"),
        ("times[n]", "bigint"),
        ("seqs[n]", "bigint"),
    ];
    let plan = plan(&cursor_of("lock_ready_pages_by_key", &parameters), "1, 5, 0, 0, 0");
    let condition = "ROW(fairness_key, order_rank, order_time, order_seq) > ROW($2, $3, $4, $5)";
    follows(&plan, "pages_ready_by_key", condition);
    follows(&plan, "pages_ready_by_key", "fairness_key <= $2");
}

#[test]
fn the_next_fairness_key_is_the_next_in_the_index() {
    let walk = FUNCTIONS.split("UNION ALL\n            SELECT (").nth(1).unwrap().split(')').next().unwrap();
    let statement = prepared(walk, &[("queue_id", "integer"), ("walk.key", "bigint")]);
    follows(&plan(&statement, "1, 5"), "pages_ready_by_key", "fairness_key > $2");
}

#[test]
fn leased_counts_are_read_from_the_index_of_pages_with_leases() {
    let plan = plan(&format!("AS {}", query!("read_leased_counts.sql")), "'{1,2}'");
    assert!(plan.contains("pages_leased") && plan.contains("queue = ANY"), "{plan}");
}

#[test]
fn items_are_found_by_their_sequence_numbers() {
    let statement = format!(
        "AS {}",
        query!(
            "fragments/with_asked_items.sql",
            "fragments/select_pages.sql",
            "fragments/pages_holding_items.sql",
            "fragments/lock_in_order.sql"
        )
    );
    let plan = plan(&statement, "'{1,2}', '{1,5}', '{}'");
    follows(&plan, "pages_pkey", "first_seq = ANY");
}
