//! Tallies: terminal items counted by hour. They survive the removal of the items.

use super::Harness;
use super::operations::*;
use super::restore::{Elsewhere, restores};
use super::rig::*;
use futures::executor::block_on;
use std::collections::BTreeMap;
use towline_domain::{
    Body, Ending, Hour, ItemState, Millis, Overrides, Policy, PolicyPatch, Submission, Tally, Timestamp,
    limits, tally_values,
};
use towline_store::{Operation, TallyRange, TallyRow};

const HOUR: u64 = Millis::hours(1).0;

fn everything(tag: Option<&str>) -> TallyRange {
    TallyRange { from: Timestamp(0), until: Timestamp::MAX, tag: tag.map(str::to_owned) }
}

impl Rig {
    #[track_caller]
    fn rows(&self, queue: &str, asked: TallyRange) -> Vec<TallyRow> {
        let rows = block_on(self.store.tally(name(queue), asked)).expect("the store answers");
        let rows = rows.expect("the queue exists");
        // The row without a value comes last in its hour.
        let order = |row: &TallyRow| (row.hour, row.value.is_none(), row.value.clone());
        assert!(rows.is_sorted_by(|one, other| order(one) < order(other)), "{rows:?}");
        assert!(rows.iter().all(|row| row.tally.total() > 0), "no row is empty: {rows:?}");
        rows
    }

    /// The sum over all hours.
    #[track_caller]
    fn tallied(&self, queue: &str) -> BTreeMap<&'static str, u64> {
        let rows = self.rows(queue, everything(None));
        named(rows.iter().fold(Tally::default(), |sum, row| sum.plus(&row.tally)))
    }

    #[track_caller]
    fn by_value(&self, queue: &str, tag: &str) -> Vec<(Option<String>, u64)> {
        let rows = self.rows(queue, everything(Some(tag)));
        rows.into_iter().map(|row| (row.value, row.tally.total())).collect()
    }
}

fn named(tally: Tally) -> BTreeMap<&'static str, u64> {
    let counts = Ending::ALL.map(|ending| (ending.name(), tally.get(ending)));
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn tagged(tags: &[(&str, &str)]) -> Submission {
    let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Submission { body: Body { tags, ..Body::default() }, ..payload("work") }
}

fn by_tags(tags: &[&str]) -> Policy {
    Policy { tally_tags: tags.iter().map(|tag| (*tag).to_owned()).collect(), ..lenient() }
}

pub(super) fn every_terminal_item_is_counted_once(harness: &dyn Harness) {
    let policy = Policy { max_retries: 0, poison_after: Some(1), ..lenient() };
    let rig = Rig::with_queue(harness, policy);
    assert_eq!(rig.tallied("jobs"), [].into());
    let held = rig.hold("jobs");
    rig.commit(&held);
    // A repeated call is not counted again.
    assert_eq!(rig.lease(&held, commit()), left(ItemState::Completed));
    rig.fail(&rig.hold("jobs"));
    assert_eq!(rig.lease(&rig.hold("jobs"), retry("again")), left(ItemState::Failed));
    let id = rig.submit("jobs", payload("work"));
    rig.cancel(id);
    rig.cancel(id);
    let overrides = Overrides { expire_after: Some(Millis(10)), ..Overrides::default() };
    rig.submit("jobs", Submission { overrides, ..payload("work") });
    rig.at(rig.now().after(Millis(10)));
    rig.hold("jobs");
    rig.at(rig.now().after(Millis(1000)));
    let counted = [
        ("cancelled", 1),
        ("completed", 1),
        ("expired", 1),
        ("explicit", 1),
        ("poison", 1),
        ("retries_exhausted", 1),
    ];
    assert_eq!(rig.tallied("jobs"), counted.into());
    // Neither makes an item terminal.
    let id = rig.submit("jobs", payload("work"));
    rig.delete(id);
    rig.ok(Operation::Delete { id: rig.hold("jobs").id, force: true });
    assert_eq!(rig.lease(&rig.hold("jobs"), defer(0)), left(ItemState::Pending));
    assert_eq!(rig.tallied("jobs"), counted.into());
}

pub(super) fn every_item_of_a_batch_is_counted(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    rig.create("others", lenient());
    rig.submit_many("jobs", 300);
    rig.submit_many("others", 20);
    let settle = |queue: &str| -> Vec<Operation> {
        let verb = |n: usize| if n.is_multiple_of(3) { fail("broken") } else { commit() };
        rig.receive(queue, 1000).iter().enumerate().map(|(n, held)| held.call(verb(n))).collect()
    };
    let mut batch = settle("jobs");
    batch.extend(settle("others"));
    rig.update(batch);
    assert_eq!(rig.tallied("jobs"), [("completed", 200), ("explicit", 100)].into());
    assert_eq!(rig.tallied("others"), [("completed", 13), ("explicit", 7)].into());
}

