use super::*;
use towline_domain::ItemState;

#[test]
fn more_items_are_leased_than_a_limit_allows() {
    let of_queue = Flow { concurrency: Some(1), ..Flow::default() };
    let of_key = Flow { concurrency_per_key: Some(1), ..Flow::default() };
    for (flow, keys, broken) in
        [(of_queue, ["a", "b"], true), (of_key.clone(), ["a", "a"], true), (of_key, ["a", "b"], false)]
    {
        let mut history = History::with(|policy| policy.flow = flow);
        // As if the store ignored the limit.
        let patch = PolicyPatch {
            concurrency: Some(None),
            concurrency_per_key: Some(None),
            ..PolicyPatch::default()
        };
        history.carry_out(Operation::ChangePolicy { queue: q(), patch: Box::new(patch) }).unwrap();
        for key in keys {
            history.call(submit(key, |item| item.body.fairness_key = Some(key.to_owned()))).unwrap();
        }
        assert_eq!(history.receive(2).len(), 2);
        history.observe(|_| {});
        let found = history.violated().contains(&16);
        assert_eq!(found, broken, "{keys:?} {:#?}", history.checker.violations());
    }
}

#[test]
fn a_delivery_is_skipped() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.clock.advance(1000);
    let mut next = received_again(&item, history.now());
    next.head.deliveries += 1;
    history.received(vec![next]);
    history.assert_violates(7);
}

#[test]
fn two_receives_get_the_same_delivery() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.clock.advance(1000);
    let mut next = received_again(&item, history.now());
    next.head.deliveries = 1;
    next.head.retries = 0;
    history.received(vec![next]);
    history.assert_violates(7);
}

#[test]
fn a_lapse_is_not_counted_or_a_defer_is_counted() {
    for deferred in [false, true] {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        if deferred {
            history.call(by(&item, Verb::Defer { until: When::NOW })).unwrap();
        }
        history.clock.advance(1000);
        let mut next = received_again(&item, history.now());
        next.head.retries = u32::from(deferred);
        history.received(vec![next]);
        history.assert_violates(7);
    }
}

#[test]
fn an_attempt_above_the_maximum() {
    let mut history = History::new();
    let once = submit("a", |submission| {
        submission.overrides = Overrides { max_retries: Some(0), ..Overrides::default() };
    });
    history.call(once).unwrap();
    let item = history.receive(1).remove(0);
    history.reply_with(by(&item, release()), state(ItemState::Pending));
    history.assert_violates(7);
    history.received(vec![received_again(&item, history.now())]);
    assert_eq!(history.violated(), [7, 7]);
}

#[test]
fn retries_decrease() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.call(by(&item, release())).unwrap();
    history.receive(1);
    history.observe(|seen| seen.items[0].item.head.retries = 0);
    history.assert_violates(7);
}

#[test]
fn deliveries_increase_without_a_receive() {
    let mut history = History::new();
    history.submit("a");
    history.carry_out(receive(1, 1)).unwrap();
    history.observe(|_| {});
    history.assert_violates(7);
}

#[test]
fn a_delivery_whose_reply_was_lost() {
    let mut history = History::new();
    history.submit("a");
    let call = history.invoke(&receive(1, 1));
    history.carry_out(receive(1, 1)).unwrap();
    history.checker.lost(call);
    history.observe(|_| {});
    history.assert_valid();
}

#[test]
fn counts_differ_from_the_states() {
    let mut history = History::new();
    history.submit("a");
    history.observe(|seen| seen.queues[0].counts.paused += 1);
    history.assert_violates(9);
}
