//! No input makes `decide` panic. It returns a change or a refusal.

use crate::driver::{Driver, policies};
use proptest::prelude::*;
use std::sync::Arc;
use towline_domain::backoff::Growth;
use towline_domain::command::{NewQueue, OutputSet, Receive, Verb, When};
use towline_domain::item::{Extras, Offer, Origin, Settle, SettleVerb, Settled};
use towline_domain::limits;
use towline_domain::{
    Adjust, Backoff, Body, Command, Context, Counts, FailureKind, Field, FieldEdits, Fields, Flow, Head,
    ItemId, Jitter, Json, KeyHold, KeyTag, Lease, LeaseCall, LeaseRule, LeaseToken, Millis, Order, Outcome,
    Overrides, Policy, PolicyPatch, Precondition, Queue, QueueId, QueueState, Schema, ScoreWeights, State,
    StateName, Submission, Timestamp, Unique, decide,
};
use uuid::Uuid;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(u64::MAX - 1),
        Just(Timestamp::MAX.0),
        Just(Millis::MAX.0),
        Just(Millis::MAX.0 + 1),
        0..2_000_000u64,
        any::<u64>(),
    ]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(10_000),
        Just(10_001),
        Just(u32::MAX),
        Just(u32::MAX - 1),
        any::<u32>()
    ]
}

fn millis() -> impl Strategy<Value = Millis> {
    number().prop_map(Millis)
}

fn time() -> impl Strategy<Value = Timestamp> {
    number().prop_map(Timestamp)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("ü".repeat(3000)),
        Just("x".repeat(70_000)),
        Just("\u{0}\u{10ffff}".to_owned()),
        ".{0,20}",
    ]
}

fn priority() -> impl Strategy<Value = i16> {
    prop_oneof![Just(i16::MIN), Just(i16::MAX), any::<i16>()]
}

fn token() -> impl Strategy<Value = LeaseToken> {
    (0..3u128).prop_map(|number| LeaseToken(Uuid::from_u128(number)))
}

fn backoff() -> BoxedStrategy<Backoff> {
    let growth = prop_oneof![
        Just(Growth::None),
        millis().prop_map(|delay| Growth::Constant { delay }),
        (millis(), small(), prop::option::of(millis()))
            .prop_map(|(base, factor_permille, cap)| { Growth::Exponential { base, factor_permille, cap } }),
    ];
    let jitter = prop_oneof![
        Just(Jitter::None),
        small().prop_map(|permille| Jitter::Random { permille }),
        (small(), millis()).prop_map(|(permille, round)| Jitter::Hash { permille, round }),
    ];
    (growth, jitter).prop_map(|(growth, jitter)| Backoff { growth, jitter }).boxed()
}

fn overrides() -> BoxedStrategy<Overrides> {
    let span = || prop::option::of(millis());
    (prop::option::of(small()), prop::option::of(backoff()), span(), span(), span(), span())
        .prop_map(|(max_retries, backoff, completed_ttl, failed_ttl, expire_after, give_up_after)| {
            let unique = None;
            Overrides { max_retries, backoff, completed_ttl, failed_ttl, expire_after, give_up_after, unique }
        })
        .boxed()
}

fn order() -> BoxedStrategy<Order> {
    let score = (small(), small(), number(), number(), millis()).prop_map(
        |(weight, tier, fee_half, size, age_unit)| {
            Order::Score(Box::new(ScoreWeights {
                fee_permille: weight,
                age_permille: weight,
                size_permille: weight,
                tier_permille: tier,
                fee_half,
                size_half_bytes: size,
                age_unit,
                ..ScoreWeights::default()
            }))
        },
    );
    prop_oneof![Just(Order::Fifo), Just(Order::Priority), score].boxed()
}

/// Includes invalid policies: a store may hold a policy that an earlier version accepted.
fn policy() -> BoxedStrategy<Policy> {
    let span = || prop::option::of(millis());
    let rule = (span(), prop::option::of(small()), prop::option::of(small()));
    let spans = (millis(), span(), span(), span(), span());
    let concurrency = prop::option::of(small());
    (
        small(),
        backoff(),
        spans,
        prop::option::of(small()),
        order(),
        prop::option::of(number()),
        rule,
        concurrency,
    )
        .prop_map(|(max_retries, backoff, spans, poison_after, order, depth_limit, rule, concurrency)| {
            Policy {
                visibility_timeout: spans.0,
                max_retries,
                backoff,
                completed_ttl: spans.1,
                failed_ttl: spans.2,
                output_ttl: spans.3,
                expire_after: spans.3,
                give_up_after: spans.4,
                poison_after,
                order,
                depth_limit,
                dead_letter_queue: Some("dead".parse().unwrap()),
                dead_letter: FailureKind::ALL.into(),
                unique: Unique::WhileUnfinished,
                lease: LeaseRule { ack_timeout: rule.0, renewal_permille: rule.1, renewals_max: rule.2 },
                tally_tags: ["team".to_owned()].into(),
                tally_values_max: limits::TALLY_VALUES_MAX,
                flow: Flow { concurrency, ..Flow::default() },
            }
        })
        .boxed()
}