pub(super) fn a_tally_outlives_its_items(harness: &dyn Harness) {
    let (completed_ttl, failed_ttl) = (Some(Millis(100)), Some(Millis::ZERO));
    let visibility_timeout = Millis(100);
    let rig = Rig::with_queue(harness, Policy { completed_ttl, failed_ttl, visibility_timeout, ..lenient() });
    let (done, failed) = (rig.hold("jobs"), rig.hold("jobs"));
    rig.commit(&done);
    rig.fail(&failed);
    rig.at(rig.now().after(Millis(100)));
    rig.assert_gone(done.id);
    rig.assert_gone(failed.id);
    assert_eq!(rig.tallied("jobs"), [("completed", 1), ("explicit", 1)].into());
}

pub(super) fn hours_are_counted_separately(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    let first = Hour::of(START).begin();
    for (hour, count) in [(0, 1), (1, 3), (4, 2)] {
        rig.at(first.after(Millis(hour * HOUR + HOUR - 1)));
        for _ in 0..count {
            rig.commit(&rig.hold("jobs"));
        }
    }
    let seen = |from: u64, until: u64| -> Vec<(u64, u64)> {
        let (from, until) = (first.after(Millis(from)), first.after(Millis(until)));
        let rows = rig.rows("jobs", TallyRange { from, until, tag: None });
        rows.iter().map(|row| (row.hour.begin().since(first).0 / HOUR, row.tally.total())).collect()
    };
    assert_eq!(seen(0, 5 * HOUR), [(0, 1), (1, 3), (4, 2)]);
    assert_eq!(seen(0, HOUR), [(0, 1)], "the end of the range is excluded");
    assert_eq!(seen(0, HOUR + 1), [(0, 1), (1, 3)]);
    assert_eq!(
        seen(2 * HOUR - 1, 4 * HOUR),
        [(1, 3)],
        "the range starts with the hour that contains its start"
    );
    assert_eq!(seen(2 * HOUR, 4 * HOUR), []);
    assert_eq!(seen(5 * HOUR, HOUR), [], "an empty range has no hours");
    assert_eq!(block_on(rig.store.tally(name("nobody"), everything(None))).expect("it answers"), None);
}

pub(super) fn a_dead_letter_is_counted_in_the_queue_where_it_failed(harness: &dyn Harness) {
    let rig = Rig::open(harness);
    rig.create("dead", lenient());
    rig.create("jobs", Policy { dead_letter_queue: Some(name("dead")), ..lenient() });
    let held = rig.hold("jobs");
    rig.fail(&held);
    assert_eq!(rig.stored(held.id).queue, name("dead"));
    assert_eq!(rig.tallied("jobs"), [("explicit", 1)].into());
    assert_eq!(rig.tallied("dead"), [].into());
    rig.ok(Operation::Redrive { id: held.id });
    assert_eq!(rig.tallied("jobs"), [("explicit", 1)].into());
    rig.commit(&rig.take("jobs"));
    assert_eq!(rig.tallied("jobs"), [("completed", 1), ("explicit", 1)].into());
}

