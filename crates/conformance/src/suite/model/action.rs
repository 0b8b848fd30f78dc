//! Random histories: the actions and their frequencies.

use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Milliseconds that pass before the action.
    pub(super) wait: u64,
    pub(super) reopen: bool,
    pub(super) batch: Vec<Action>,
}

#[derive(Debug, Clone)]
pub(super) enum Action {
    Submit {
        queue: u8,
        key: Option<u8>,
        content: u8,
        priority: i8,
        delay: u16,
        own_id: Option<u8>,
        overrides: u8,
        /// With a record guard.
        once: Option<u8>,
    },
    Receive {
        queue: u8,
        max: u8,
        visibility: Option<u16>,
        assigned: bool,
        all_fields: bool,
    },
    /// `fresh`: a lease that no call is known to have settled. Otherwise any lease of the history.
    Settle {
        lease: u8,
        fresh: bool,
        verb: u8,
        millis: u16,
        edit: u8,
        priority: Option<i8>,
        queue: Option<u8>,
        /// For a commit: the queues, keys and contents of items to submit.
        then_submit: Vec<(u8, Option<u8>, u8)>,
    },
    /// Repeats an earlier call.
    Repeat {
        call: u8,
    },
    Operate {
        item: u8,
        what: u8,
    },
    Queue {
        queue: u8,
        what: u8,
    },
    Kv {
        key: u8,
        what: u8,
    },
    Sweep,
}

pub(super) fn actions() -> impl Strategy<Value = Action> {
    let rarely = |weight| proptest::option::weighted(weight, any::<u8>());
    let priority = || -2..3_i8;
    prop_oneof![
        // First, because proptest shrinks irrelevant actions to the first alternative.
        1 => Just(Action::Sweep),
        7 => (
            any::<u8>(),
            rarely(0.3),
            any::<u8>(),
            priority(),
            prop_oneof![3 => Just(0), 1 => 0..600_u16],
            rarely(0.15),
            any::<u8>(),
            rarely(0.1),
        )
            .prop_map(|(queue, key, content, priority, delay, own_id, overrides, once)| Action::Submit {
                queue, key, content, priority, delay, own_id, overrides, once,
            }),
        7 => (
            any::<u8>(),
            any::<u8>(),
            proptest::option::weighted(0.2, 0..300_u16),
            proptest::bool::weighted(0.3),
            any::<bool>(),
        )
            .prop_map(|(queue, max, visibility, assigned, all_fields)| Action::Receive {
                queue, max, visibility, assigned, all_fields,
            }),
        10 => (
            any::<u8>(),
            proptest::bool::weighted(0.9),
            any::<u8>(),
            any::<u16>().prop_map(|millis| millis % 2000),
            any::<u8>(),
            proptest::option::weighted(0.2, priority()),
            rarely(0.15),
            prop_oneof![
                4 => Just(Vec::new()),
                1 => proptest::collection::vec((any::<u8>(), rarely(0.3), any::<u8>()), 1..4),
            ],
        )
            .prop_map(|(lease, fresh, verb, millis, edit, priority, queue, then_submit)| Action::Settle {
                lease, fresh, verb, millis, edit, priority, queue, then_submit,
            }),
        2 => any::<u8>().prop_map(|call| Action::Repeat { call }),
        3 => any::<(u8, u8)>().prop_map(|(item, what)| Action::Operate { item, what }),
        2 => any::<(u8, u8)>().prop_map(|(queue, what)| Action::Queue { queue, what }),
        1 => any::<(u8, u8)>().prop_map(|(key, what)| Action::Kv { key, what }),
    ]
}

pub(super) fn histories(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![
        12 => Just(0),
        8 => 1..30_u64,
        4 => 30..150_u64,
        1 => 150..400_u64,
        1 => prop_oneof![Just(50), Just(100), Just(200), Just(300), Just(500), Just(900), Just(2500)],
    ];
    let batch = prop_oneof![
        3 => proptest::collection::vec(actions(), 1),
        1 => proptest::collection::vec(actions(), 2..6),
    ];
    let step = (wait, proptest::bool::weighted(0.03), batch).prop_map(|(wait, reopen, batch)| Step {
        wait,
        reopen,
        batch,
    });
    proptest::collection::vec(step, 1..steps)
}
