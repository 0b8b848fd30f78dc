//! Dependents, which wait for items or groups, and group membership in events.

use super::Harness;
use super::operations::*;
use super::restore::{Elsewhere, restores};
use super::rig::*;
use towline_domain::{
    Condition, Dependency, DependencyState, DependsOn, FailureKind, GroupCounts, GroupTag, ItemId, ItemState,
    Millis, Overrides, Policy, State, Submission,
};
use towline_store::{EventsFrom, Operation};

fn after(on: DependsOn, when: Condition) -> Submission {
    Submission { after: Some(Box::new(Dependency { on, when })), ..payload("last") }
}

fn after_group(when: Condition) -> Submission {
    after(DependsOn::Group { name: "g".to_owned(), expect: 0 }, when)
}

fn member(group: &str) -> Submission {
    let mut submission = payload("member");
    submission.body.group = Some(group.to_owned());
    submission
}

fn seen(members: u64, completed: u64, failed: u64) -> DependencyState {
    let counts = GroupCounts { members, completed, failed, removed: 0 };
    DependencyState { group: Some(counts), ended: Vec::new() }
}

fn ended(ended: &[(ItemId, bool)]) -> DependencyState {
    DependencyState { group: None, ended: ended.to_vec() }
}

fn observe(id: ItemId, seen: DependencyState) -> Operation {
    Operation::ResolveDependency { id, state: Box::new(seen) }
}

pub(super) fn a_dependent_is_not_received_before_its_dependency_is_met(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let id = rig.submit("jobs", after_group(Condition::AllDone));
    assert_eq!(
        (rig.item(id).head.state, rig.item(id).head.item_state()),
        (State::Paused, ItemState::Waiting)
    );
    assert_eq!(rig.counts("jobs").paused, 1);
    assert!(rig.receive("jobs", 1).is_empty());
    assert_eq!(code(&rig.run(Operation::Resume { id })), "wrong_state");
    assert_eq!(code(&rig.run(Operation::Pause { id })), "wrong_state");
    assert_eq!(rig.run(observe(id, seen(2, 1, 0))), left(ItemState::Waiting));
    assert!(rig.receive("jobs", 1).is_empty());
    let later = rig.submit("jobs", payload("later"));
    rig.advance(10);
    assert_eq!(rig.run(observe(id, seen(2, 1, 1))), left(ItemState::Pending));
    assert_eq!(rig.item(id).head.dependency(), None);
    let [first, second] = &rig.receive("jobs", 2)[..] else { panic!("both are ready") };
    assert_eq!((first.id, second.id), (id, later), "the dependent kept its position");
    // A second follower reports the same state later.
    assert_eq!(rig.run(observe(id, seen(2, 1, 1))), left(ItemState::Processing));
    rig.commit(first);
    assert_eq!(rig.run(observe(id, seen(2, 1, 1))), left(ItemState::Completed));
    assert_eq!(code(&rig.run(observe(chosen(7), seen(1, 1, 0)))), "item_not_found");
}

pub(super) fn a_dependent_fails_when_its_dependency_cannot_be_met(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { dead_letter_queue: Some(name("dead")), ..plain() });
    rig.create("dead", plain());
    let id = rig.submit("jobs", after_group(Condition::AllSuccess));
    assert_eq!(rig.run(observe(id, seen(5, 1, 1))), left(ItemState::Failed));
    let stored = rig.stored(id);
    assert_eq!(stored.queue, name("jobs"), "the item is not a dead letter");
    let State::Failed { kind, .. } = stored.item.head.state else { panic!("{:?}", stored.item.head) };
    assert_eq!((kind, stored.item.head.dependency()), (FailureKind::Cancelled, None));
    let why = stored.item.errors.iter().next().map(|error| error.message.clone()).unwrap_or_default();
    assert!(why.contains("group \"g\"") && why.contains("1 failed"), "{why}");
    assert_eq!(rig.run(observe(id, seen(5, 5, 0))), left(ItemState::Failed), "the item is already terminal");
    rig.ok(Operation::Redrive { id });
    assert_eq!(rig.take("jobs").id, id, "the item no longer waits");
}

pub(super) fn observed_dependency_states_are_stored(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let others = rig.submit_many("jobs", 3);
    let id = rig.submit("jobs", after(DependsOn::items(others.clone()), Condition::CountOf(2)));
    assert_eq!(rig.run(observe(id, ended(&[(others[0], true)]))), left(ItemState::Waiting));
    assert_eq!(
        rig.run(observe(id, ended(&[(others[0], true)]))),
        left(ItemState::Waiting),
        "each item counts once"
    );
    let known = |rig: &Rig| rig.item(id).head.dependency().cloned().map(|after| after.on);
    let mut rest = others[1..].to_vec();
    rest.sort_unstable();
    let expected = Some(DependsOn::Items { ids: rest, well: 1, badly: 0 });
    assert_eq!(known(&rig), expected);
    let Some(rig) = rig.reopen(harness) else { return };
    assert_eq!(known(&rig), expected);
    assert_eq!(rig.run(observe(id, ended(&[(others[1], false)]))), left(ItemState::Waiting));
    assert_eq!(rig.run(observe(id, ended(&[(others[2], true)]))), left(ItemState::Pending));
    let Some(rig) = rig.reopen(harness) else { return };
    assert_eq!((rig.item(id).head.dependency(), rig.item(id).head.item_state()), (None, ItemState::Pending));
}