fn queue(id: u32, name: &'static str) -> BoxedStrategy<Queue> {
    let state = prop_oneof![
        3 => Just(QueueState::Open),
        1 => time().prop_map(|since| QueueState::Closed { since }),
        1 => time().prop_map(|since| QueueState::Completed { since }),
    ];
    (policy(), state, any::<bool>(), small(), time())
        .prop_map(move |(policy, state, paused, revision, created_at)| Queue {
            id: QueueId(id),
            name: name.parse().unwrap(),
            schema: Schema::default(),
            policy,
            state,
            paused,
            created_at,
            revision,
        })
        .boxed()
}

fn counts() -> impl Strategy<Value = Counts> {
    (number(), number(), number(), number(), number(), number()).prop_map(
        |(pending, scheduled, processing, paused, completed, failed)| Counts {
            pending,
            scheduled,
            processing,
            paused,
            completed,
            failed,
        },
    )
}

fn buffers() -> impl Strategy<Value = OutputSet> {
    prop::collection::btree_map(
        "[a-c]".prop_map(|slot| slot.parse().unwrap()),
        "[a-z]{1,3}".prop_map(|id| id.parse().unwrap()),
        0..3,
    )
}

fn head() -> BoxedStrategy<Head> {
    let lease = (token(), time(), millis(), any::<bool>(), small(), prop::option::of(buffers())).prop_map(
        |(token, deadline, visibility, unacknowledged, renewals, buffers)| Lease {
            token,
            deadline,
            visibility,
            unacknowledged,
            renewals,
            buffers: buffers.map(Box::new),
        },
    );
    let ended = || (time(), prop::option::of(time()));
    let state = prop_oneof![
        2 => Just(State::Pending),
        4 => lease.prop_map(State::Processing),
        1 => Just(State::Paused),
        1 => ended().prop_map(|(at, remove_at)| State::Completed { at, remove_at }),
        2 => ended().prop_map(|(at, remove_at)| State::Failed { at, remove_at, kind: FailureKind::Expired }),
    ];
    let settle = (token(), any::<u64>()).prop_map(|(token, digest)| Settle {
        token,
        verb: SettleVerb::Retry,
        left: Settled::Pending,
        digest,
    });
    let extras = (overrides(), prop::option::of(time()), small(), any::<bool>(), any::<i64>()).prop_map(
        |(overrides, first_received_at, lapses, is_dead_letter, score)| Extras {
            overrides,
            origin: is_dead_letter.then(|| Origin {
                queue: "home".parse().unwrap(),
                queue_id: QueueId(2),
                moved_at: Timestamp(0),
            }),
            lapses,
            first_received_at,
            score,
            tally_tags: vec![("team".to_owned(), "blue".to_owned())],
            after: None,
            key_hold: KeyHold::WhileUnfinished,
            offer: is_dead_letter
                .then(|| Box::new(Offer { fee: u64::MAX, size_bytes: u64::MAX, tier: None })),
        },
    );
    let numbers = (small(), small(), small(), small());
    (
        state,
        priority(),
        time(),
        time(),
        numbers,
        prop::option::of(time()),
        prop::option::of(settle),
        prop::option::of(extras),
    )
        .prop_map(|(state, priority, created_at, ready_at, numbers, expires_at, last_settle, extras)| Head {
            id: ItemId(Uuid::from_u128(77)),
            queue: QueueId(1),
            state,
            priority,
            created_at,
            ready_at,
            retries: numbers.0,
            deliveries: numbers.1,
            revision: numbers.2,
            transitions: numbers.3,
            expires_at,
            last_settle,
            group: None,
            fairness_key: KeyTag::NONE,
            changed_at: None,
            heartbeat_at: None,
            extras: extras.map(Box::new),
        })
        .boxed()
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![millis().prop_map(When::After), time().prop_map(When::At)]
}

