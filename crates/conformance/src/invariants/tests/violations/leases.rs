use super::*;
use towline_domain::ItemState;

#[test]
fn an_item_is_received_while_its_lease_is_valid() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.clock.advance(999);
    history.received(vec![received_again(&item, history.now())]);
    history.assert_violates(3);
}

#[test]
fn an_item_is_received_again_after_its_lease_ended() {
    let mut history = History::new();
    history.submit("a");
    history.receive(1);
    history.clock.advance(1000);
    assert_eq!(history.receive(1).len(), 1);
    history.observe(|_| {});
    history.assert_valid();
}

#[test]
fn an_acknowledged_heartbeat_is_ignored() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.clock.advance(900);
    history.call(by(&item, Verb::Heartbeat { visibility: None })).unwrap();
    history.clock.advance(500);
    history.received(vec![received_again(&item, history.now())]);
    history.assert_violates(3);
}

#[test]
fn a_receive_explained_only_by_a_settle_that_was_refused() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    let call = history.invoke(&by(&item, release()));
    history.received(vec![received_again(&item, history.now())]);
    history.assert_valid();
    let (id, why) = (item.head.id, LostWhy::Superseded);
    history.answer(call, Err(Refusal::LeaseLost { id, why }.into()));
    history.assert_violates(3);
}

#[test]
fn an_unanswered_settle_explains_a_receive() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    let call = history.invoke(&by(&item, release()));
    history.carry_out(by(&item, release())).unwrap();
    history.checker.lost(call);
    assert_eq!(history.receive(1).len(), 1);
    history.observe(|_| {});
    history.assert_valid();
}

#[test]
fn a_snapshot_shows_another_lease() {
    let mut history = History::new();
    history.submit("a");
    history.receive(1);
    history.observe(|seen| {
        if let State::Processing(lease) = &mut seen.items[0].item.head.state {
            lease.token = LeaseToken(Uuid::from_u128(3));
        }
    });
    history.assert_violates(3);
}

#[test]
fn a_valid_lease_is_refused() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    let (id, why) = (item.head.id, LostWhy::Superseded);
    history.reply_with(by(&item, commit()), Err(Refusal::LeaseLost { id, why }.into()));
    history.assert_violates(3);
}

#[test]
fn a_foreign_lease_is_accepted() {
    let mut history = History::new();
    let id = history.submit("a");
    history.receive(1);
    history.reply_with(lease(id, LeaseToken(Uuid::from_u128(3)), commit()), state(ItemState::Completed));
    history.assert_violates(4);
}

#[test]
fn an_expired_lease_is_accepted() {
    for verb in [commit(), fail(), release(), Verb::Edit, Verb::Heartbeat { visibility: None }] {
        let mut history = History::new();
        history.submit("a");
        let item = history.receive(1).remove(0);
        history.clock.advance(1000);
        let deadline = history.now().after(Millis(1000));
        let answer = match verb {
            Verb::Commit(_) => Answer::State(ItemState::Completed),
            Verb::Fail { .. } => Answer::State(ItemState::Failed),
            Verb::Release { .. } => Answer::State(ItemState::Pending),
            _ => Answer::Leased { deadline },
        };
        history.reply_with(by(&item, verb), Ok(Reply::Answer(answer)));
        history.assert_violates(4);
    }
}

#[test]
fn a_stale_lease_fails_an_item_that_another_worker_holds() {
    let mut history = History::new();
    history.submit("a");
    let first = history.receive(1).remove(0);
    history.clock.advance(1500);
    history.receive(1);
    history.reply_with(by(&first, fail()), state(ItemState::Failed));
    history.assert_violates(4);
}

#[test]
fn a_lease_is_accepted_after_a_cancel_or_delete() {
    let cancel = |id| Operation::Cancel { id, reason: String::new() };
    let delete = |id| Operation::Delete { id, force: true };
    for end in [cancel, delete] {
        let mut history = History::new();
        let id = history.submit("a");
        let item = history.receive(1).remove(0);
        history.call(end(id)).unwrap();
        history.reply_with(by(&item, commit()), state(ItemState::Completed));
        history.assert_violates(4);
    }
}

#[test]
fn a_lease_is_settled_twice_in_different_ways() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.call(by(&item, release())).unwrap();
    history.reply_with(by(&item, fail()), state(ItemState::Failed));
    history.assert_violates(5);
}

#[test]
fn a_repeated_settle_gets_a_different_reply() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.call(by(&item, commit())).unwrap();
    history.call(by(&item, commit())).unwrap();
    history.assert_valid();
    history.reply_with(by(&item, commit()), state(ItemState::Failed));
    history.assert_violates(5);
}

#[test]
fn two_leases_commit_the_same_item() {
    let mut history = History::new();
    history.submit("a");
    let first = history.receive(1).remove(0);
    // The calls overlap, so neither lease is known to be stale.
    let call = history.invoke(&by(&first, commit()));
    history.clock.advance(1500);
    let second = history.receive(1).remove(0);
    history.call(by(&second, commit())).unwrap();
    history.answer(call, state(ItemState::Completed));
    history.assert_violates(5);
}

#[test]
fn an_item_is_completed_without_a_commit() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    history.carry_out(by(&item, commit())).unwrap();
    history.observe(|_| {});
    history.assert_violates(5);
}
