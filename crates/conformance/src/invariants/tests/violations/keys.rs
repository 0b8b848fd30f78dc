use super::*;

#[test]
fn a_key_creates_two_items() {
    let mut history = History::new();
    history.call(keyed("a", "k")).unwrap();
    history.reply_with(keyed("a", "k"), created(ItemId(Uuid::from_u128(9)), true));
    history.assert_violates(10);
}

#[test]
fn a_key_is_accepted_with_different_content() {
    let mut history = History::new();
    let id = submitted(&history.call(keyed("a", "k")));
    history.call(keyed("a", "k")).unwrap();
    history.assert_valid();
    history.reply_with(keyed("b", "k"), created(id, false));
    history.assert_violates(10);
}

#[test]
fn a_key_is_refused_with_the_same_content() {
    let mut history = History::new();
    let id = submitted(&history.call(keyed("a", "k")));
    let key = "k".to_owned();
    history.reply_with(keyed("a", "k"), Err(Refusal::KeyConflict { key, id }.into()));
    history.assert_violates(10);
}

#[test]
fn a_key_is_reported_for_an_item_without_a_key() {
    let mut history = History::new();
    let id = history.submit("a");
    history.reply_with(keyed("b", "k"), created(id, false));
    history.assert_violates(10);
}

#[test]
fn two_items_of_a_snapshot_have_the_same_key() {
    let mut history = History::new();
    history.call(keyed("a", "k")).unwrap();
    history.call(keyed("b", "other")).unwrap();
    history.observe(|seen| {
        let body = &mut seen.items[1].item.body;
        body.idempotency_key = Some("k".to_owned());
        let content = [0; 16];
        body.claim = Some(Claim { queue: QueueId(1), content });
    });
    history.assert_violates(10);
}
