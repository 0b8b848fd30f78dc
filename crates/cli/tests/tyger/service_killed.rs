//! The service's processing loop while workers and server are killed at random. Every result must be right,
//! and no buffer may be left over.

use crate::rig::Server;
use crate::sandbox::{Sandbox, start, wait_for};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const WORKERS: usize = 4;

/// How many items, and how many bytes each has.
fn size() -> (usize, usize) {
    match std::env::var("TOWLINE_SOAK") {
        Ok(_) => (1000, 1 << 20),
        Err(_) => (30, 300_000),
    }
}

fn input(n: usize, bytes: usize) -> Vec<u8> {
    let mut state = n as u64 + 1;
    let next = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as u8
    };
    (0..bytes).map(|_| next(&mut state)).collect()
}

/// What `tr` makes of the input: every byte plus one.
fn result(input: &[u8]) -> Vec<u8> {
    input.iter().map(|byte| byte.wrapping_add(1)).collect()
}

/// Starts the loop again and again, and kills it with its children or alone.
fn worker(sandbox: &Sandbox, number: usize, done: &AtomicBool, kills: &AtomicUsize) {
    let mut dice = number as u64 * 7919 + 13;
    let mut roll = move |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    loop {
        let mut script = sandbox.script("service_loop.sh");
        script.env("REQUESTS_QUEUE_NAME", "requests").process_group(0);
        let mut child = start(script);
        let group = Pid::from_child(&child);
        let last = done.load(Ordering::SeqCst);
        let patience = if last { u64::MAX } else { 400 + roll(1600) };
        let mut waited = 0;
        while child.try_wait().unwrap().is_none() && waited < patience {
            std::thread::sleep(Duration::from_millis(20));
            waited += 20;
        }
        if child.try_wait().unwrap().is_some() {
            // The loop also ends when the server is briefly away.
            let shown = sandbox.tyger(&["queue", "show", "requests"]).output().unwrap().stdout;
            if serde_json::from_slice(&shown).is_ok_and(|queue: Value| queue["state"] == "completed") {
                return;
            }
            continue;
        }
        let killed = if roll(2) == 0 {
            kill_process_group(group, Signal::KILL)
        } else {
            kill_process(group, Signal::KILL)
        };
        killed.unwrap();
        child.wait().unwrap();
        kills.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn every_result_is_right_and_no_buffer_is_left_over() {
    let (items, bytes) = size();
    let sandbox = Sandbox::with(Server::start_with(&[
        ("TOWLINE_COLLECTION_INTERVAL", "1s"),
        ("TOWLINE_COLLECTION_GRACE", "2s"),
        ("TOWLINE_BUFFER_WRITER_TIMEOUT", "5s"),
    ]));
    sandbox.program("bin/load_model", "true");
    sandbox.program("bin/run_inference", r"exec tr '\000-\377' '\001-\377\000'");
    let create = ["queue", "create", "requests", "--input", "data", "--output", "result"];
    sandbox.says(&[&create[..], &["--visibility-timeout", "2s", "--max-retries", "10000"]].concat());
    let (done, kills) = (AtomicBool::new(false), AtomicUsize::new(0));
    let inputs: Vec<String> = (0..items).map(|n| sandbox.buffer(&input(n, bytes))).collect();
    let ids: Vec<String> = std::thread::scope(|scope| {
        for number in 0..WORKERS {
            let (sandbox, done, kills) = (&sandbox, &done, &kills);
            scope.spawn(move || worker(sandbox, number, done, kills));
        }
        let submit = |buffer: &String| {
            sandbox.says(&["queue", "submit", "requests", "--input", &format!("data={buffer}")])
        };
        let ids = inputs.iter().map(submit).collect();
        sandbox.says(&["queue", "close", "requests"]);
        // Kill until most items are done, then let the workers finish.
        crash_until(&sandbox, items * 9 / 10);
        done.store(true, Ordering::SeqCst);
        ids
    });
    assert!(kills.load(Ordering::SeqCst) >= WORKERS, "too few workers were killed");
    let mut outputs = BTreeSet::new();
    for (n, id) in ids.iter().enumerate() {
        let item = sandbox.json(&["queue", "item", "show", id]);
        assert_eq!(item["state"], "completed", "{item}");
        let output = item["outputs"]["result"].as_str().unwrap().to_owned();
        assert!(sandbox.read(&output) == result(&input(n, bytes)), "the result of item {n} is wrong: {item}");
        outputs.insert(output);
    }
    // After the grace time only inputs and results are left.
    let wanted: BTreeSet<String> = outputs.into_iter().chain(inputs).collect();
    wait_for("the buffers of attempts that were killed to go", || {
        let listed = sandbox.json(&["buffer", "list", "-o", "json"]);
        let listed =
            listed.as_array().unwrap().iter().map(|buffer| buffer["id"].as_str().unwrap().to_owned());
        (listed.collect::<BTreeSet<String>>() == wanted).then_some(())
    });
}

/// Waits until this many items are completed, as long as there is progress. Kills the server now and then.
fn crash_until(sandbox: &Sandbox, wanted: usize) {
    let (mut last, mut idle) = (0, 0);
    for round in 1u32.. {
        if round.is_multiple_of(20) {
            sandbox.crash();
        }
        let completed =
            sandbox.json(&["queue", "counts", "requests"])["completed"].as_u64().unwrap() as usize;
        if completed >= wanted {
            return;
        }
        idle = if completed > last { 0 } else { idle + 1 };
        last = completed;
        assert!(idle < 600, "stuck at {completed} of {wanted}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
