//! How PostgreSQL goes about the statements that every batch sends: along an index, from where it is told to begin.

use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use towline_postgres::Time;

const SCHEMA: &str = include_str!("../../migrations/0001_store.sql");
const TURNS: &str = include_str!("../../migrations/0011_limits_by_key.sql");

macro_rules! query {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("../../queries/", $file)), "\n"),+)
    };
}

/// The statement that a function of the schema walks along, with the types of its parameters.
fn walk(function: &str, types: &str) -> String {
    let text = SCHEMA.split(&format!("CREATE FUNCTION {function}({types})")).nth(1).unwrap();
    let text = text.split("OPEN here FOR").nth(1).unwrap().split(';').next().unwrap();
    format!("({types}) AS {text}")
}

/// The plan of a statement for any parameters, on tables that are empty: nothing but its own shape is in its favour.
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
fn a_sweep_reads_no_further_than_the_present() {
    let plan = plan(&walk("due", "bigint, bigint, bigint"), "0, 5, 10");
    follows(&plan, "pages_wake", "wake <= $");
}

#[test]
fn a_receive_begins_where_it_is_told_to() {
    let plan = plan(&walk("receivable", "integer, bigint, bigint, bigint, bigint"), "1, 0, 0, 0, 10");
    follows(&plan, "pages_ready", "ROW(rank, place, foremost) > ROW($2, $3, $4)");
}

/// A statement of the functions for turns, from one word to another, with parameters for what it calls by name.
fn of_turns(from: &str, names: &[&str]) -> String {
    let text = TURNS.split(from).nth(1).unwrap().split(';').next().unwrap();
    let numbered = names
        .iter()
        .zip(2..)
        .fold(text.to_owned(), |text, (name, number)| text.replace(name, &format!("${number}")));
    format!("(integer{}) AS SELECT {numbered}", ", bigint".repeat(names.len()))
}

#[test]
fn a_key_in_turn_begins_where_it_is_told_to() {
    let names = ["keys[n]", "ranks[n]", "places[n]", "foremosts[n]"];
    let plan = plan(&of_turns("OPEN here FOR\n                    SELECT", &names), "1, 5, 0, 0, 0");
    follows(&plan, "pages_by_key", "ROW(key, rank, place, foremost) > ROW($2, $3, $4, $5)");
    follows(&plan, "pages_by_key", "key <= $2");
}

#[test]
fn the_next_key_is_the_next_in_the_index() {
    let statement =
        TURNS.lines().find(|line| line.contains("key > walk.key")).unwrap().replace("walk.key", "$2");
    let plan = plan(&format!("(integer, bigint) AS {statement}"), "1, 5");
    follows(&plan, "pages_by_key", "key > $2");
}

#[test]
fn what_is_in_hand_of_each_key_is_found_without_the_rest() {
    let plan = plan(&format!("AS {}", query!("leases.sql")), "'{1,2}'");
    assert!(plan.contains("pages_leased") && plan.contains("queue = ANY"), "{plan}");
}

#[test]
fn named_items_are_found_by_their_numbers() {
    let statement = format!("AS {}", query!("columns_of_pages.sql", "among_pages.sql", "named.sql"));
    let plan = plan(&statement, "'{1,2}', '{1,5}', '{}'");
    follows(&plan, "pages_pkey", "first_seq = ANY");
}
