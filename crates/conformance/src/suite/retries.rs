//! Retries: their number, their backoff, the stored errors, expiry and dead letters.

use super::Harness;
use super::operations::*;
use super::rig::*;
use towline_domain::backoff::Growth;
use towline_domain::command::Verb;
use towline_domain::item::ErrorKind;
use towline_domain::{
    AttemptError, Backoff, FailureKind, Item, ItemId, ItemState, Jitter, Millis, Policy, State, limits,
};
use towline_store::Operation;

fn retries(max_retries: u32) -> Policy {
    Policy { visibility_timeout: Millis(1000), max_retries, backoff: Backoff::NONE, ..Policy::default() }
}

fn growing(base: u64, cap: u64) -> Backoff {
    Backoff {
        growth: Growth::Exponential { base: Millis(base), factor_permille: 2000, cap: Some(Millis(cap)) },
        jitter: Jitter::None,
    }
}

#[track_caller]
fn failure(item: &Item) -> FailureKind {
    match item.head.state {
        State::Failed { kind, .. } => kind,
        ref other => panic!("not failed: {other:?}"),
    }
}

fn kinds(item: &Item) -> Vec<ErrorKind> {
    item.errors.iter().map(|error| error.kind).collect()
}

/// Ends an attempt with a verb, or with a lapse if `None`.
#[track_caller]
fn end(rig: &Rig, held: &Held, how: Option<&Verb>) {
    match how {
        Some(verb) => drop(rig.lease(held, verb.clone()).expect("settled")),
        None => rig.at(held.deadline()),
    }
}

pub(super) fn attempts_are_one_more_than_retries(harness: &dyn Harness) {
    let ways = [
        (Some(retry("broken")), vec![ErrorKind::Retried; 3]),
        (Some(release()), vec![ErrorKind::Retried]),
        (None, vec![ErrorKind::Lapsed; 3]),
    ];
    for (how, errors) in ways {
        let rig = Rig::with_queue(harness, retries(2));
        let id = rig.submit("jobs", payload("work"));
        for attempt in 1..=3 {
            let held = rig.take("jobs");
            assert_eq!((held.id, held.item.head.attempt()), (id, attempt));
            end(&rig, &held, how.as_ref());
        }
        let item = rig.item(id);
        assert_eq!(failure(&item), FailureKind::RetriesExhausted, "{how:?}");
        assert_eq!((item.head.retries, item.head.deliveries), (2, 3));
        assert_eq!(kinds(&item), errors);
        assert!(rig.receive("jobs", 1).is_empty());
    }
}

pub(super) fn retries_releases_and_lapses_count_together(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, retries(3));
    let id = rig.submit("jobs", payload("work"));
    for how in [Some(retry("broken")), Some(release()), None, Some(release())] {
        let held = rig.take("jobs");
        end(&rig, &held, how.as_ref());
    }
    let item = rig.item(id);
    assert_eq!(failure(&item), FailureKind::RetriesExhausted);
    assert_eq!(kinds(&item), [ErrorKind::Retried, ErrorKind::Lapsed, ErrorKind::Retried]);
}

pub(super) fn a_defer_does_not_count_as_a_retry(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, retries(0));
    let id = rig.submit("jobs", payload("work"));
    for delivery in 1..=20 {
        let held = rig.take("jobs");
        assert_eq!((held.item.head.deliveries, held.item.head.retries), (delivery, 0));
        assert_eq!(rig.lease(&held, defer(0)), left(ItemState::Pending));
    }
    assert!(rig.item(id).errors.is_empty());
    let held = rig.take("jobs");
    rig.commit(&held);
}

