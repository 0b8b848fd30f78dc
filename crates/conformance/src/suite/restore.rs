//! Restoring items of another store unchanged.

use super::Harness;
use super::operations::*;
use super::rig::*;
use crate::ReferenceStore;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use towline_domain::command::Verb;
use towline_domain::{
    Claim, FieldSet, Item, ItemId, ItemState, Json, Millis, Order, Outcome, Policy, QueueId, QueueName,
    Refusal,
};
use towline_store::{Filter, ManualClock, Operation, Restore, Store, StoredItem};

/// The reference store, from which the items come.
pub(super) struct Elsewhere;

impl Harness for Elsewhere {
    fn open(&self, clock: Arc<ManualClock>) -> Arc<dyn Store> {
        Arc::new(ReferenceStore::new(clock, 0x5a17))
    }

    fn reopen(&self, _: Arc<dyn Store>, _: Arc<ManualClock>) -> Option<Arc<dyn Store>> {
        None
    }
}

/// A new store with the queues and items of `from`. The queue ids differ.
pub(super) fn moved(from: &Rig, harness: &dyn Harness) -> Rig {
    let to = Rig::open(harness);
    to.clock.set(from.now());
    to.create("first", plain());
    for view in from.queues() {
        to.create(view.queue.name.as_str(), view.queue.policy);
    }
    for operation in restores(from) {
        to.ok(operation);
    }
    to
}

pub(super) fn restores(from: &Rig) -> Vec<Operation> {
    let names: BTreeMap<QueueId, QueueName> =
        from.queues().into_iter().map(|view| (view.queue.id, view.queue.name)).collect();
    let all = from.list(&Filter::default());
    all.into_iter().map(|stored| Operation::Restore(Box::new(Restore::of(stored, &names)))).collect()
}

/// An item without the queue ids and revisions of its store.
fn shown(stored: StoredItem) -> (QueueName, Item) {
    let StoredItem { queue, mut item } = stored;
    item.head.queue = QueueId(0);
    item.head.revision = 0;
    item.body.claim = item.body.claim.map(|claim| Claim { queue: QueueId(0), ..claim });
    if let Some(origin) = item.head.extras.as_mut().and_then(|extras| extras.origin.as_mut()) {
        origin.queue_id = QueueId(0);
    }
    (queue, item)
}

fn all(rig: &Rig) -> Vec<(QueueName, Item)> {
    rig.list(&Filter::default()).into_iter().map(shown).collect()
}

/// A store with items in every state and with every option.
fn busy() -> Rig {
    let rig = Rig::open(&Elsewhere);
    rig.create("dead", plain());
    let policy = Policy { order: Order::Priority, dead_letter_queue: Some(name("dead")), ..lenient() };
    rig.create("jobs", policy);
    let mut rich = keyed("k", "rich");
    rich.priority = 3;
    rich.overrides.max_retries = Some(9);
    rich.body.tags = [("team".to_owned(), "blue".to_owned())].into();
    rich.body.group = Some("g".to_owned());
    rich.body.source = Some("elsewhere".to_owned());
    rich.body.params = [("size".to_owned(), Json::string("big"))].into();
    rich.fields.state_blob = Some(Bytes::from_static(&[0, 255]));
    rich.fields.metadata = Some(Bytes::new());
    let rich = rig.submit("jobs", rich);
    for error in ["first", "second", "third"] {
        let held = rig.take("jobs");
        assert_eq!(held.id, rich);
        rig.advance(10);
        assert_eq!(
            rig.lease(&held, Verb::Retry { error: error.to_owned(), delay: Some(Millis::ZERO), seed: 0 }),
            left(ItemState::Pending)
        );
    }
    let outcome = Outcome {
        output_params: [("found".to_owned(), Json::string("it"))].into(),
        outputs: [("out".parse().expect("a slot"), "b-1".parse().expect("a buffer"))].into(),
        ..Outcome::default()
    };
    let done = rig.hold_this("jobs", with_priority(-9));
    assert_eq!(rig.lease(&done, Verb::Commit(outcome)), left(ItemState::Completed));
    let dead = rig.hold_this("jobs", with_priority(-9));
    rig.fail(&dead);
    let cancelled = rig.submit("jobs", with_id(7));
    rig.cancel(cancelled);
    let paused = rig.submit("jobs", payload("paused"));
    rig.ok(Operation::Pause { id: paused });
    rig.hold_this("jobs", with_priority(-9));
    rig.submit("jobs", delayed(60_000));
    rig.submit_many("jobs", 3);
    rig
}

