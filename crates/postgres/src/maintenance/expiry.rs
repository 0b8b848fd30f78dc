//! Removes expired key-value records and old tallies. Reads hide them already, so this only frees space.

use crate::clock::SteadyClock;
use crate::encoding::sql::millis;
use crate::error::Failure;
use crate::read::Reader;
use crate::statements::query;
use std::sync::Arc;
use std::time::Duration;
use towline_domain::limits;

/// How many rows of a table one transaction removes.
const REMOVED_MAX: i64 = 1000;
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Runs until it is dropped.
pub(crate) async fn run(reader: Reader, clock: Arc<SteadyClock>) {
    loop {
        match remove(&reader, &clock).await {
            // The limit was reached, so there may be more.
            Ok(removed) if removed == REMOVED_MAX.cast_unsigned() => tokio::task::yield_now().await,
            Ok(_) => tokio::time::sleep(CHECK_INTERVAL).await,
            Err(failure) => {
                tracing::debug!(?failure, "cannot remove expired records and tallies");
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        }
    }
}

async fn remove(reader: &Reader, clock: &SteadyClock) -> Result<u64, Failure> {
    let client = reader.client().await?;
    let remove = client.prepare_cached(query!("expire_kv")).await?;
    let until = clock.present().map(millis);
    let records = client.execute(&remove, &[&until, &REMOVED_MAX]).await?;
    let remove = client.prepare_cached(query!("expire_tallies")).await?;
    let kept = limits::TALLY_KEPT.0.cast_signed();
    let tallies = client.execute(&remove, &[&until, &REMOVED_MAX, &kept]).await?;
    Ok(records.max(tallies))
}