pub(super) fn a_release_can_be_uncounted(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, retries(0));
    let id = rig.submit("jobs", payload("first"));
    rig.submit("jobs", payload("second"));
    let uncounted = |millis| Verb::Release { delay: Millis(millis), counted: false };
    for delivery in 1..=20 {
        rig.advance(1);
        let held = rig.take("jobs");
        assert_eq!((held.id, held.item.head.deliveries, held.item.head.retries), (id, delivery, 0));
        assert_eq!(rig.lease(&held, uncounted(0)), left(ItemState::Pending), "it keeps its place");
        assert_eq!(rig.lease(&held, uncounted(0)), left(ItemState::Pending), "a repetition");
        assert_eq!(
            code(&rig.lease(&held, release())),
            "already_settled",
            "a counted release is another call"
        );
    }
    let held = rig.take("jobs");
    assert_eq!(rig.lease(&held, uncounted(7)), left(ItemState::Pending));
    assert_eq!(rig.item(id).head.ready_at, rig.now().after(Millis(7)));
    rig.advance(7);
    let item = rig.item(id);
    assert!(item.errors.is_empty());
    assert_eq!(item.head.retries, 0);
}

pub(super) fn the_default_backoff_doubles_from_one_second_to_five_minutes(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { max_retries: 100, ..Policy::default() });
    let id = rig.submit("jobs", payload("work"));
    for most in [1000_u64, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000] {
        let held = rig.take("jobs");
        let seed = most.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        rig.lease(&held, Verb::Retry { error: "e".to_owned(), delay: None, seed }).expect("retried");
        let delay = rig.item(id).head.ready_at.since(rig.now()).0;
        assert!(delay > most / 2 && delay <= most, "{delay} of {most}");
        rig.advance(delay);
    }
    // A lapse has the same backoff, so that a fleet that crashed does not come back all at once.
    let held = rig.take("jobs");
    rig.at(held.deadline());
    assert!(rig.item(id).head.ready_at > rig.now());
}

pub(super) fn an_item_may_override_max_retries(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, retries(0));
    let mut stubborn = payload("work");
    stubborn.overrides.max_retries = Some(1);
    let held = rig.hold_this("jobs", stubborn);
    assert_eq!(rig.lease(&held, retry("e")), left(ItemState::Pending));
    let held = rig.take("jobs");
    assert_eq!(rig.lease(&held, retry("e")), left(ItemState::Failed));
}

pub(super) fn backoff_grows_up_to_its_cap(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { backoff: growing(100, 350), ..retries(10) });
    let mut held = rig.hold("jobs");
    for delay in [100, 200, 350, 350] {
        rig.lease(&held, retry("e")).expect("retried");
        let ready_at = rig.now().after(Millis(delay));
        assert_eq!(rig.item(held.id).head.ready_at, ready_at);
        rig.advance(delay - 1);
        assert!(rig.receive("jobs", 1).is_empty());
        rig.advance(1);
        held = rig.take("jobs");
    }
    // A requested delay replaces the backoff.
    let asked = Verb::Retry { error: "e".to_owned(), delay: Some(Millis(5)), seed: 0 };
    rig.lease(&held, asked).expect("retried");
    assert_eq!(rig.item(held.id).head.ready_at, rig.now().after(Millis(5)));
    rig.advance(5);
    // A release has no backoff. A lapse has.
    let held = rig.take("jobs");
    let later = Verb::Release { delay: Millis(7), counted: true };
    rig.lease(&held, later).expect("released");
    assert_eq!(rig.item(held.id).head.ready_at, rig.now().after(Millis(7)));
    rig.advance(7);
    let held = rig.take("jobs");
    rig.lease(&held, release()).expect("released");
    assert_eq!(rig.item(held.id).head.ready_at, rig.now());
    let held = rig.take("jobs");
    rig.at(held.deadline());
    assert_eq!(rig.item(held.id).head.ready_at, rig.now().after(Millis(350)));
}

pub(super) fn an_item_may_override_the_backoff(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, retries(10));
    let mut slow = payload("work");
    slow.overrides.backoff = Some(growing(40, 1000));
    let held = rig.hold_this("jobs", slow);
    rig.lease(&held, retry("e")).expect("retried");
    assert_eq!(rig.item(held.id).head.ready_at, rig.now().after(Millis(40)));
}