pub(super) fn a_waiting_dependent_can_be_ended(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let id = rig.submit("jobs", after_group(Condition::AllDone));
    rig.cancel(id);
    assert_eq!(rig.item(id).head.item_state(), ItemState::Failed);
    assert_eq!(rig.run(observe(id, seen(1, 1, 0))), left(ItemState::Failed));
    let overrides = Overrides { expire_after: Some(Millis(50)), ..Overrides::default() };
    let brief = rig.submit("jobs", Submission { overrides, ..after_group(Condition::AllDone) });
    rig.advance(50);
    rig.sweep();
    let State::Failed { kind, .. } = rig.item(brief).head.state else { panic!("the item has expired") };
    assert_eq!(kind, FailureKind::Expired);
    let third = rig.submit("jobs", after_group(Condition::AllDone));
    rig.delete(third);
    assert_eq!(code(&rig.run(observe(third, seen(1, 1, 0)))), "item_not_found");
}

pub(super) fn an_invalid_dependency_is_refused(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let mut own = member("g");
    own.after = after_group(Condition::AllDone).after;
    for bad in
        [after_group(Condition::CountOf(0)), after(DependsOn::items(Vec::new()), Condition::AllDone), own]
    {
        assert_eq!(rig.refused(submit("jobs", bad)).code(), "invalid");
    }
    assert_eq!(rig.counts("jobs").total(), 0);
}

pub(super) fn each_transition_of_a_member_is_reported_for_its_group(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let plain = rig.submit("jobs", payload("work"));
    let done = rig.submit("jobs", member("g"));
    let gone = rig.submit("jobs", member("h"));
    for held in rig.receive("jobs", 2) {
        rig.commit(&held);
    }
    rig.delete(done);
    rig.delete(gone);
    let kinds = |rig: &Rig, id| -> Vec<(&'static str, bool)> {
        let tag = GroupTag::of(if id == done { "g" } else { "h" });
        let all = rig.read_events(EventsFrom::Oldest, 1000).0;
        let of = all.iter().filter_map(|event| Some((event.kind, event.item.as_ref()?)));
        of.filter(|(_, item)| item.id == id)
            .map(|(kind, item)| {
                assert!(item.group.is_none_or(|group| group == tag));
                (kind.name(), item.group.is_some())
            })
            .collect()
    };
    let check = |rig: &Rig| {
        let plain_kinds = kinds(rig, plain);
        assert!(plain_kinds.len() == 3 && plain_kinds.iter().all(|(_, grouped)| !grouped));
        let expected = [
            ("item.submitted", true),
            ("item.received", true),
            ("item.completed", true),
            ("item.removed", false),
        ];
        assert_eq!(kinds(rig, done), expected, "the removal of a terminal item does not concern its group");
        assert_eq!(kinds(rig, gone), [("item.submitted", true), ("item.removed", true)]);
    };
    check(&rig);
    if let Some(rig) = rig.reopen(harness) {
        check(&rig);
    }
}

pub(super) fn group_membership_survives_a_reopen(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, plain());
    let id = rig.submit("jobs", member("g"));
    let waits =
        rig.submit("jobs", Submission { after: after_group(Condition::AllDone).after, ..member("h") });
    let Some(rig) = rig.reopen(harness) else { return };
    let group = |id| rig.item(id).head.group;
    assert_eq!((group(id), group(waits)), (Some(GroupTag::of("g")), Some(GroupTag::of("h"))));
    assert_eq!(rig.item(waits).head.item_state(), ItemState::Waiting);
    let since = rig.current_end();
    rig.commit(&rig.take("jobs"));
    let (events, _) = rig.read_events(EventsFrom::After(since), 100);
    let groups: Vec<_> =
        events.iter().filter_map(|event| event.item.as_ref()).map(|item| item.group).collect();
    assert_eq!(groups, [Some(GroupTag::of("g")); 2]);
}

pub(super) fn a_dependent_can_be_restored_in_another_store(harness: &dyn Harness) {
    let from = Rig::with_queue(&Elsewhere, plain());
    let first = from.submit("jobs", member("g"));
    let id = from.submit("jobs", after(DependsOn::items(vec![first]), Condition::AllSuccess));
    let to = Rig::with_queue(harness, plain());
    to.clock.set(from.now());
    for operation in restores(&from) {
        to.ok(operation);
    }
    assert_eq!(to.item(id).head.dependency(), from.item(id).head.dependency());
    assert_eq!(to.item(first).head.group, Some(GroupTag::of("g")));
    assert_eq!(to.receive_ids("jobs", 2), [first]);
    assert_eq!(to.run(observe(id, ended(&[(first, true)]))), left(ItemState::Pending));
}
