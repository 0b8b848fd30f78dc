//! Many items of one tenant do not delay the few items of another. `TOWLINE_SOAK=1` uses a million items.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use futures::executor::block_on;
use rig::*;
use towline_domain::{Body, Fairness, Flow, Policy, PolicyPatch, Submission};
use towline_embedded::Embedded;
use towline_store::{Operation, Store};

fn many() -> usize {
    if std::env::var_os("TOWLINE_SOAK").is_some() { 1_000_000 } else { 20_000 }
}

fn fair() -> Flow {
    Flow { fairness: Some(Fairness::default()), ..Flow::default() }
}

fn submit_of(store: &Embedded, tenant: &str, count: usize) {
    let body = Body { fairness_key: Some(tenant.to_owned()), ..Body::default() };
    let submission = Submission { body, ..payload("work") };
    for first in (0..count).step_by(10_000) {
        let batch = (first..count.min(first + 10_000)).map(|_| submit_to("jobs", submission.clone()));
        block_on(store.update(batch.collect())).unwrap();
    }
}

/// How many of the next receives of one item deliver an item of this tenant.
fn of_next(store: &Embedded, receives: u8, tenant: &str) -> usize {
    let delivered = (0..receives).flat_map(|n| received(run(store, receive_from("jobs", 1, n))));
    delivered.filter(|item| item.body.fairness_key.as_deref() == Some(tenant)).count()
}

fn store(path: &std::path::Path) -> Embedded {
    Embedded::open(path, options(64 << 20), clock()).unwrap()
}

#[test]
fn ten_items_of_a_small_tenant_are_delivered_within_twenty_receives() {
    let directory = tempfile::tempdir().unwrap();
    let open = store(directory.path());
    run(&open, create_with("jobs", Policy { flow: fair(), ..Policy::default() })).unwrap();
    submit_of(&open, "large", many());
    submit_of(&open, "small", 10);
    assert_eq!(of_next(&open, 20, "small"), 10);
    submit_of(&open, "small", 10);
    drop(open);
    let open = store(directory.path());
    assert_eq!(of_next(&open, 20, "small"), 10, "after reopening");
}

#[test]
fn fairness_that_is_switched_on_later_applies_to_pending_items() {
    let directory = tempfile::tempdir().unwrap();
    let open = store(directory.path());
    run(&open, create("jobs")).unwrap();
    submit_of(&open, "large", many());
    submit_of(&open, "small", 10);
    assert_eq!(of_next(&open, 20, "small"), 0);
    let patch = PolicyPatch { fairness: Some(fair().fairness), ..PolicyPatch::default() };
    run(&open, Operation::ChangePolicy { queue: name("jobs"), patch: Box::new(patch) }).unwrap();
    assert_eq!(of_next(&open, 20, "small"), 10);
}