pub(super) fn jitter_is_derived_from_the_seed_of_the_call(harness: &dyn Harness) {
    let backoff = Backoff::preset("ayepi").expect("a preset");
    let rig = Rig::with_queue(harness, Policy { backoff: backoff.clone(), ..retries(10) });
    for (n, seed) in [0, u64::MAX / 3, u64::MAX].into_iter().enumerate() {
        let held = rig.hold("jobs");
        let error = "e".to_owned();
        let verb = Verb::Retry { error, delay: None, seed };
        rig.lease(&held, verb).expect("retried");
        let delay = backoff.delay(held.id, 0, seed);
        assert_eq!(rig.item(held.id).head.ready_at, rig.now().after(delay), "seed {n}");
        rig.delete(held.id);
    }
}

pub(super) fn the_first_and_the_latest_errors_are_kept(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, retries(100));
    let id = rig.submit("jobs", payload("work"));
    let mut all = Vec::new();
    for attempt in 1..=40 {
        let held = rig.take("jobs");
        rig.advance(3);
        let message = format!("attempt {attempt} broke: ü\n");
        rig.lease(&held, retry(&message)).expect("retried");
        all.push(AttemptError { at: rig.now(), attempt, kind: ErrorKind::Retried, message });
        let kept: Vec<_> = rig.item(id).errors.iter().cloned().collect();
        let latest = all.len().saturating_sub(limits::ERRORS_KEPT_MAX - 1).max(1);
        assert_eq!(kept[0], all[0]);
        assert_eq!(kept[1..], all[latest.min(all.len())..]);
        assert!(kept.len() <= limits::ERRORS_KEPT_MAX);
    }
    assert_eq!(rig.item(id).head.retries, 40, "the number of retries is still known");
    let held = rig.take("jobs");
    rig.commit(&held);
    assert_eq!(rig.item(id).errors.len(), limits::ERRORS_KEPT_MAX, "errors are kept after success");
}

pub(super) fn a_long_reason_is_cut_and_an_oversized_one_is_refused(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, retries(10));
    let held = rig.hold("jobs");
    let absurd = "é".repeat(16 * limits::REASON_BYTES_MAX);
    assert_eq!(code(&rig.lease(&held, retry(&absurd))), "too_large");
    assert_eq!(code(&rig.lease(&held, fail(&absurd))), "too_large");
    let long = format!("x{}", "é".repeat(limits::REASON_BYTES_MAX));
    rig.lease(&held, retry(&long)).expect("retried");
    let item = rig.item(held.id);
    let kept = &item.errors.iter().next().expect("an error").message;
    assert!(long.starts_with(kept.as_str()) && kept.len() == limits::REASON_BYTES_MAX - 1);
}

pub(super) fn consecutive_lapses_fail_an_item_as_poison(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { poison_after: Some(2), ..retries(100) });
    let id = rig.submit("jobs", payload("work"));
    for how in [None, Some(release()), None, Some(defer(0)), None, None] {
        assert_eq!(rig.counts("jobs").failed, 0);
        let held = rig.take("jobs");
        end(&rig, &held, how.as_ref());
    }
    let item = rig.item(id);
    assert_eq!(failure(&item), FailureKind::Poison);
    assert_eq!(item.head.retries, 4, "the last attempt does not count as a retry");
}

pub(super) fn an_unfinished_item_expires(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { expire_after: Some(Millis(500)), ..retries(100) });
    let pending = rig.submit("jobs", payload("pending"));
    let paused = rig.submit("jobs", payload("paused"));
    rig.ok(Operation::Pause { id: paused });
    let scheduled = rig.submit("jobs", delayed(10_000));
    let held = rig.hold_this("jobs", with_priority(-1));
    assert_eq!(held.deadline(), START.after(Millis(500)), "a lease ends with its item");
    let mut own = with_priority(-1);
    own.overrides.expire_after = Some(Millis(2000));
    let own = rig.hold_this("jobs", own);
    assert_eq!(rig.next_wake(), Some(START.after(Millis(500))));
    rig.at(START.after(Millis(499)));
    assert_eq!(rig.lease(&held, heartbeat()), until(START.after(Millis(500))));
    assert_eq!(rig.counts("jobs").failed, 0);
    rig.at(START.after(Millis(500)));
    for id in [pending, paused, scheduled, held.id] {
        let item = rig.item(id);
        assert_eq!(failure(&item), FailureKind::Expired);
        assert_eq!(kinds(&item), [ErrorKind::Expired], "the expiry is recorded as an error");
        assert_eq!(item.head.finished_at(), Some(rig.now()));
    }
    assert!(rig.receive("jobs", 10).is_empty());
    assert!(!rig.item(own.id).head.is_terminal());
    rig.commit(&own);
    rig.at(START.after(Millis(2000)));
    assert_eq!(rig.item(own.id).head.item_state(), ItemState::Completed);
}

