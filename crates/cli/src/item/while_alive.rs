//! `heartbeat --while-alive`: keeps a lease while the worker that started this process is alive.

use super::parent_process::ParentProcess;
use crate::clock;
use crate::connect::Session;
use crate::exit::Failure;
use crate::output;
use crate::reconnect::is_transient;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use towline_api::{
    Action, Client, ClientError, Code, ItemId, ItemShown, ItemState, Millis, Settled, Timestamp,
};

/// Maximum time between two heartbeats. It keeps leases of a minute or more, however much the clocks differ.
const PACE_MAX: Duration = Duration::from_secs(20);
/// Minimum time between two heartbeats: a third of the shortest possible lease.
const PACE_MIN: Duration = Duration::from_millis(33);
/// Time between two heartbeats when the rest of the lease is unknown, because this clock is ahead of the
/// server's.
const PACE_BLIND: Duration = Duration::from_secs(1);
/// Assumed length of a lease before the first answer: the default visibility timeout.
const UNKNOWN_LEASE: Duration = Duration::from_secs(300);
/// Time between two tries to reach a server that does not answer.
const RETRY_PACE: Duration = Duration::from_millis(500);
const ANSWER_MAX: Duration = Duration::from_secs(10);

pub async fn run(
    session: &Session,
    id: ItemId,
    first: Action,
    heartbeat: Action,
    visibility: Option<Millis>,
    parent: ParentProcess,
) -> Result<(), Failure> {
    tokio::select! {
        biased;
        () = parent.gone() => Ok(()),
        end = keep(session, id, first, heartbeat, visibility) => end,
    }
}

async fn keep(
    session: &Session,
    id: ItemId,
    first: Action,
    heartbeat: Action,
    visibility: Option<Millis>,
) -> Result<(), Failure> {
    let client = &session.client;
    let mut next = first;
    let mut lease =
        LeaseEstimate { until: clock::now() + visibility.map_or(UNKNOWN_LEASE, length), pace: PACE_BLIND };
    let mut reported = false;
    loop {
        let sent = clock::now();
        let answer = timeout(ANSWER_MAX, client.act(next.clone())).await.unwrap_or_else(|_| {
            Err(ClientError::Unreachable { url: client.url().to_owned(), cause: "no answer".to_owned() })
        });
        let pause = match answer.and_then(refused) {
            Ok(settled) => {
                (next, reported) = (heartbeat.clone(), false);
                lease = LeaseEstimate::new(&settled, visibility, sent, clock::wall());
                session.output.json_only(&settled)?;
                lease.pace
            }
            Err(error) if is_transient(&error) && clock::now() < lease.until => {
                if !reported {
                    output::say(format!("{error}; trying again"));
                    reported = true;
                }
                RETRY_PACE.min(lease.pace)
            }
            Err(error) if is_transient(&error) => {
                return Err(Failure::Refused(format!("the lease on item {id} lapsed meanwhile: {error}")));
            }
            Err(error) => return ended(client, id, error, clock::now() < lease.until).await,
        };
        tokio::time::sleep(pause).await;
    }
}

fn length(span: Millis) -> Duration {
    Duration::from_millis(span.0)
}

/// What is known about the lease after a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LeaseEstimate {
    /// By the monotonic clock of this process.
    until: Instant,
    pace: Duration,
}

impl LeaseEstimate {
    fn new(settled: &Settled, visibility: Option<Millis>, sent: Instant, wall: Timestamp) -> LeaseEstimate {
        let deadline =
            settled.lease_expires_at.clone().and_then(|time| time.into_domain("lease_expires_at").ok());
        let rest = deadline.map(|deadline| length(deadline.since(wall))).filter(|rest| !rest.is_zero());
        // Take the shorter one: an item's expiry can end the lease before its visibility timeout.
        match rest.into_iter().chain(visibility.map(length)).min() {
            Some(rest) => LeaseEstimate { until: sent + rest, pace: (rest / 3).clamp(PACE_MIN, PACE_MAX) },
            None => LeaseEstimate { until: sent + UNKNOWN_LEASE, pace: PACE_BLIND },
        }
    }
}

fn refused(settled: Settled) -> Result<Settled, ClientError> {
    match settled.error {
        None => Ok(settled),
        Some(error) => {
            let code = Code::parse(&error.code).unwrap_or(Code::Internal);
            Err(ClientError::Refused(Box::new(towline_api::Problem::new(code, error.message))))
        }
    }
}

/// The server refused the lease. That is fine if the lease holder settled the item.
async fn ended(client: &Client, id: ItemId, error: ClientError, in_time: bool) -> Result<(), Failure> {
    match error.code() {
        Some(Code::AlreadySettled) => Ok(()),
        Some(Code::LeaseLost) if in_time => match client.item(id).await {
            Ok(item) if was_settled(&item) => Ok(()),
            _ => Err(error.into()),
        },
        _ => Err(error.into()),
    }
}

/// Whether the lease holder settled the item, or an operator ended it. Such a lease ends before its deadline.
fn was_settled(item: &ItemShown) -> bool {
    match item.item_state() {
        Some(ItemState::Completed | ItemState::Pending | ItemState::Scheduled | ItemState::Paused) => true,
        Some(ItemState::Failed) => matches!(item.failure.as_deref(), Some("explicit" | "retries_exhausted")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(rest_ms: i64, visibility: Option<u64>) -> (Duration, Duration) {
        let (sent, wall) = (clock::now(), Timestamp(1_000_000));
        let settled = Settled {
            lease_expires_at: Some(Timestamp(1_000_000u64.saturating_add_signed(rest_ms)).into()),
            ..Settled::default()
        };
        let lease = LeaseEstimate::new(&settled, visibility.map(Millis), sent, wall);
        (lease.until - sent, lease.pace)
    }

    #[test]
    fn heartbeats_come_at_a_third_of_the_lease() {
        assert_eq!(lease(30_000, None), (Duration::from_secs(30), Duration::from_secs(10)));
        assert_eq!(lease(30, None).1, PACE_MIN);
        assert_eq!(lease(3_600_000, None), (Duration::from_secs(3600), PACE_MAX));
    }

    #[test]
    fn a_wrong_clock_makes_heartbeats_more_frequent() {
        assert_eq!(lease(-600_000, None), (UNKNOWN_LEASE, PACE_BLIND));
        assert_eq!(lease(-600_000, Some(30_000)).1, Duration::from_secs(10));
        assert_eq!(lease(600_000, Some(30_000)).1, Duration::from_secs(10));
    }
}