fn body() -> BoxedStrategy<Body> {
    let label = || prop::option::of(text());
    (
        label(),
        label(),
        prop::collection::btree_map(text(), text(), 0..3),
        prop::option::of(number()),
        label(),
        text(),
    )
        .prop_map(|(key, group, tags, fee, tier, param)| Body {
            // Most bodies with a replace key have nothing that is refused with it.
            replace_key: key.clone().filter(|_| fee.is_some()),
            idempotency_key: key.filter(|_| fee.is_none()),
            group: group.filter(|_| fee.is_none() || tier.is_some()),
            tags,
            fee,
            size_bytes: fee,
            tier,
            params: [(param.clone(), Json::string(&param))].into(),
            ..Body::default()
        })
        .boxed()
}

fn submit() -> BoxedStrategy<Command> {
    (any::<bool>(), priority(), when(), overrides(), body(), text(), prop::option::of(millis()))
        .prop_map(|(chosen, priority, ready, overrides, body, blob, delay_max)| {
            Command::Submit(Box::new(Submission {
                id: chosen.then(|| ItemId(Uuid::from_u128(1))),
                after: None,
                record_guard: None,
                priority,
                ready,
                delay_max: delay_max.filter(|_| body.replace_key.is_some()),
                overrides,
                body,
                fields: Fields { blob: Some(blob.into()), ..Fields::default() },
            }))
        })
        .boxed()
}

fn lease_call() -> BoxedStrategy<Command> {
    let verb = prop_oneof![
        prop::option::of(millis()).prop_map(|visibility| Verb::Heartbeat { visibility }),
        Just(Verb::Edit),
        (buffers(), text()).prop_map(|(outputs, param)| Verb::Commit(Outcome {
            outputs,
            output_params: [(param.clone(), Json::string(&param))].into(),
            handed_off: Vec::new(),
        })),
        text().prop_map(|reason| Verb::Fail { reason }),
        (text(), prop::option::of(millis()), any::<u64>()).prop_map(|(error, delay, seed)| Verb::Retry {
            error,
            delay,
            seed
        }),
        (millis(), any::<bool>()).prop_map(|(delay, counted)| Verb::Release { delay, counted }),
        when().prop_map(|until| Verb::Defer { until }),
        text().prop_map(|reason| Verb::Cancel { reason }),
    ];
    let edits = prop::option::of((0..4usize, text())).prop_map(|edit| match edit {
        Some((field, value)) => FieldEdits::default().set(Field::ALL[field], value.into()),
        None => FieldEdits::default(),
    });
    let queue = prop::option::of(prop::sample::select(&["q", "home", "nowhere"][..]));
    (token(), verb, edits, prop::option::of(priority()), queue)
        .prop_map(|(token, verb, edits, priority, queue)| {
            let queue = queue.map(|name| name.parse().unwrap());
            let adjust = Adjust { edits, priority, queue, buffers_whole: false, then_submit: Vec::new() };
            Command::Lease(Box::new(LeaseCall { token, verb, adjust }))
        })
        .boxed()
}

