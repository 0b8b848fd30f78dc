//! How PostgreSQL goes about the statements that every batch sends: along an index, from where it is told to begin.

use crate::harness::{new_schema, open};
use crate::server::{RUNTIME, SHARED, connect};
use towline_postgres::Time;

macro_rules! query {
    ($file:literal) => {
        concat!(
            include_str!("../../queries/select_items.sql"),
            include_str!(concat!("../../queries/", $file))
        )
    };
}

/// The plan of a statement for any parameters, on tables that are empty: nothing but its own shape is in its favour.
fn plan(statement: &str, parameters: &str) -> String {
    let schema = new_schema();
    drop(open(&SHARED.config(), &schema, Time::Database).unwrap());
    RUNTIME.block_on(async {
        let client = connect(&SHARED.config()).await.unwrap();
        let settings = format!(
            "SET search_path = {schema}; SET enable_seqscan = off; SET enable_bitmapscan = off;
             SET plan_cache_mode = force_generic_plan; PREPARE statement AS {statement};"
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
    let plan = plan(query!("due.sql"), "0, NULL, 10");
    follows(&plan, "items_wake", "wake <= $");
}

#[test]
fn a_receive_begins_where_it_is_told_to() {
    let plan = plan(query!("receivable.sql"), "1, 0, 0, 0, 10, NULL");
    follows(&plan, "items_ready", "ROW(rank, place, seq) > ROW($2, $3, $4)");
}

#[test]
fn named_items_are_found_by_their_numbers() {
    let plan = plan(query!("named.sql"), "'{1,2}', '{}'");
    follows(&plan, "items_pkey", "seq = ANY");
}
