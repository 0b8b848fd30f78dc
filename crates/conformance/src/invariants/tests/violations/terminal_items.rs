use super::*;

#[test]
fn a_failed_item_is_received() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.call(by(&item, fail())).unwrap();
    history.received(vec![received_again(&item, history.now())]);
    history.assert_violates(6);
}

#[test]
fn a_redriven_item_is_received() {
    let mut history = History::new();
    let id = history.submit("a");
    let item = history.receive(1).remove(0);
    history.call(by(&item, fail())).unwrap();
    history.call(Operation::Redrive { id }).unwrap();
    assert_eq!(history.receive(1).len(), 1);
    history.observe(|_| {});
    history.assert_valid();
}

#[test]
fn a_completed_item_is_pending_again() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.call(by(&item, commit())).unwrap();
    history.observe(|seen| {
        seen.items[0].item.head.state = State::Pending;
        (seen.queues[0].counts.completed, seen.queues[0].counts.pending) = (0, 1);
    });
    history.assert_violates(6);
    history.assert_violates(12);
}

#[test]
fn a_completed_item_is_redriven_cancelled_or_paused() {
    for (operation, answer) in [
        ((|id| Operation::Redrive { id }) as fn(ItemId) -> Operation, ItemState::Pending),
        (|id| Operation::Cancel { id, reason: String::new() }, ItemState::Failed),
        (|id| Operation::Pause { id }, ItemState::Paused),
    ] {
        let mut history = History::new();
        let id = history.submit("a");
        let item = history.receive(1).remove(0);
        history.call(by(&item, commit())).unwrap();
        history.reply_with(operation(id), state(answer));
        history.assert_violates(6);
    }
}

#[test]
fn a_terminal_item_changes_between_two_snapshots() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.call(by(&item, fail())).unwrap();
    history.observe(|_| {});
    history.assert_valid();
    history.observe(|seen| seen.items[0].item.head.revision += 1);
    history.assert_violates(6);
}

#[test]
fn a_committed_result_is_missing() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.call(by(&item, commit())).unwrap();
    history.observe(|seen| seen.items[0].item.outcome = Outcome::default());
    history.assert_violates(12);
}

#[test]
fn a_completed_item_is_removed_before_its_ttl() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.call(by(&item, commit())).unwrap();
    history.clock.advance(4999);
    history.observe(|seen| {
        seen.items.clear();
        seen.queues[0].counts.completed = 0;
    });
    history.assert_violates(12);
}

#[test]
fn a_completed_item_is_removed_by_its_ttl() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.call(by(&item, commit())).unwrap();
    history.clock.advance(5000);
    history.call(Operation::Sweep).unwrap();
    history.observe(|seen| assert_eq!(seen.items, []));
    history.assert_valid();
}

#[test]
fn a_pending_item_is_removed_by_a_ttl() {
    let mut history = History::new();
    history.submit("a");
    history.clock.advance(6000);
    history.observe(|seen| {
        seen.items.clear();
        seen.queues[0].counts.pending = 0;
    });
    history.assert_violates(13);
}

#[test]
fn an_item_is_received_before_its_ready_time() {
    let mut history = History::new();
    let later = submit("a", |submission| submission.ready = When::After(Millis(500)));
    history.call(later).unwrap();
    history.clock.advance(500);
    let item = match history.carry_out(receive(1, 1)) {
        Ok(Reply::Received(mut received)) => received.items.remove(0),
        other => panic!("{other:?}"),
    };
    let mut early = item.clone();
    early.head.ready_at = Timestamp(history.now().0 + 1);
    history.received(vec![early]);
    history.assert_violates(13);
}

#[test]
fn a_deferred_item_is_received_too_early() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    let until = When::After(Millis(500));
    history.call(by(&item, Verb::Defer { until })).unwrap();
    history.clock.advance(499);
    let mut early = received_again(&item, history.now());
    early.head.retries = 0;
    history.received(vec![early]);
    history.assert_violates(13);
}