pub(super) fn restored_items_equal_the_original_items(harness: &dyn Harness) {
    let from = busy();
    let to = moved(&from, harness);
    assert_eq!(all(&to), all(&from));
    for queue in ["jobs", "dead"] {
        assert_eq!(to.counts(queue), from.counts(queue));
    }
    let ids: Vec<ItemId> = from.list(&Filter::default()).iter().map(|stored| stored.item.head.id).collect();
    for id in ids {
        assert_eq!(shown(to.stored(id)), shown(from.stored(id)));
    }
    assert_eq!(to.next_wake(), from.next_wake());
    // Both stores continue in the same way.
    let later = from.now().after(Millis(120_000));
    for rig in [&from, &to] {
        rig.at(later);
    }
    assert_eq!(all(&to), all(&from));
    let give = |rig: &Rig| {
        let mut ids = Vec::new();
        while let [held] = &rig.receive("jobs", 1)[..] {
            ids.push(held.id);
        }
        ids
    };
    assert_eq!(give(&to), give(&from));
}

pub(super) fn restored_items_survive_a_reopen(harness: &dyn Harness) {
    let from = busy();
    let to = moved(&from, harness);
    let Some(to) = to.reopen(harness) else { return };
    assert_eq!(all(&to), all(&from));
    let filter = Filter { tags: [("team".to_owned(), "blue".to_owned())].into(), ..Filter::default() };
    assert_eq!(to.list_paged(&filter, 10, FieldSet::NONE).len(), 1);
}

pub(super) fn a_restored_item_keeps_its_lease(harness: &dyn Harness) {
    let from = Rig::with_queue(&Elsewhere, lenient());
    let (kept, lapsing) = (from.hold("jobs"), from.hold("jobs"));
    let to = moved(&from, harness);
    assert_eq!(to.lease(&kept, heartbeat()), until(to.now().after(Millis(1000))));
    assert_eq!(to.run(lease_call(kept.id, foreign_token(), commit(), Default::default())), {
        from.run(lease_call(kept.id, foreign_token(), commit(), Default::default()))
    });
    to.commit(&kept);
    // A repeated settle is recognised.
    to.commit(&kept);
    to.at(lapsing.deadline());
    assert_eq!(to.item(lapsing.id).head.retries, 1);
    assert_eq!(to.take("jobs").id, lapsing.id);
}

pub(super) fn a_restored_item_keeps_its_idempotency_key(harness: &dyn Harness) {
    let from = Rig::with_queue(&Elsewhere, plain());
    from.create("other", plain());
    let id = from.submit("jobs", keyed("k", "work"));
    // The key stays in the queue where it was submitted, even if the item moved.
    let held = from.take("jobs");
    assert_eq!(from.run(held.call_with(release(), to_queue("other"))), left(ItemState::Pending));
    let to = moved(&from, harness);
    assert_eq!(submitted(&to.run(submit("jobs", keyed("k", "work")))), (id, false));
    let key = "k".to_owned();
    assert_eq!(to.refused(submit("jobs", keyed("k", "else"))), Refusal::KeyConflict { key: key.clone(), id });
    assert!(submitted(&to.run(submit("other", keyed("k", "else")))).1);
    // Neither an id nor a key can be restored twice.
    let again = restores(&from).remove(0);
    assert_eq!(to.refused(again.clone()), Refusal::IdTaken { id });
    let Operation::Restore(mut again) = again else { unreachable!() };
    again.item.head.id = chosen(1);
    assert_eq!(to.refused(Operation::Restore(again)), Refusal::KeyConflict { key, id });
    assert_eq!(to.counts("other").total(), 2);
}

pub(super) fn a_restored_dead_letter_keeps_its_origin_queue(harness: &dyn Harness) {
    let from = busy();
    let dead = from.list(&Filter { queue: Some(name("dead")), ..Filter::default() });
    let to = moved(&from, harness);
    let id = dead[0].item.head.id;
    assert_eq!(to.run(Operation::Redrive { id }), left(ItemState::Pending));
    assert_eq!(to.stored(id).queue, name("jobs"));
}

pub(super) fn only_an_open_queue_accepts_restored_items(harness: &dyn Harness) {
    let from = Rig::with_queue(&Elsewhere, plain());
    from.submit("jobs", payload("work"));
    let restore = restores(&from).remove(0);
    let to = Rig::open(harness);
    assert_eq!(to.refused(restore.clone()), Refusal::QueueNotFound { name: "jobs".to_owned() });
    to.create("jobs", plain());
    to.close("jobs");
    assert_eq!(code(&to.run(restore)), "queue_closed");
    assert_eq!(to.counts("jobs").total(), 0);
}

pub(super) fn an_impossible_item_is_refused(harness: &dyn Harness) {
    let from = Rig::with_queue(&Elsewhere, plain());
    from.submit("jobs", payload("work"));
    let to = Rig::with_queue(harness, plain());
    let spoilt: [fn(&mut Item); 3] = [
        |item| item.head.ready_at.0 = u64::MAX,
        |item| item.body.group = Some(String::new()),
        |item| item.body.tags = (0..1000).map(|n| (format!("t{n}"), String::new())).collect(),
    ];
    for spoil in spoilt {
        let Operation::Restore(mut restore) = restores(&from).remove(0) else { unreachable!() };
        spoil(&mut restore.item);
        assert_eq!(code(&to.run(Operation::Restore(restore))), "invalid");
    }
    assert_eq!(to.counts("jobs").total(), 0);
}
