use super::*;

fn compare(change: impl FnOnce(&mut Snapshot)) -> Vec<u8> {
    let mut history = History::new();
    history.submit("a");
    history.submit("b");
    let before = history.snapshot();
    let mut after = before.clone();
    change(&mut after);
    history.checker.unchanged(&before, &after);
    history.violated()
}

#[test]
fn a_difference_after_a_reopen_is_named() {
    assert!(compare(|_| {}).is_empty());
    assert_eq!(compare(|after| drop(after.items.pop())), [1]);
    assert_eq!(compare(|after| after.items[0].item.head.retries += 1), [1]);
    assert_eq!(compare(|after| after.items.swap(0, 1)), [11]);
    assert_eq!(compare(|after| after.queues[0].counts.failed += 1), [9]);
    assert_eq!(compare(|after| after.queues[0].queue.paused = true), [1]);
    assert_eq!(compare(|after| after.queues.clear()), [1]);
    assert_eq!(
        compare(|after| {
            let mut more = after.items[0].clone();
            more.item.head.id = ItemId(Uuid::from_u128(1));
            after.items.push(more);
        }),
        [2]
    );
}

#[test]
fn a_scheduled_item_becomes_ready_without_a_change() {
    let mut history = History::new();
    let later = submit("a", |submission| submission.ready = When::After(Millis(500)));
    history.call(later).unwrap();
    let before = history.snapshot();
    history.clock.advance(500);
    let after = history.snapshot();
    assert_ne!(before.queues, after.queues);
    history.checker.unchanged(&before, &after);
    history.assert_valid();
}