pub(super) fn give_up_after_counts_from_the_first_delivery(harness: &dyn Harness) {
    let rig = Rig::with_queue(harness, Policy { give_up_after: Some(Millis(1500)), ..retries(100) });
    let id = rig.submit("jobs", payload("work"));
    let untouched = rig.submit("jobs", delayed(Millis::days(1).0));
    rig.advance(10_000);
    let first = rig.take("jobs");
    assert_eq!(first.id, id);
    let give_up = rig.now().after(Millis(1500));
    assert_eq!(rig.item(id).head.expires_at, Some(give_up));
    rig.at(first.deadline());
    let second = rig.take("jobs");
    assert_eq!(second.deadline(), give_up, "the deadline spans all attempts");
    rig.at(towline_domain::Timestamp(give_up.0 - 1));
    rig.lease(&second, release()).expect("released");
    rig.at(give_up);
    let item = rig.item(id);
    assert_eq!(failure(&item), FailureKind::Expired);
    assert_eq!(kinds(&item), [ErrorKind::Lapsed, ErrorKind::Expired]);
    assert_eq!(rig.item(untouched).head.expires_at, None, "the item was never received");
    // A redriven item gets the full time again.
    rig.ok(Operation::Redrive { id });
    let held = rig.take("jobs");
    assert_eq!(rig.item(held.id).head.expires_at, Some(rig.now().after(Millis(1500))));
}

/// Queue `jobs` with a dead-letter queue that keeps failed items for an hour.
fn with_dead_letters(harness: &dyn Harness, policy: Policy) -> Rig {
    let rig = Rig::open(harness);
    rig.create("dead", Policy { failed_ttl: Some(Millis::hours(1)), ..Policy::default() });
    rig.create(
        "jobs",
        Policy { dead_letter_queue: Some(name("dead")), failed_ttl: Some(Millis::minutes(1)), ..policy },
    );
    rig
}

#[track_caller]
fn assert_dead(rig: &Rig, id: ItemId, kind: FailureKind, ttl: Millis) {
    let stored = rig.stored(id);
    assert_eq!(stored.queue, name("dead"));
    let at = rig.now();
    let remove_at = Some(at.after(ttl));
    assert_eq!(stored.item.head.state, State::Failed { at, remove_at, kind });
    let extras = stored.item.head.extras.expect("extras");
    let origin = extras.origin.expect("a dead letter has an origin");
    assert_eq!((origin.queue, origin.moved_at), (name("jobs"), at));
    assert_eq!(origin.queue_id, rig.view("jobs").queue.id);
}

pub(super) fn a_failed_item_moves_to_the_dead_letter_queue(harness: &dyn Harness) {
    let rig = with_dead_letters(harness, Policy { poison_after: Some(1), ..retries(0) });
    let hour = Millis::hours(1);
    let held = rig.hold_this("jobs", keyed("k", "work"));
    rig.fail(&held);
    assert_dead(&rig, held.id, FailureKind::Explicit, hour);
    let item = rig.item(held.id);
    assert_eq!((item.body, item.fields), (held.item.body, held.item.fields));
    let held = rig.hold("jobs");
    rig.lease(&held, retry("e")).expect("settled");
    assert_dead(&rig, held.id, FailureKind::RetriesExhausted, hour);
    let held = rig.hold("jobs");
    rig.at(held.deadline());
    assert_dead(&rig, held.id, FailureKind::Poison, hour);
    let mut short = delayed(1000);
    short.overrides.expire_after = Some(Millis(10));
    short.overrides.failed_ttl = Some(Millis(77));
    let id = rig.submit("jobs", short);
    rig.at(rig.now().after(Millis(10)));
    assert_dead(&rig, id, FailureKind::Expired, Millis(77));
    assert_eq!((rig.counts("jobs").total(), rig.counts("dead").failed), (0, 4));
    rig.at(START.after(hour));
    assert_eq!(rig.counts("dead").failed, 1, "each item has its own TTL");
}

