//! What one answer reads is limited in bytes. Summaries do not read payloads.

use crate::calls::*;
use crate::harness::{new_schema, open};
use crate::server::SHARED;
use bytes::Bytes;
use towline_domain::{Body, FieldSet, Fields, ItemId, Json, Outcome, Submission};
use towline_postgres::Time;
use towline_store::{Filter, Operation, ReceiveCall, Reply, Store, StoreError};

const MIB: usize = 1 << 20;
/// More items of one MiB than fit into one answer.
const COUNT: usize = 70;

fn large(params: usize, blob: usize) -> Operation {
    let text = Json::parse(&format!("\"{}\"", "x".repeat(params))).unwrap();
    let body = Body { params: [("text".to_owned(), text)].into(), ..Body::default() };
    let fields = Fields { blob: Some(Bytes::from(vec![7; blob])), ..Fields::default() };
    let submission = Submission { body, fields, ..Submission::default() };
    Operation::Submit { queue: "jobs".parse().unwrap(), submission: Box::new(submission) }
}

fn submit_large(store: &dyn Store, params: usize, blob: usize) -> Vec<ItemId> {
    let mut ids = Vec::new();
    for _ in 0..COUNT / 7 {
        let answers = update(store, (0..7).map(|_| large(params, blob)).collect());
        ids.extend(answers.iter().map(|answer| submitted(answer).0));
    }
    ids
}

/// How many items each page of a list has.
fn pages(store: &dyn Store, fields: FieldSet) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut after = None;
    loop {
        let page = block_on(store.list(Filter::default(), after, 1000, fields)).unwrap();
        sizes.push(page.items.len());
        match page.next {
            None => return sizes,
            next => after = next,
        }
    }
}

fn is_too_large<T: std::fmt::Debug>(answer: &towline_store::Result<T>) -> bool {
    matches!(answer, Err(StoreError::BatchTooLarge { what: "bytes", .. }))
}

#[test]
fn payloads_count_only_where_they_are_read() {
    let store = open(&SHARED.config(), &new_schema(), Time::Database).unwrap();
    run(&store, create("jobs", Default::default())).unwrap();
    let ids = submit_large(&store, 10, MIB);
    assert_eq!(pages(&store, FieldSet::NONE), [COUNT]);
    assert_eq!(pages(&store, FieldSet::ALL).iter().sum::<usize>(), COUNT);
    assert!(pages(&store, FieldSet::ALL).len() > 1);
    assert!(is_too_large(&block_on(store.get(ids.clone(), FieldSet::ALL))));
    assert_eq!(block_on(store.get(ids, FieldSet::NONE)).unwrap().len(), COUNT);
    let Operation::Receive(call) = receive_call("jobs", COUNT as u32, seed(0, 0)) else { panic!() };
    let receive = Operation::Receive(Box::new(ReceiveCall { fields: FieldSet::NONE, ..*call }));
    assert_eq!(leases(&run(&store, receive)).len(), COUNT);
}

#[test]
fn large_summaries_end_a_page_a_get_and_a_receive() {
    let store = open(&SHARED.config(), &new_schema(), Time::Database).unwrap();
    run(&store, create("jobs", Default::default())).unwrap();
    let ids = submit_large(&store, MIB - 100, 10);
    let sizes = pages(&store, FieldSet::NONE);
    assert!(sizes.len() > 1 && sizes.iter().sum::<usize>() == COUNT, "{sizes:?}");
    assert!(is_too_large(&block_on(store.get(ids, FieldSet::NONE))));
    let Operation::Receive(call) = receive_call("jobs", COUNT as u32, seed(0, 0)) else { panic!() };
    let receive = Operation::Receive(Box::new(ReceiveCall { fields: FieldSet::NONE, ..*call }));
    let received = leases(&run(&store, receive));
    assert!(!received.is_empty() && received.len() < COUNT, "{} items", received.len());
}

#[test]
fn large_results_end_a_page() {
    let store = open(&SHARED.config(), &new_schema(), Time::Database).unwrap();
    run(&store, create("jobs", Default::default())).unwrap();
    update(&store, (0..COUNT).map(|_| submit("jobs", "work")).collect());
    let text = Json::parse(&format!("\"{}\"", "x".repeat(MIB - 100))).unwrap();
    for round in 0..COUNT / 7 {
        let given = receive(&store, "jobs", 7, seed(0, round));
        let verb = || {
            let output_params = [("text".to_owned(), text.clone())].into();
            towline_domain::command::Verb::Commit(Outcome { output_params, ..Outcome::default() })
        };
        let commits = given.iter().map(|&(id, token)| lease(id, token, verb())).collect();
        assert!(update(&store, commits).iter().all(|answer| matches!(answer, Ok(Reply::Answer(_)))));
    }
    let sizes = pages(&store, FieldSet::NONE);
    assert!(sizes.len() > 1 && sizes.iter().sum::<usize>() == COUNT, "{sizes:?}");
}
