//! Occurrence times, and what a schedule does at them.

use super::rhythm::Times;
use super::step::{Step, step};
use proptest::prelude::*;
use towline_domain::schedule::{CatchUp, Overlap, Rhythm, Schedule, ScheduleTally, Spec, Template};
use towline_domain::{Millis, Timestamp};

fn at(text: &str) -> Timestamp {
    let time: jiff::Timestamp = text.parse().expect("a time");
    Timestamp(u64::try_from(time.as_millisecond()).expect("after 1970"))
}

fn spec(rhythm: Rhythm) -> Spec {
    Spec {
        queue: "jobs".parse().expect("a name"),
        rhythm,
        start: None,
        end: None,
        jitter: None,
        catch_up: CatchUp::One,
        overlap: Overlap::Allow,
        item: Template::default(),
    }
}

fn cron(text: &str, zone: &str) -> Times {
    let rhythm = Rhythm::Cron { cron: text.to_owned(), time_zone: zone.to_owned() };
    Times::new(&spec(rhythm), Timestamp(0)).unwrap_or_else(|refusal| panic!("{text}: {refusal}"))
}

/// The occurrences after a time.
#[track_caller]
fn follow(times: &Times, from: &str, expected: &[&str]) {
    let following = std::iter::successors(times.after(at(from)), |&time| times.after(time));
    let found: Vec<String> = following.take(expected.len()).map(|time| time.to_string()).collect();
    let expected: Vec<String> = expected.iter().map(|text| at(text).to_string()).collect();
    assert_eq!(found, expected);
    // Backwards it finds the same.
    if let (Some(first), Some(last)) = (expected.first(), expected.last()) {
        let back = times.latest(at(first), at(last), expected.len());
        assert_eq!(back.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn fields_are_five_or_with_seconds_or_with_years() {
    follow(&cron("0 3 * * *", "UTC"), "2026-01-01T03:00:00Z", &["2026-01-02T03:00:00Z"]);
    follow(
        &cron("*/20 * * * * *", "UTC"),
        "2026-01-01T00:00:00.500Z",
        &["2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z", "2026-01-01T00:01:00Z"],
    );
    follow(&cron("0 0 12 1 1 * 2030", "UTC"), "2026-01-01T00:00:00Z", &["2030-01-01T12:00:00Z"]);
}

#[test]
fn last_days_nearest_weekdays_and_nth_weekdays() {
    let from = "2026-01-01T00:00:00Z";
    follow(
        &cron("0 0 L * *", "UTC"),
        from,
        &["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"],
    );
    follow(&cron("0 0 * * 5#L", "UTC"), from, &["2026-01-30T00:00:00Z", "2026-02-27T00:00:00Z"]);
    follow(&cron("0 9 * * MON#2", "UTC"), from, &["2026-01-12T09:00:00Z", "2026-02-09T09:00:00Z"]);
    // The 15th of January is a Thursday, that of February a Sunday.
    follow(&cron("0 9 15W * *", "UTC"), from, &["2026-01-15T09:00:00Z", "2026-02-16T09:00:00Z"]);
}

#[test]
fn a_leap_day_comes_every_four_years() {
    let expected = ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"];
    follow(&cron("0 0 29 2 *", "UTC"), "2026-01-01T00:00:00Z", &expected);
}

#[test]
fn a_fixed_time_in_a_gap_comes_after_the_gap() {
    // At 2:00 it is 3:00, which is 1:00 UTC.
    follow(
        &cron("30 2 * * *", "Europe/Vienna"),
        "2026-03-28T12:00:00Z",
        &["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
    );
}

#[test]
fn a_gap_adds_no_occurrence_of_a_time_outside_it() {
    // 1:01, and not 3:00 as well.
    let expected = ["2026-03-28T00:01:00Z", "2026-03-29T00:01:00Z", "2026-03-29T23:01:00Z"];
    follow(&cron("1 1 * * *", "Europe/Vienna"), "2026-03-27T12:00:00Z", &expected);
    // Looking back from 3:30.
    let later = cron("45 3 * * *", "Europe/Vienna");
    let back = later.latest(at("2026-03-27T12:00:00Z"), at("2026-03-29T01:30:00Z"), 9);
    assert_eq!(back, [at("2026-03-28T02:45:00Z")]);
}

#[test]
fn an_interval_has_no_occurrence_in_a_gap() {
    follow(
        &cron("*/30 * * * *", "Europe/Vienna"),
        "2026-03-29T00:10:00Z",
        &["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"],
    );
}

#[test]
fn a_repeated_fixed_time_occurs_once() {
    // At 3:00 it is 2:00 again: the first 2:30 is 0:30 UTC, the second one 1:30 UTC.
    let expected = ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"];
    follow(&cron("30 2 * * *", "Europe/Vienna"), "2026-10-23T12:00:00Z", &expected);
}

#[test]
fn an_interval_occurs_in_both_repeated_hours() {
    follow(
        &cron("30 * * * *", "Europe/Vienna"),
        "2026-10-25T00:00:00Z",
        &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"],
    );
}

#[test]
fn intervals_count_from_their_anchor() {
    let mut every = spec(Rhythm::Every { every: Millis::minutes(7) });
    let times = Times::new(&every, at("2026-01-01T00:00:00Z")).expect("times");
    follow(&times, "2026-01-01T00:00:00Z", &["2026-01-01T00:07:00Z", "2026-01-01T00:14:00Z"]);
    follow(&times, "2026-01-01T00:13:59.999Z", &["2026-01-01T00:14:00Z"]);
    // The start is an occurrence; the end is not.
    every.start = Some(at("2026-01-02T00:00:00Z"));
    every.end = Some(at("2026-01-02T00:14:00Z"));
    let times = Times::new(&every, at("2026-01-02T00:00:00Z")).expect("times");
    follow(&times, "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00Z", "2026-01-02T00:07:00Z"]);
    assert_eq!(times.after(at("2026-01-02T00:07:00Z")), None);
    assert_eq!(times.latest(at("2026-01-01T00:00:00Z"), at("2026-01-03T00:00:00Z"), 9).len(), 2);
}

#[test]
fn an_error_names_the_wrong_part() {
    let refused = |text: &str, zone: &str| {
        let rhythm = Rhythm::Cron { cron: text.to_owned(), time_zone: zone.to_owned() };
        Times::new(&spec(rhythm), Timestamp(0)).expect_err(text).to_string()
    };
    assert!(refused("61 * * * *", "UTC").contains("minute \"61\""), "{}", refused("61 * * * *", "UTC"));
    assert!(refused("0 0 * FOO *", "UTC").contains("month \"FOO\""));
    assert!(refused("* * 0 99 * *", "UTC").contains("day of month \"99\""));
    assert!(refused("* * *", "UTC").starts_with("cron: \"* * *\""));
    assert!(refused("", "UTC").contains("empty"));
    assert!(refused("0 0 * * *", "Europe/Wien").contains("IANA"));
}

fn schedule(rhythm: Rhythm, catch_up: CatchUp) -> Schedule {
    Schedule {
        name: "nightly".parse().expect("a name"),
        uid: uuid::Uuid::from_u128(1),
        spec: Spec { catch_up, ..spec(rhythm) },
        created_at: Timestamp(0),
        changed_at: Timestamp(0),
        anchor: Timestamp(0),
        paused: false,
        next: Some(Timestamp(10_000)),
        last: None,
        last_item: None,
        tally: ScheduleTally::default(),
        error: None,
    }
}

/// The fired occurrences, the number of missed ones, and the next one.
fn fire_all(mut schedule: Schedule, now: u64) -> (Vec<u64>, u64, Option<u64>) {
    let times = Times::of(&schedule).expect("times");
    let mut fired = Vec::new();
    loop {
        match step(&schedule, &times, Timestamp(now)) {
            Step::Wait(next) => return (fired, schedule.tally.missed, next.map(|next| next.0)),
            Step::Miss(after) => schedule = *after,
            Step::Fire { occurrence, after } => {
                fired.push(occurrence.0);
                schedule = *after;
            }
        }
    }
}

#[test]
fn late_occurrences_follow_the_catch_up_policy() {
    let every = || Rhythm::Every { every: Millis(10_000) };
    let fire = |catch_up, now| fire_all(schedule(every(), catch_up), now);
    for catch_up in [CatchUp::None, CatchUp::One, CatchUp::All { max: 3 }] {
        assert_eq!(fire(catch_up, 9_999), (vec![], 0, Some(10_000)));
        assert_eq!(fire(catch_up, 10_000), (vec![10_000], 0, Some(20_000)));
    }
    assert_eq!(fire(CatchUp::None, 45_000), (vec![40_000], 3, Some(50_000)), "a little late");
    assert_eq!(fire(CatchUp::One, 45_000), (vec![40_000], 3, Some(50_000)));
    assert_eq!(fire(CatchUp::All { max: 3 }, 45_000), (vec![20_000, 30_000, 40_000], 1, Some(50_000)));
    assert_eq!(fire(CatchUp::All { max: 9 }, 45_000).0.len(), 4);
    let rarely = |catch_up| {
        let mut rarely = schedule(Rhythm::Every { every: Millis::hours(1) }, catch_up);
        rarely.next = Some(Timestamp(Millis::hours(1).0));
        fire_all(rarely, Millis::hours(1).0 + Millis::minutes(2).0)
    };
    let (hour, next) = (Millis::hours(1).0, Some(Millis::hours(2).0));
    assert_eq!(rarely(CatchUp::None), (vec![], 1, next));
    assert_eq!(rarely(CatchUp::One), (vec![hour], 0, next));
}

#[test]
fn a_year_of_missed_seconds_is_skipped_quickly() {
    let seconds = Rhythm::Cron { cron: "* * * * * *".to_owned(), time_zone: "UTC".to_owned() };
    let (fired, missed, next) = fire_all(schedule(seconds, CatchUp::All { max: 5 }), Millis::days(365).0);
    assert_eq!(fired.len(), 5);
    assert!(missed >= 10_000, "counted up to the maximum");
    assert_eq!(next, Some(Millis::days(365).0 + 1000));
}

#[test]
fn a_paused_or_ended_schedule_fires_nothing() {
    let every = || Rhythm::Every { every: Millis(10_000) };
    let paused = Schedule { paused: true, ..schedule(every(), CatchUp::One) };
    assert_eq!(fire_all(paused, 1_000_000), (vec![], 0, None));
    let mut over = schedule(every(), CatchUp::All { max: 100 });
    over.spec.end = Some(Timestamp(30_000));
    assert_eq!(fire_all(over, 1_000_000), (vec![10_000, 20_000], 0, None));
}

fn patterns() -> impl Strategy<Value = String> {
    let minute =
        prop_oneof![Just("*".to_owned()), (0..60u8).prop_map(|n| n.to_string()), Just("*/15".to_owned())];
    let hour =
        prop_oneof![Just("*".to_owned()), (0..24u8).prop_map(|n| n.to_string()), Just("1-3".to_owned())];
    let day = prop_oneof![Just("*"), Just("L"), Just("15W"), Just("1,29")];
    let weekday = prop_oneof![3 => Just("*"), 1 => Just("SUN#L"), 1 => Just("1-5")];
    (minute, hour, day, weekday)
        .prop_map(|(minute, hour, day, weekday)| format!("{minute} {hour} {day} * {weekday}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn times_ascend_and_are_the_same_backwards(
        pattern in patterns(),
        zone in prop_oneof![
            Just("UTC"), Just("Europe/Vienna"), Just("America/New_York"), Just("Australia/Lord_Howe"), Just("Asia/Kathmandu"),
        ],
        from in 1_767_225_600_000..1_830_297_600_000u64,
    ) {
        let times = cron(&pattern, zone);
        let found: Vec<Timestamp> =
            std::iter::successors(times.after(Timestamp(from)), |&time| times.after(time)).take(60).collect();
        prop_assert!(found.iter().all(|time| time.0 > from));
        prop_assert!(found.is_sorted_by(|one, other| one < other), "{:?}", found);
        if let (Some(&first), Some(&last)) = (found.first(), found.last()) {
            prop_assert_eq!(times.latest(first, last, 60), found);
        }
    }

    #[test]
    fn any_text_is_accepted_or_refused(text in ".{0,40}", zone in ".{0,20}") {
        let rhythm = Rhythm::Cron { cron: text, time_zone: zone };
        let _ = Times::new(&spec(rhythm), Timestamp(0));
    }

    #[test]
    fn any_similar_pattern_is_accepted_or_refused(text in "[0-9*/,LW#? A-C+@-]{0,30}") {
        let rhythm = Rhythm::Cron { cron: text, time_zone: "Europe/Vienna".to_owned() };
        if let Ok(times) = Times::new(&spec(rhythm), Timestamp(0)) {
            let _ = times.after(Timestamp(1_767_225_600_000));
        }
    }
}
