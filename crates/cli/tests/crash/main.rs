//! The real server keeps every invariant although it is killed again and again.
//!
//! Clients record what they sent and what was answered or lost. The invariant checker judges these histories,
//! and what the server shows after restarts. `TOWLINE_SOAK=1` runs longer, `TOWLINE_SEED` changes the seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests")]

mod clock;
mod history;
mod plan;
mod planted;
#[path = "../../../postgres/tests/store/server.rs"]
mod postgres;
mod random;
#[path = "../rig/mod.rs"]
mod rig;
mod schedules;
mod several;
mod wire;
mod worker;
mod world;

use plan::Plan;
use random::Random;
use rig::Server;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use worker::Worker;
use world::World;

/// Without further kills, all items must end within this time.
const DRAIN_MAX: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_again_and_again_keeps_the_invariants() {
    kill_again_and_again(Server::start()).await;
}

#[test]
fn a_server_on_postgresql_keeps_the_invariants() {
    // PostgreSQL ends with the thread that started it, so do not use a thread of the runtime.
    let postgres = postgres::Own::start();
    let place = postgres.directory().to_str().unwrap().replace('/', "%2F");
    let store = format!("postgres://towline@{place}/postgres");
    block_on(kill_again_and_again(Server::start_with(&[("TOWLINE_STORE", &store)])));
}

/// Runs on this thread, with worker threads.
fn block_on(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(test);
}

async fn kill_again_and_again(mut server: Server) {
    let plan = Plan::new();
    let began = clock::instant();
    let world = Arc::new(World::new(plan, vec![server.url()]));
    world.create_queues().await;
    let workers = start_workers(&world);
    let mut random = Random::new(plan.seed, 0);
    for kill in 1..=plan.kills {
        wait_for_kill(&world, kill, &mut random).await;
        server.kill();
        // Every call in flight is lost before the next kill.
        let closed = world.gate.write().await;
        world.history.restarted();
        world.history.count("kills", 1);
        if kill.is_multiple_of(plan.snapshot_every) {
            server.restart();
            world.history.observed(world.snapshot().await);
            world.history.count("snapshots compared", 1);
            drop(closed);
        } else {
            // The clients keep calling while the server starts.
            drop(closed);
            server.restart();
        }
        judge(&world);
        assert!(!workers.iter().any(tokio::task::JoinHandle::is_finished), "a client gave up");
    }
    let servers = [&server];
    end(&world, workers, began, &servers).await;
}

fn start_workers(world: &Arc<World>) -> Vec<tokio::task::JoinHandle<()>> {
    let start = |name| tokio::spawn(Worker::new(Arc::clone(world), name).run());
    (0..world.plan.clients).map(start).collect()
}

/// Submits are spread over the kills. Each kill comes at a random point of its share.
async fn wait_for_kill(world: &World, kill: u64, random: &mut Random) {
    let share = world.plan.items / (world.plan.kills + 1);
    world.allowance.store(kill * share, Ordering::SeqCst);
    let enough = (kill - 1) * share + share * (10 + random.below(80)) / 100;
    wait_for(|| world.submitted.load(Ordering::SeqCst) >= enough).await;
    tokio::time::sleep(Duration::from_micros(random.below(40_000))).await;
}

/// Submits the rest, waits until all items have ended, and compares everything.
async fn end(
    world: &Arc<World>,
    workers: Vec<tokio::task::JoinHandle<()>>,
    began: std::time::Instant,
    servers: &[&Server],
) {
    let plan = world.plan;
    world.allowance.store(plan.items, Ordering::SeqCst);
    wait_for(|| world.submitted.load(Ordering::SeqCst) + 150 >= plan.items).await;
    let loaded = seconds_since(began);
    drain(world).await;
    for worker in workers {
        worker.await.unwrap();
    }
    world.history.observed(world.snapshot().await);
    judge(world);
    for server in servers {
        assert!(!server.log().contains("panicked"), "{}", server.log());
    }
    println!(
        "{plan:?}: {loaded:.1} s until all was submitted, {:.1} s in all\n{}",
        seconds_since(began),
        world.history.figures()
    );
    // The run must have exercised everything.
    for what in [
        "submits acknowledged",
        "submits whose answer was lost",
        "submits that a key recognised",
        "items received",
        "commits accepted, repetitions among them",
        "settles refused",
        "settles whose answer was lost",
        "settles with stale or foreign leases",
    ] {
        assert!(world.history.figure(what) > 0, "no {what}:\n{}", world.history.figures());
    }
}

/// Stops submits, resumes paused items, and waits until all have ended.
async fn drain(world: &Arc<World>) {
    world.draining.store(true, Ordering::SeqCst);
    let until = clock::instant() + DRAIN_MAX;
    loop {
        world.resume_paused().await;
        let left = world.unfinished().await;
        if left == 0 {
            break;
        }
        assert!(clock::instant() < until, "{left} items did not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.done.store(true, Ordering::SeqCst);
}

#[track_caller]
fn judge(world: &World) {
    let violations = world.history.violations();
    let messages: Vec<String> = violations.iter().take(20).map(ToString::to_string).collect();
    assert!(
        violations.is_empty(),
        "{} invariants violated (seed {}):\n{}\n{}",
        violations.len(),
        world.plan.seed,
        messages.join("\n"),
        world.history.figures()
    );
}

async fn wait_for(met: impl Fn() -> bool) {
    let until = clock::instant() + Duration::from_secs(120);
    while !met() {
        assert!(clock::instant() < until, "the clients make no progress");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn seconds_since(then: std::time::Instant) -> f64 {
    clock::instant().duration_since(then).as_secs_f64()
}