fn command() -> BoxedStrategy<Command> {
    let receive = (token(), prop::option::of(millis()), any::<bool>(), any::<bool>()).prop_map(
        |(token, visibility, assigned, make_buffers)| {
            Command::Receive(Receive { token, visibility, assigned, make_buffers })
        },
    );
    let create = policy().prop_map(|policy| {
        Command::CreateQueue(Box::new(NewQueue {
            id: QueueId(u32::MAX),
            name: "q".parse().unwrap(),
            schema: Schema::default(),
            policy,
        }))
    });
    let patch =
        (prop::option::of(millis()), prop::option::of(small()), prop::option::of(prop::option::of(number())))
            .prop_map(|(visibility_timeout, max_retries, depth_limit)| {
                Command::ChangePolicy(Box::new(PolicyPatch {
                    visibility_timeout,
                    max_retries,
                    depth_limit,
                    ..PolicyPatch::default()
                }))
            });
    prop_oneof![
        3 => submit(),
        3 => receive,
        8 => lease_call(),
        1 => create,
        1 => patch,
        1 => Just(Command::CloseQueue),
        1 => Just(Command::PauseQueue),
        1 => Just(Command::ResumeQueue),
        1 => any::<bool>().prop_map(|force| Command::DeleteQueue { force }),
        1 => text().prop_map(|reason| Command::Cancel { reason }),
        1 => Just(Command::Pause),
        1 => Just(Command::Resume),
        2 => Just(Command::Redrive),
        1 => any::<bool>().prop_map(|force| Command::Delete { force }),
        1 => any::<i16>().prop_map(|priority| Command::SetPriority { priority }),
        1 => "[a-z]{1,9}".prop_filter_map("a name", |name| Some(Command::Move { queue: name.parse().ok()? })),
        1 => any::<bool>().prop_map(|force| Command::Guarded {
            precondition: Arc::new(Precondition::in_state(StateName::Unfinished)),
            then: Box::new(Command::Delete { force }),
        }),
        3 => Just(Command::Elapse),
    ]
    .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn no_decision_panics_and_each_is_deterministic(
        queue in queue(1, "q"),
        home in queue(2, "home"),
        dead in queue(3, "dead"),
        counts in counts(),
        head in head(),
        whole in 0..32u8,
        command in command(),
        now in time(),
    ) {
        let context = Context {
            queue: (whole != 1).then_some(&queue),
            counts,
            item: (whole % 4 != 2).then_some(&head),
            replaces: (whole % 4 == 2).then_some(&head),
            record: None,
            key_owner: (whole % 8 == 3).then_some((head.id, [7; 16])),
            new_id: (whole != 4).then_some(ItemId(Uuid::from_u128(5))),
            target: (whole % 2 == 0).then_some(&home),
            dead_letters: (whole % 3 == 0).then_some(&dead),
            handed_off: None,
        };
        let first = decide(&context, command.clone(), now);
        prop_assert_eq!(&first, &decide(&context, command, now));
        match first {
            Ok(change) => {
                prop_assert!(change.head().is_none() || !change.removes_item());
                if let Some(head) = change.head() {
                    // Every store calls these for every head.
                    let _ = (head.attempt(), head.timer(), head.count_kind(now), head.item_state());
                    let _ = queue.policy.order.key(head);
                }
            }
            Err(refusal) => prop_assert!(!refusal.to_string().is_empty() && !refusal.code().is_empty()),
        }
    }

    #[test]
    fn a_policy_at_its_limits_never_produces_a_time_beyond_the_last(
        policy in policies(),
        visibility in prop::sample::select(&[limits::VISIBILITY_MIN, limits::VISIBILITY_MAX][..]),
        longest: [bool; 4],
        now in 0..=Timestamp::MAX.0,
        delay in millis(),
    ) {
        let longest = longest.map(|longest| longest.then_some(Millis::MAX));
        let policy = Policy {
            visibility_timeout: visibility,
            expire_after: longest[0],
            give_up_after: longest[1],
            failed_ttl: longest[2],
            lease: LeaseRule { ack_timeout: longest[3], ..policy.lease },
            ..policy
        };
        prop_assert_eq!(policy.check(), Ok(()));
        let mut driver = Driver::new(policy);
        driver.now = Timestamp(now);
        let submission = Submission { ready: When::After(delay), ..Submission::default() };
        driver.step(Command::Submit(Box::new(submission)));
        if let Some(item) = &mut driver.item {
            prop_assert!(item.head.ready_at <= Timestamp::MAX);
            prop_assert!(item.head.expires_at.is_none_or(|at| at <= Timestamp::MAX));
            item.head.ready_at = driver.now;
        }
        let receive = Receive { token: LeaseToken(Uuid::from_u128(1)), visibility: None, assigned: true, make_buffers: false };
        driver.step(Command::Receive(receive));
        if let Some(item) = &driver.item {
            prop_assert!(item.head.timer().is_none_or(|at| at <= Timestamp::MAX));
        }
    }
}

#[test]
fn ten_thousand_retries_are_counted_one_by_one() {
    let mut driver = Driver::new(Policy { max_retries: 10_000, backoff: Backoff::NONE, ..Policy::default() });
    driver.step(Command::Submit(Box::default()));
    for number in 1..=10_001u32 {
        let token = LeaseToken(Uuid::from_u128(number.into()));
        let receive = Receive { token, visibility: None, assigned: false, make_buffers: false };
        driver.step(Command::Receive(receive)).answer.unwrap();
        assert_eq!(driver.item.as_ref().unwrap().head.attempt(), number);
        let error = number.to_string();
        let verb = Verb::Retry { error, delay: None, seed: 0 };
        let adjust = Adjust::default();
        driver.step(Command::Lease(Box::new(LeaseCall { token, verb, adjust }))).answer.unwrap();
    }
    let item = driver.item.unwrap();
    assert!(matches!(item.head.state, State::Failed { kind: FailureKind::RetriesExhausted, .. }));
    let kept: Vec<&str> = item.errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(kept.len(), 32, "bounded");
    assert_eq!((kept[0], kept[31]), ("1", "10001"), "the first and the latest are kept");
}
