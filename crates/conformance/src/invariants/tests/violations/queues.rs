use super::*;

fn close() -> Operation {
    Operation::CloseQueue { queue: q() }
}

#[test]
fn a_closed_queue_accepts_an_item() {
    let mut history = History::new();
    history.submit("a");
    history.call(close()).unwrap();
    history.reply_with(submit("b", |_| {}), created(ItemId(Uuid::from_u128(9)), true));
    history.assert_violates(8);
}

#[test]
fn a_closed_queue_is_open_again() {
    let mut history = History::new();
    history.submit("a");
    history.call(close()).unwrap();
    history.observe(|seen| seen.queues[0].queue.state = QueueState::Open);
    history.assert_violates(8);
}

#[test]
fn a_completed_queue_has_unfinished_items() {
    let mut history = History::new();
    history.submit("a");
    history.call(close()).unwrap();
    let since = history.now();
    history.observe(|seen| seen.queues[0].queue.state = QueueState::Completed { since });
    history.assert_violates(8);
}

#[test]
fn a_closed_queue_has_no_unfinished_item_and_is_not_completed() {
    let mut history = History::new();
    history.call(close()).unwrap();
    let since = history.now();
    history.observe(|seen| seen.queues[0].queue.state = QueueState::Closed { since });
    history.assert_violates(8);
}

#[test]
fn a_receive_gets_an_item_and_the_state_completed() {
    let mut history = History::new();
    history.submit("a");
    let Ok(Reply::Received(mut received)) = history.carry_out(receive(1, 1)) else {
        panic!("no item received");
    };
    received.queue = QueueState::Completed { since: history.now() };
    history.reply_with(receive(1, 1), Ok(Reply::Received(received)));
    history.assert_violates(8);
}

#[test]
fn a_queue_disappears_or_reappears() {
    let mut history = History::new();
    let before = history.snapshot();
    history.observe(|seen| seen.queues.clear());
    history.assert_violates(1);
    let mut history = History::new();
    let delete = Operation::DeleteQueue { queue: q(), force: false };
    history.call(delete).unwrap();
    history.observe(|seen| *seen = before);
    history.assert_violates(2);
}

#[test]
fn a_forced_delete_of_a_queue_removes_its_items() {
    let mut history = History::new();
    history.submit("a");
    let delete = Operation::DeleteQueue { queue: q(), force: true };
    history.call(delete).unwrap();
    history.observe(|seen| assert_eq!(seen.items, []));
    history.assert_valid();
}
