//! The counters and histograms of a store.

use super::Harness;
use super::operations::*;
use super::restore::{Elsewhere, restores};
use super::rig::*;
use futures::executor::block_on;
use std::collections::BTreeMap;
use towline_domain::{Ending, ItemState, LeaseRule, Millis, Overrides, Policy, Submission};
use towline_store::{DurationHistogram, ReceiveCall, RetryReason, StoreMetrics};

impl Rig {
    #[track_caller]
    fn metrics(&self) -> StoreMetrics {
        block_on(self.store.metrics()).expect("the store answers")
    }

    /// The counted outcomes and retry reasons, by name.
    #[track_caller]
    fn counted(&self) -> BTreeMap<&'static str, u64> {
        let figures = self.metrics();
        let endings = Ending::ALL.map(|ending| (ending.name(), figures.finished.get(ending)));
        let reasons = RetryReason::ALL.map(|reason| (reason.name(), figures.retried(reason)));
        endings.into_iter().chain(reasons).filter(|(_, count)| *count > 0).collect()
    }
}

/// A histogram of these durations.
fn spans<const N: usize>(millis: [u64; N]) -> DurationHistogram {
    let mut spans = DurationHistogram::default();
    millis.into_iter().for_each(|span| spans.add(Millis(span)));
    spans
}

pub(super) fn every_outcome_and_every_retry_is_counted(harness: &dyn Harness) {
    let lease = LeaseRule { ack_timeout: Some(Millis(500)), ..LeaseRule::default() };
    let rig = Rig::with_queue(harness, Policy { max_retries: 1, poison_after: Some(2), lease, ..lenient() });
    assert_eq!(rig.counted(), [].into());
    let held = rig.hold("jobs");
    rig.commit(&held);
    rig.fail(&rig.hold("jobs"));
    let mut expected = BTreeMap::from([("completed", 1), ("explicit", 1)]);
    assert_eq!(rig.counted(), expected);
    // A repeated call and a refused call count nothing.
    assert_eq!(rig.lease(&held, commit()), left(ItemState::Completed));
    assert_eq!(code(&rig.lease(&held, fail("late"))), "already_settled");
    assert_eq!(rig.counted(), expected);

    let id = rig.hold("jobs");
    assert_eq!(rig.lease(&id, release()), left(ItemState::Pending));
    assert_eq!(rig.lease(&rig.take("jobs"), retry("again")), left(ItemState::Failed));
    expected.extend([("released", 1), ("retries_exhausted", 1)]);
    assert_eq!(rig.counted(), expected);
    assert_eq!(rig.lease(&rig.hold("jobs"), retry("again")), left(ItemState::Pending));
    expected.extend([("retried", 1)]);
    assert_eq!(rig.counted(), expected);
    rig.advance(60_000);
    rig.commit(&rig.take("jobs"));
    // A defer is not counted.
    let held = rig.hold("jobs");
    assert_eq!(rig.lease(&held, defer(0)), left(ItemState::Pending));
    rig.cancel(held.id);
    expected.extend([("completed", 2), ("cancelled", 1)]);
    assert_eq!(rig.counted(), expected);

    // Transitions by time.
    let overrides = Overrides { expire_after: Some(Millis(10)), ..Overrides::default() };
    rig.submit("jobs", Submission { overrides, ..payload("work") });
    rig.at(rig.now().after(Millis(10)));
    expected.extend([("expired", 1)]);
    assert_eq!(rig.counted(), expected);
    rig.submit("jobs", payload("work"));
    rig.received(ReceiveCall { assigned: true, ..rig.receive_call("jobs", 1) });
    rig.at(rig.now().after(Millis(500)));
    expected.extend([("unacknowledged", 1)]);
    assert_eq!(rig.counted(), expected);
    rig.at(rig.now().after(Millis(60_000)));
    rig.take("jobs");
    rig.at(rig.now().after(Millis(1000)));
    expected.extend([("poison", 1)]);
    assert_eq!(rig.counted(), expected);
    rig.hold("jobs");
    rig.at(rig.now().after(Millis(1000)));
    expected.extend([("lapsed", 1)]);
    assert_eq!(rig.counted(), expected);
}

pub(super) fn waiting_and_processing_times_are_measured(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    rig.submit("jobs", delayed(40));
    rig.advance(40 + 30);
    let held = rig.take("jobs");
    assert_eq!(rig.metrics().waited, spans([30]));
    assert_eq!(rig.metrics().ran, spans([]));
    rig.advance(900);
    assert_eq!(code(&rig.lease(&held, heartbeat())), "ok");
    rig.advance(900);
    // A heartbeat does not restart the measurement.
    assert_eq!(rig.lease(&held, release()), left(ItemState::Pending));
    assert_eq!(rig.metrics().ran, spans([1800]));
    rig.advance(7);
    rig.take("jobs");
    // Given back without a delay, the item keeps its ready time: its wait includes the lease.
    assert_eq!(rig.metrics().waited, spans([30, 30 + 1800 + 7]));
    // A lapse is not measured, because no worker settled the item.
    rig.at(rig.now().after(Millis(1000)));
    assert_eq!(rig.metrics().ran, spans([1800]));
}

pub(super) fn every_item_of_a_batch_is_measured(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    rig.submit_many("jobs", 300);
    rig.advance(3);
    let held = rig.receive("jobs", 1000);
    rig.advance(20);
    let verb = |n: usize| if n.is_multiple_of(3) { fail("broken") } else { commit() };
    rig.update(held.iter().enumerate().map(|(n, held)| held.call(verb(n))).collect());
    assert_eq!(rig.counted(), [("completed", 200), ("explicit", 100)].into());
    assert_eq!(rig.metrics().waited, spans([3; 300]));
    assert_eq!(rig.metrics().ran, spans([20; 300]));
}

pub(super) fn restored_items_are_not_counted(harness: &dyn Harness) {
    let source = Rig::with_queue(&Elsewhere, lenient());
    source.commit(&source.hold("jobs"));
    assert_eq!(source.lease(&source.hold("jobs"), retry("again")), left(ItemState::Pending));
    let rig = Rig::with_queue(harness, lenient());
    for operation in restores(&source) {
        rig.ok(operation);
    }
    assert_eq!(rig.metrics(), StoreMetrics::default());
}

pub(super) fn the_start_of_a_lease_survives_a_reopen(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let held = rig.hold("jobs");
    let Some(rig) = rig.reopen(harness) else { return };
    let before = rig.metrics();
    rig.advance(60);
    rig.commit(&held);
    let after = rig.metrics();
    assert_eq!(after.finished.get(Ending::Completed), before.finished.get(Ending::Completed) + 1);
    let mut ran = before.ran;
    ran.add(Millis(60));
    assert_eq!(after.ran, ran);
}
