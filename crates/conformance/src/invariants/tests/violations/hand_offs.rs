use super::*;
use towline_domain::HandOff;

/// A commit that submits items with these blobs.
fn commit_with(item: &Item, blobs: &[&'static str]) -> Operation {
    let hand_off = |blob: &&'static str| match submit(blob, |_| {}) {
        Operation::Submit { queue, submission } => HandOff { queue, submission: *submission },
        other => panic!("{other:?}"),
    };
    let adjust = Adjust { then_submit: blobs.iter().map(hand_off).collect(), ..Adjust::default() };
    let call = LeaseCall { token: token(item), verb: commit(), adjust };
    Operation::Lease { id: item.head.id, call: Box::new(call) }
}

/// A history with one leased item.
fn leased() -> (History, Item) {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    (history, item)
}

#[test]
fn a_hand_off_is_valid() {
    let (mut history, item) = leased();
    let call = commit_with(&item, &["b", "c"]);
    history.call(call.clone()).unwrap();
    history.call(call).unwrap();
    history.observe(|_| {});
    assert_eq!(history.receive(5).len(), 2);
    history.observe(|_| {});
    history.assert_valid();
}

#[test]
fn a_lost_hand_off_may_have_happened_or_not() {
    for happens in [true, false] {
        let (mut history, item) = leased();
        let operation = commit_with(&item, &["b"]);
        let call = history.invoke(&operation);
        if happens {
            history.carry_out(operation.clone()).unwrap();
        }
        history.checker.lost(call);
        history.observe(|_| {});
        history.call(operation).unwrap();
        history.observe(|_| {});
        history.assert_valid();
    }
}

#[test]
fn a_handed_off_item_is_there_without_the_commit() {
    let (mut history, item) = leased();
    let operation = commit_with(&item, &["b"]);
    let call = history.invoke(&operation);
    let before = history.snapshot();
    history.carry_out(operation).unwrap();
    history.checker.lost(call);
    history.observe(|seen| {
        let parent = seen.items.iter_mut().find(|stored| stored.item.head.id == item.head.id).unwrap();
        *parent = before.items[0].clone();
        (seen.queues[0].counts.completed, seen.queues[0].counts.processing) = (0, 1);
    });
    history.assert_violates(18);
}

#[test]
fn a_commit_does_not_name_the_item_it_handed_off() {
    let (mut history, item) = leased();
    history.call(commit_with(&item, &["b"])).unwrap();
    history.observe(|seen| {
        for stored in &mut seen.items {
            stored.item.outcome.handed_off.clear();
        }
    });
    history.assert_violates(18);
}

#[test]
fn an_acknowledged_hand_off_lacks_an_item() {
    let (mut history, item) = leased();
    history.call(commit_with(&item, &["b"])).unwrap();
    history.observe(|seen| {
        seen.items.retain(|stored| stored.item.head.id == item.head.id);
        seen.queues[0].counts.pending = 0;
    });
    history.assert_violates(1);
}

#[test]
fn a_refused_hand_off_submits_an_item() {
    let (mut history, item) = leased();
    let refused = Refusal::invalid("then_submit", "no").into();
    let operation = commit_with(&item, &["b"]);
    let call = history.invoke(&operation);
    history.answer(call, Err(refused));
    history.call(submit("b", |_| {})).unwrap();
    history.observe(|_| {});
    history.assert_valid();
    let other = submit("c", |_| {});
    history.carry_out(other).unwrap();
    history.observe(|_| {});
    history.assert_violates(2);
}

#[test]
fn a_commit_hands_off_another_number_of_items() {
    let (mut history, item) = leased();
    let operation = commit_with(&item, &["b", "c"]);
    let answer = Answer::HandedOff(towline_domain::HandedOff::default());
    history.reply_with(operation, Ok(Reply::Answer(answer)));
    history.assert_violates(2);
}
