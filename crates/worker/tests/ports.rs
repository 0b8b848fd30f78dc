//! The ports that are shipped, against their contract.

use std::time::Duration;
use towline::{Memory, conformance, testing};

#[tokio::test]
async fn memory() {
    let clock = testing::clock();
    let pass = async |span: Duration| clock.advance(span);
    let memory = Memory::with_clock(clock.clone());
    conformance::queue(&*memory.queue, &pass).await;
    conformance::store(&*memory.store, &pass).await;
    conformance::pubsub(&*memory.pubsub).await;
}
