//! The ports that are shipped, against their contract.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;
use towline::{Backend, Embedded, Memory, conformance, testing};
use towline_store::{Clock, ManualClock};

/// All of it, on a clock that is moved.
async fn conforms(backend: impl Into<Backend>, pass: &impl AsyncFn(Duration)) {
    let backend = backend.into();
    conformance::queue(&*backend.queue, pass).await;
    conformance::store(&*backend.store, pass).await;
    conformance::pubsub(&*backend.pubsub).await;
}

fn manual() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(towline_domain::Timestamp(1_800_000_000_000)))
}

async fn advance(clock: &ManualClock, span: Duration) {
    clock.advance(u64::try_from(span.as_millis()).unwrap());
}

#[tokio::test]
async fn memory() {
    let clock = testing::clock();
    conforms(Memory::with_clock(clock.clone()), &async |span: Duration| clock.advance(span)).await;
}

fn embedded_on(directory: &std::path::Path, clock: Arc<dyn Clock>) -> Embedded {
    Embedded::open_with(directory, towline_embedded::Options::default(), clock).unwrap()
}

#[tokio::test]
async fn embedded() {
    let directory = tempfile::tempdir().unwrap();
    let clock = manual();
    let embedded = embedded_on(directory.path(), clock.clone());
    let pass = async |span| advance(&clock, span).await;
    conforms(embedded.clone(), &pass).await;
    let other: Backend = embedded.on_queue("other").unwrap().into();
    conformance::queue(&*other.queue, &pass).await;
}
