//! The included backends keep the contract of the ports.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod backends;
#[path = "../../postgres/tests/store/server.rs"]
mod postgres;

use backends::{BackendKind, TestBackend};
use std::time::Duration;
use towline::ports::SubmitRequest;
use towline::{conformance, testing};

async fn conforms(kind: BackendKind) {
    let clock = testing::clock();
    let pass = async |span: Duration| clock.advance(span);
    let backend = TestBackend::new(kind, clock.clone()).await;
    conformance::queue(&*backend.ports.queue, &pass).await;
    conformance::store(&*backend.ports.store, &pass).await;
    conformance::pubsub(&*backend.ports.pubsub).await;
    // Items of one queue do not appear in another.
    backend.ports.queue.submit(SubmitRequest::default()).await.unwrap();
    conformance::queue(&*backend.queue("other"), &pass).await;
}

#[tokio::test]
async fn memory() {
    conforms(BackendKind::Memory).await;
}

#[tokio::test]
async fn embedded() {
    conforms(BackendKind::Embedded).await;
}

#[tokio::test]
async fn server() {
    conforms(BackendKind::Server).await;
}

#[tokio::test]
async fn in_postgres() {
    conforms(BackendKind::Postgres).await;
}
