//! The ports that are shipped, against their contract.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../../postgres/tests/store/server.rs"]
mod postgres;
mod rig;

use rig::{Kind, Rig};
use std::time::Duration;
use towline::{conformance, testing};

async fn conforms(kind: Kind) {
    let clock = testing::clock();
    let pass = async |span: Duration| clock.advance(span);
    let rig = Rig::new(kind, clock.clone()).await;
    conformance::queue(&*rig.backend.queue, &pass).await;
    conformance::store(&*rig.backend.store, &pass).await;
    conformance::pubsub(&*rig.backend.pubsub).await;
    // Another queue has nothing to do with the first.
    rig.backend.queue.push(towline::ports::Push::default()).await.unwrap();
    conformance::queue(&*rig.queue("other"), &pass).await;
}

#[tokio::test]
async fn memory() {
    conforms(Kind::Memory).await;
}

#[tokio::test]
async fn embedded() {
    conforms(Kind::Embedded).await;
}

#[tokio::test]
async fn server() {
    conforms(Kind::Server).await;
}

#[tokio::test]
async fn in_postgres() {
    conforms(Kind::Postgres).await;
}
