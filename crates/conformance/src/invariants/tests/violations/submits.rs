use super::*;

#[test]
fn an_acknowledged_submit_is_missing() {
    let mut history = History::new();
    history.submit("a");
    history.observe(|seen| {
        seen.items.clear();
        seen.queues[0].counts.pending = 0;
    });
    history.assert_violates(1);
}

#[test]
fn an_acknowledged_submit_is_not_found() {
    let mut history = History::new();
    let id = history.submit("a");
    history.reply_with(Operation::Pause { id }, Err(Refusal::ItemNotFound { id }.into()));
    history.assert_violates(1);
}

#[test]
fn an_unanswered_submit_appears_twice() {
    let mut history = History::new();
    let call = history.invoke(&submit("a", |_| {}));
    history.checker.lost(call);
    history.carry_out(submit("a", |_| {})).unwrap();
    history.observe(|_| {});
    history.assert_valid();
    history.carry_out(submit("a", |_| {})).unwrap();
    history.observe(|_| {});
    history.assert_violates(1);
}

#[test]
fn an_unanswered_submit_may_appear_or_not_until_a_restart() {
    let mut history = History::new();
    let call = history.invoke(&submit("a", |_| {}));
    history.checker.lost(call);
    history.observe(|_| {});
    history.checker.restarted();
    history.observe(|_| {});
    history.assert_valid();
    history.carry_out(submit("a", |_| {})).unwrap();
    history.observe(|_| {});
    history.assert_violates(2);
}

#[test]
fn an_acknowledged_change_is_undone() {
    let mut history = History::new();
    history.submit("a");
    let before = history.snapshot();
    history.receive(1);
    history.observe(|seen| *seen = before);
    history.assert_violates(1);
}

#[test]
fn an_item_was_never_submitted() {
    let mut history = History::new();
    history.carry_out(submit("a", |_| {})).unwrap();
    history.observe(|_| {});
    history.assert_violates(2);
}

#[test]
fn an_item_that_was_never_submitted_is_received() {
    let mut history = History::new();
    history.carry_out(submit("a", |_| {})).unwrap();
    history.receive(1);
    history.assert_violates(2);
}

#[test]
fn a_payload_differs_from_the_submitted_one() {
    let mut history = History::new();
    history.submit("a");
    history.observe(|seen| seen.items[0].item.fields.blob = Some(Bytes::from("b")));
    history.assert_violates(2);
}

#[test]
fn a_parameter_differs_from_the_submitted_one() {
    let mut history = History::new();
    history.submit("a");
    let mut items = history.carry_out(receive(1, 1)).map(|reply| match reply {
        Reply::Received(received) => received.items,
        _ => Vec::new(),
    });
    items.as_mut().unwrap()[0].item_params().clear();
    history.received(items.unwrap());
    history.assert_violates(2);
}

trait Params {
    fn item_params(&mut self) -> &mut std::collections::BTreeMap<String, Json>;
}

impl Params for Item {
    fn item_params(&mut self) -> &mut std::collections::BTreeMap<String, Json> {
        &mut self.body.params
    }
}

#[test]
fn a_refused_edit_took_effect() {
    let mut history = History::new();
    history.submit("a");
    let item = history.receive(1).remove(0);
    let edits = FieldEdits::default().set(Field::Metadata, Bytes::from("m"));
    let edit = Operation::Lease {
        id: item.head.id,
        call: Box::new(LeaseCall {
            token: LeaseToken(Uuid::from_u128(5)),
            verb: Verb::Edit,
            adjust: Adjust { edits, ..Adjust::default() },
        }),
    };
    assert!(history.call(edit).is_err());
    history.observe(|seen| seen.items[0].item.fields.metadata = Some(Bytes::from("m")));
    history.assert_violates(2);
}

#[test]
fn a_deleted_item_reappears() {
    let mut history = History::new();
    let id = history.submit("a");
    let before = history.snapshot();
    let delete = Operation::Delete { id, force: false };
    history.call(delete).unwrap();
    history.observe(|_| {});
    history.assert_valid();
    history.observe(|seen| *seen = before);
    history.assert_violates(2);
}
