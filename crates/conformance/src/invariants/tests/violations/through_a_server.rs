use super::*;

/// A history with one delivery, on which the worker calls `then`. The server shows the item as before that call.
fn history_that_loses(then: Verb) -> History {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    let before = history.snapshot();
    history.clock.advance(1);
    history.call(by(&item, then)).unwrap();
    history.checker.observed_from_outside(Snapshot { now: history.now(), ..before });
    history
}

#[test]
fn an_acknowledged_settle_is_lost() {
    history_that_loses(release()).assert_violates(3);
    history_that_loses(fail()).assert_violates(6);
    history_that_loses(commit()).assert_violates(12);
}

#[test]
fn an_acknowledged_heartbeat_is_lost() {
    history_that_loses(Verb::Heartbeat { visibility: None }).assert_violates(3);
}

#[test]
fn a_lost_edit_is_not_visible_through_a_server() {
    history_that_loses(Verb::Edit).assert_valid();
}

#[test]
fn a_terminal_item_changes() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.call(by(&item, fail())).unwrap();
    for _ in 0..2 {
        let seen = history.snapshot();
        history.checker.observed_from_outside(seen);
    }
    history.assert_valid();
    let mut seen = history.snapshot();
    seen.items[0].item.head.priority += 1;
    history.checker.observed_from_outside(seen);
    history.assert_violates(6);
}
/// A history with a settle whose reply was lost and that was carried out before a restart. Then the worker calls `again`.
fn history_with_lost_settle(settle: Verb, again: Verb, answer: ItemState) -> History {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    let operation = by(&item, settle);
    history.invoke(&operation);
    history.carry_out(operation).unwrap();
    history.checker.restarted();
    let seen = history.snapshot();
    history.checker.observed_from_outside(seen);
    history.reply_with(by(&item, again), state(answer));
    let seen = history.snapshot();
    history.checker.observed_from_outside(seen);
    history
}

#[test]
fn a_lost_settle_is_repeated_after_a_restart() {
    history_with_lost_settle(commit(), commit(), ItemState::Completed).assert_valid();
    history_with_lost_settle(fail(), fail(), ItemState::Failed).assert_valid();
    history_with_lost_settle(release(), release(), ItemState::Pending).assert_valid();
}

#[test]
fn a_different_settle_is_accepted_after_a_restart() {
    history_with_lost_settle(release(), commit(), ItemState::Completed).assert_violates(4);
    history_with_lost_settle(commit(), release(), ItemState::Pending).assert_violates(4);
}
