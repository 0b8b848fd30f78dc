//! Runs random histories on the store under test and on the reference store. Every reply and every read must be equal.
//!
//! A history is a list of actions that name items and leases by number, modulo the number that exist at that step. So
//! proptest can shorten a failing history. Ids and queue ids may differ between the stores; the world pairs them when
//! they are created.
//!
//! `TOWLINE_SOAK=1` runs many more and longer histories, different ones each time. `TOWLINE_MODEL_CASES` and
//! `TOWLINE_MODEL_STEPS` set the numbers.

mod action;
mod content;
mod side;
mod world;

use super::Harness;
use super::rig::START;
use action::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestError, TestRng, TestRunner};
use std::env;
use std::sync::Arc;
use towline_store::ManualClock;
use world::*;

fn play(harness: &dyn Harness, survives: bool, history: &[Step]) -> TestCaseResult {
    let mut world = World::open(harness);
    // Each after the dead-letter queue that it names.
    let queues = [2, 0, 1].into_iter().map(|queue: usize| {
        let queue = u8::try_from(queue).unwrap_or(0);
        Action::Queue { queue, what: 0 }
    });
    let first = Step { wait: 0, reopen: false, batch: queues.collect() };
    world.step(harness, survives, &first)?;
    for (n, step) in history.iter().enumerate() {
        world.step(harness, survives, step)?;
        if n % 8 == 7 {
            world.compare()?;
        }
    }
    world.compare()
}

fn number(variable: &str, otherwise: usize) -> usize {
    env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

pub(in crate::suite) fn random_histories_agree_with_the_reference_store(harness: &dyn Harness) {
    let soak = env::var_os("TOWLINE_SOAK").is_some();
    let steps = number("TOWLINE_MODEL_STEPS", if soak { 400 } else { 120 });
    let config = Config {
        cases: u32::try_from(number("TOWLINE_MODEL_CASES", if soak { 5000 } else { 400 }))
            .unwrap_or(u32::MAX),
        max_shrink_iters: 20_000,
        max_shrink_time: 60_000,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = if soak {
        TestRunner::new(config)
    } else {
        // The same histories every time, so that a new failure points to the last change.
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]))
    };
    let clock = Arc::new(ManualClock::new(START));
    let survives = harness.reopen(harness.open(clock.clone()), clock).is_some();
    let result = runner.run(&histories(steps), |history| play(harness, survives, &history));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, history)) => {
            let steps: Vec<String> = history.iter().map(|step| format!("{step:?}")).collect();
            panic!("{reason}\n\nthe shortest failing history:\n{}", steps.join("\n"))
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}