pub(super) fn a_dead_letter_frees_depth_in_its_origin_queue(harness: &dyn Harness) {
    let policy = Policy { depth_limit: Some(1), expire_after: Some(Millis(50)), ..retries(0) };
    let rig = with_dead_letters(harness, policy);
    for n in 1..=5 {
        let held = rig.hold("jobs");
        rig.fail(&held);
        assert_eq!((rig.counts("jobs").total(), rig.counts("dead").failed), (0, n));
    }
    let expired = rig.submit("jobs", payload("late"));
    assert_eq!(code(&rig.run(submit("jobs", payload("no room")))), "queue_full");
    rig.at(rig.now().after(Millis(50)));
    assert_eq!(rig.counts("dead").failed, 6);
    // Back in its origin queue, the item gets a new expiry time.
    assert_eq!(rig.run(Operation::Redrive { id: expired }), left(ItemState::Pending));
    assert_eq!(rig.item(expired).head.expires_at, Some(rig.now().after(Millis(50))));
    let held = rig.take("jobs");
    assert_eq!((held.id, held.item.head.attempt()), (expired, 1));
    rig.commit(&held);
}

pub(super) fn a_cancelled_item_is_not_a_dead_letter(harness: &dyn Harness) {
    let rig = with_dead_letters(harness, retries(0));
    let id = rig.submit("jobs", payload("work"));
    rig.cancel(id);
    assert_eq!(rig.stored(id).queue, name("jobs"));
    let at = rig.now();
    let remove_at = Some(at.after(Millis::minutes(1)));
    let kind = FailureKind::Cancelled;
    assert_eq!(rig.item(id).head.state, State::Failed { at, remove_at, kind });
}

pub(super) fn the_kinds_of_failure_that_become_dead_letters_can_be_chosen(harness: &dyn Harness) {
    for chosen in FailureKind::ALL {
        let policy = Policy { dead_letter: [chosen].into(), poison_after: Some(1), ..retries(0) };
        let rig = with_dead_letters(harness, policy);
        let failed = rig.hold("jobs");
        rig.fail(&failed);
        let retried = rig.hold("jobs");
        rig.lease(&retried, retry("e")).expect("settled");
        let lapsed = rig.hold("jobs");
        rig.at(lapsed.deadline());
        let cancelled = rig.submit("jobs", payload("work"));
        rig.cancel(cancelled);
        let mut short = delayed(1000);
        short.overrides.expire_after = Some(Millis(10));
        let expired = rig.submit("jobs", short);
        rig.at(rig.now().after(Millis(10)));
        let ended = [
            (failed.id, FailureKind::Explicit),
            (retried.id, FailureKind::RetriesExhausted),
            (lapsed.id, FailureKind::Poison),
            (cancelled, FailureKind::Cancelled),
            (expired, FailureKind::Expired),
        ];
        for (id, kind) in ended {
            let stored = rig.stored(id);
            assert_eq!(failure(&stored.item), kind);
            let expected = if kind == chosen { "dead" } else { "jobs" };
            assert_eq!(stored.queue, name(expected), "{kind:?} with {chosen:?}");
        }
    }
}

pub(super) fn without_an_open_dead_letter_queue_a_failed_item_stays(harness: &dyn Harness) {
    let rig = with_dead_letters(harness, retries(0));
    rig.close("dead");
    let held = rig.hold("jobs");
    rig.fail(&held);
    assert_eq!(rig.stored(held.id).queue, name("jobs"));
    rig.ok(Operation::DeleteQueue { queue: name("dead"), force: true });
    let held = rig.hold("jobs");
    rig.fail(&held);
    let stored = rig.stored(held.id);
    assert_eq!(stored.queue, name("jobs"));
    assert!(stored.item.head.extras.is_none_or(|extras| extras.origin.is_none()));
    assert_eq!(rig.counts("jobs").failed, 2);
}