pub(super) fn tags_named_in_the_policy_are_counted(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, by_tags(&["team", "zone"]));
    rig.commit(&rig.hold_this("jobs", tagged(&[("team", "a"), ("zone", "x"), ("user", "1")])));
    rig.fail(&rig.hold_this("jobs", tagged(&[("team", "b"), ("user", "2")])));
    rig.commit(&rig.hold_this("jobs", tagged(&[("team", "a")])));
    // Any text can be a value.
    rig.commit(&rig.hold_this("jobs", tagged(&[("team", "")])));
    rig.commit(&rig.hold_this("jobs", tagged(&[("zone", "\0ü'; --")])));
    let some = |value: &str| Some(value.to_owned());
    assert_eq!(rig.by_value("jobs", "team"), [(some(""), 1), (some("a"), 2), (some("b"), 1)]);
    assert_eq!(rig.by_value("jobs", "zone"), [(some("\0ü'; --"), 1), (some("x"), 1)]);
    assert_eq!(rig.by_value("jobs", "user"), [], "the policy does not name this tag");
    assert_eq!(rig.tallied("jobs"), [("completed", 4), ("explicit", 1)].into());
    // The policy at the time of the submit decides by which tags an item is counted.
    let held = rig.hold_this("jobs", tagged(&[("team", "a"), ("user", "3")]));
    let patch = PolicyPatch { tally_tags: Some(["user".to_owned()].into()), ..PolicyPatch::default() };
    rig.ok(Operation::ChangePolicy { queue: name("jobs"), patch: Box::new(patch) });
    rig.commit(&held);
    rig.commit(&rig.hold_this("jobs", tagged(&[("team", "a"), ("user", "4")])));
    assert_eq!(rig.by_value("jobs", "team"), [(some(""), 1), (some("a"), 3), (some("b"), 1)]);
    assert_eq!(rig.by_value("jobs", "user"), [(some("4"), 1)]);
    let names = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
    let refused = |tags: &[String]| {
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        code(&rig.run(create("more", by_tags(&tags))))
    };
    assert_eq!(refused(&names(limits::TALLY_TAGS_MAX + 1)), "invalid");
    assert_eq!(refused(&["x".repeat(limits::TAG_KEY_BYTES_MAX + 1)]), "invalid");
    assert_eq!(refused(&names(limits::TALLY_TAGS_MAX)), "ok");
}

pub(super) fn values_above_the_limit_are_counted_together(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, by_tags(&["user"]));
    let max = limits::TALLY_VALUES_DEFAULT as usize;
    let many = max + 50;
    for half in [0..many / 2, many / 2..many] {
        let batch = half.map(|n| submit("jobs", tagged(&[("user", &format!("u{n:04}"))])));
        rig.update(batch.collect());
        let held = rig.receive("jobs", 1000);
        rig.update(held.iter().map(|held| held.call(commit())).collect());
    }
    let rows = rig.by_value("jobs", "user");
    assert_eq!(rows.len(), max + 1);
    assert_eq!(rows.last(), Some(&(None, 50)));
    assert_eq!(rows.iter().map(|row| row.1).sum::<u64>(), many as u64);
    // A value that is already counted keeps its row.
    rig.commit(&rig.hold_this("jobs", tagged(&[("user", "u0007")])));
    rig.commit(&rig.hold_this("jobs", tagged(&[("user", "late")])));
    let rows = rig.by_value("jobs", "user");
    assert!(rows.contains(&(Some("u0007".to_owned()), 2)) && rows.contains(&(None, 51)), "{rows:?}");
    // The next hour has room for other values.
    rig.at(rig.now().after(Millis(HOUR)));
    rig.commit(&rig.hold_this("jobs", tagged(&[("user", "late")])));
    assert_eq!(rig.by_value("jobs", "user").last(), Some(&(Some("late".to_owned()), 1)));
}

pub(super) fn a_queue_chooses_how_many_values_are_counted_separately(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { tally_values_max: 2, ..by_tags(&["user"]) });
    rig.create("others", by_tags(&["user"]));
    let finish = |queue: &str, users: &[&str]| {
        let batch = users.iter().map(|user| submit(queue, tagged(&[("user", user)])));
        rig.update(batch.collect());
        let held = rig.receive(queue, 100);
        rig.update(held.iter().map(|held| held.call(commit())).collect());
    };
    let some = |value: &str| Some(value.to_owned());
    finish("jobs", &["a"]);
    finish("jobs", &["b"]);
    finish("jobs", &["c", "a"]);
    finish("others", &["a", "b", "c"]);
    assert_eq!(rig.by_value("jobs", "user"), [(some("a"), 2), (some("b"), 1), (None, 1)]);
    assert_eq!(rig.by_value("others", "user"), [(some("a"), 1), (some("b"), 1), (some("c"), 1)]);
    let change = |values_max: u32| {
        let patch = PolicyPatch { tally_values_max: Some(values_max), ..PolicyPatch::default() };
        rig.run(Operation::ChangePolicy { queue: name("jobs"), patch: Box::new(patch) })
    };
    change(3).expect("changed");
    finish("jobs", &["d"]);
    let Some(rig) = rig.reopen(harness) else { return };
    assert_eq!(rig.view("jobs").queue.policy.tally_values_max, 3, "the setting is stored");
    let rows = [(some("a"), 2), (some("b"), 1), (some("d"), 1), (None, 1)];
    assert_eq!(rig.by_value("jobs", "user"), rows);
    for values_max in [0, limits::TALLY_VALUES_MAX + 1] {
        let more = Policy { tally_values_max: values_max, ..lenient() };
        assert_eq!(code(&rig.run(create("more", more))), "invalid");
    }
}

