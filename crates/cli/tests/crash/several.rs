//! Three servers on one database. The test kills servers and PostgreSQL while clients call them.

use crate::plan::Plan;
use crate::postgres::{self, Own};
use crate::random::Random;
use crate::rig::{Server, until};
use crate::world::World;
use crate::{block_on, clock, end, judge, start_workers, wait_for_kill};
use std::sync::Arc;

const SERVERS: usize = 3;

#[test]
fn three_servers_on_one_database_keep_the_invariants() {
    // PostgreSQL ends with the thread that started it.
    let mut database = Own::start();
    block_on(kill_any(&mut database));
}

async fn kill_any(database: &mut Own) {
    let plan = Plan::of_several();
    let began = clock::instant();
    // Each server has its own role, to recognise its connections.
    let roles: Vec<String> = (0..SERVERS).map(|n| format!("server_{n}")).collect();
    let make: String = roles.iter().map(|role| format!("CREATE ROLE {role} SUPERUSER LOGIN;")).collect();
    postgres::connect(&database.config()).await.unwrap().batch_execute(&make).await.unwrap();
    let place = database.directory().to_str().unwrap().replace('/', "%2F");
    let start = |role: &String| {
        Server::start_with(&[("TOWLINE_STORE", &format!("postgres://{role}@{place}/postgres"))])
    };
    let mut servers: Vec<Server> = roles.iter().map(|role| apart(|| start(role))).collect();
    let world = Arc::new(World::new(plan, servers.iter().map(Server::url).collect()));
    world.create_queues().await;
    let workers = start_workers(&world);
    let mut random = Random::new(plan.seed, 0);
    for kill in 1..=plan.kills {
        wait_for_kill(&world, kill, &mut random).await;
        // Every fourth kill is of the database, the rest of servers.
        let victim = usize::try_from(random.below(SERVERS as u64)).unwrap();
        if kill.is_multiple_of(4) {
            apart(|| {
                database.kill();
                database.start_again();
            });
            world.history.count("kills of PostgreSQL", 1);
        } else {
            apart(|| servers[victim].kill());
            apart(|| forgotten(database, &roles[victim]));
            world.history.count("kills of servers", 1);
        }
        // Every call in flight is answered or lost before the next kill.
        let closed = world.gate.write().await;
        world.history.restarted();
        if !kill.is_multiple_of(4) {
            apart(|| servers[victim].restart());
        }
        if kill.is_multiple_of(plan.snapshot_every) {
            world.history.observed(world.snapshot().await);
            world.history.count("snapshots compared", 1);
        }
        drop(closed);
        judge(&world);
        assert!(!workers.iter().any(tokio::task::JoinHandle::is_finished), "a client gave up");
    }
    end(&world, workers, began, &servers.iter().collect::<Vec<_>>()).await;
    for what in ["kills of PostgreSQL", "kills of servers", "snapshots compared"] {
        assert!(world.history.figure(what) > 0, "no {what}");
    }
}

/// Waits until PostgreSQL has closed the connections of a killed server.
fn forgotten(database: &Own, role: &str) {
    let config = database.config();
    until("the sessions of a server that was killed are over", || {
        postgres::RUNTIME.block_on(async {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1";
            let client = postgres::connect(&config).await.unwrap();
            client.query_one(sql, &[&role]).await.unwrap().get::<_, i64>(0) == 0
        })
    });
}

/// Blocks this thread. Another runtime may wait on it.
fn apart<T>(act: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(act)
}
