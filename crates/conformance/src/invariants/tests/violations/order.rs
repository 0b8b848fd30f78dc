use super::*;

#[test]
fn a_batch_violates_the_order_of_its_queue() {
    for order in [Order::Fifo, Order::Priority, Order::Score(Box::default())] {
        let mut history = History::with(|policy| policy.order = order);
        for (blob, priority, fee) in [("a", 3, 10), ("b", 2, 500), ("c", 1, 100)] {
            let one = submit(blob, |submission| {
                submission.priority = priority;
                submission.body.fee = Some(fee);
            });
            history.call(one).unwrap();
            history.clock.advance(1);
        }
        let Ok(Reply::Received(received)) = history.carry_out(receive(3, 1)) else {
            panic!("no item received");
        };
        let mut items = received.items;
        assert_eq!(items.len(), 3);
        items.swap(0, 2);
        history.received(items);
        assert_eq!(history.violated(), [11, 11]);
    }
}

#[test]
fn equal_items_are_not_in_the_order_of_submission() {
    let mut history = History::new();
    for blob in ["a", "b"] {
        history.submit(blob);
    }
    let Ok(Reply::Received(received)) = history.carry_out(receive(2, 1)) else {
        panic!("no item received");
    };
    let mut items = received.items;
    items.swap(0, 1);
    history.received(items);
    assert_eq!(history.violated(), [11]);
}

#[test]
fn an_item_given_back_without_a_delay_loses_its_place() {
    for verb in [release(), Verb::Defer { until: When::NOW }] {
        let mut history = History::new();
        history.submit("a");
        let held = history.receive(1).remove(0);
        history.clock.advance(10);
        history.call(by(&held, verb)).unwrap();
        let Ok(Reply::Received(received)) = history.carry_out(receive(1, 7)) else {
            panic!("no item received");
        };
        let mut items = received.items;
        items[0].head.ready_at = history.now();
        history.received(items);
        assert_eq!(history.violated(), [11]);
    }
}