pub(super) fn two_tags_are_counted_together(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, by_tags(&["team+type", "team"]));
    let finish = |tags: &[(&str, &str)]| rig.commit(&rig.hold_this("jobs", tagged(tags)));
    finish(&[("team", "red"), ("type", "build")]);
    finish(&[("team", "red"), ("type", "test")]);
    finish(&[("team", "red"), ("type", "build"), ("user", "u")]);
    finish(&[("team", "red")]);
    // The same text, divided otherwise; and the longest values.
    finish(&[("team", "redb"), ("type", "uild")]);
    let long = "\0".repeat(limits::TAG_VALUE_BYTES_MAX);
    finish(&[("team", &long), ("type", &long)]);
    let rows = rig.by_value("jobs", "team+type");
    let mut seen: Vec<(Vec<String>, u64)> = Vec::new();
    for (value, count) in &rows {
        let value = value.as_deref().expect("few values");
        let values = tally_values("team+type", value).into_iter().map(str::to_owned).collect();
        seen.push((values, *count));
    }
    seen.sort();
    let both = |one: &str, other: &str| vec![one.to_owned(), other.to_owned()];
    let expected = [
        (both(&long, &long), 1),
        (both("red", "build"), 2),
        (both("red", "test"), 1),
        (both("redb", "uild"), 1),
    ];
    assert_eq!(seen, expected);
    let teams = rig.by_value("jobs", "team");
    assert_eq!(teams.iter().map(|(_, count)| count).sum::<u64>(), 6);
    assert_eq!(code(&rig.run(create("more", by_tags(&["a+b+c"])))), "invalid");
}

pub(super) fn old_hours_are_removed(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, by_tags(&["team"]));
    rig.commit(&rig.hold_this("jobs", tagged(&[("team", "a")])));
    let last = Hour::of(START).begin().after(Millis(limits::TALLY_KEPT.0 + HOUR - 1));
    rig.at(last);
    assert_eq!(rig.tallied("jobs"), [("completed", 1)].into());
    rig.at(last.after(Millis(1)));
    assert_eq!(rig.tallied("jobs"), [].into());
    assert_eq!(rig.by_value("jobs", "team"), []);
    rig.commit(&rig.hold_this("jobs", tagged(&[("team", "b")])));
    assert_eq!(rig.by_value("jobs", "team"), [(Some("b".to_owned()), 1)]);
}

pub(super) fn deleting_a_queue_deletes_its_tallies(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, lenient());
    rig.commit(&rig.hold("jobs"));
    rig.ok(Operation::DeleteQueue { queue: name("jobs"), force: false });
    rig.create("jobs", lenient());
    assert_eq!(rig.tallied("jobs"), [].into());
}

pub(super) fn tallies_survive_a_reopen(harness: &dyn Harness) {
    let mut rig = Rig::with_queue(harness, by_tags(&["team"]));
    for round in 1..4 {
        for _ in 0..10 {
            rig.commit(&rig.hold_this("jobs", tagged(&[("team", "a")])));
        }
        rig.fail(&rig.hold("jobs"));
        let held = rig.hold_this("jobs", tagged(&[("team", "b")]));
        let Some(again) = rig.reopen(harness) else { return };
        rig = again;
        rig.commit(&held);
        assert_eq!(rig.tallied("jobs"), [("completed", 11 * round), ("explicit", round)].into());
        let some = |value: &str| Some(value.to_owned());
        assert_eq!(rig.by_value("jobs", "team"), [(some("a"), 10 * round), (some("b"), round)]);
    }
    rig.clock.advance(limits::TALLY_KEPT.0 + 2 * HOUR);
    let rig = rig.reopen(harness).expect("the store reopened before");
    assert_eq!(rig.tallied("jobs"), [].into(), "old hours expire while the store is closed");
}

pub(super) fn restored_items_are_not_counted(harness: &dyn Harness) {
    let source = Rig::with_queue(&Elsewhere, lenient());
    source.commit(&source.hold("jobs"));
    source.submit("jobs", tagged(&[("team", "a")]));
    let rig = Rig::with_queue(harness, by_tags(&["team"]));
    for operation in restores(&source) {
        rig.ok(operation);
    }
    assert_eq!(rig.tallied("jobs"), [].into());
    rig.commit(&rig.take("jobs"));
    assert_eq!(rig.tallied("jobs"), [("completed", 1)].into());
    assert_eq!(rig.by_value("jobs", "team"), [(Some("a".to_owned()), 1)]);
}
