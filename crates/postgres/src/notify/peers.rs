//! Peer hints: servers notify each other with PostgreSQL's `NOTIFY` of queues in which items may be ready.
//!
//! A server notifies after the commit, on a separate connection. A transaction that notifies holds a lock of the whole
//! database until it is committed, so two such commits could not share a sync. One notification covers all batches since
//! the one before. A hint may be lost with a server or a connection: the receivers then find the items by polling.

use crate::batch::overlay::Overlay;
use crate::catalog::CatalogCache;
use crate::connection::address::Target;
use crate::connection::session;
use crate::encoding::sql::{queue_id, queue_number};
use crate::error::describe;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::MissedTickBehavior;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Notification};
use towline_domain::{Effects, QueueId, QueueName};
use towline_store::{QueueLookup, StoreError};

/// How many queues one notification names. With more, it names none and sends [`ANYTHING`].
const QUEUES_MAX: usize = 64;
/// Minimum time between two notifications.
const PAUSE: Duration = Duration::from_millis(2);
/// How often a server notifies itself, to check that notifications arrive.
const PROVE_EVERY: Duration = Duration::from_secs(5);
const RECONNECT_MIN: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// How many notifications may wait to be read.
const UNREAD_MAX: usize = 1024;

/// The payload of a server's notification to itself.
const PROOF: &str = "";
const ANYTHING: &str = "*";
/// Sent by `enqueue` in SQL.
const INBOX: &str = "inbox";

/// The hints of other servers that were not taken yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerHints {
    /// Whether notifications arrive at the moment.
    pub listening: bool,
    /// How many items may have become ready in each queue.
    pub ready: BTreeMap<QueueName, u32>,
    /// Items may be ready in any queue: too many queues to name, or notifications were missed.
    pub anything: bool,
}

/// Hints to send and hints that arrived. The workers of a server share it.
#[derive(Debug, Default)]
pub(crate) struct HintExchange {
    outgoing: Mutex<BTreeMap<QueueId, u32>>,
    outgoing_added: Notify,
    incoming: Mutex<PeerHints>,
    incoming_changed: Notify,
    /// The inbox has new entries.
    pub(crate) inbox: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl HintExchange {
    /// Adds hints of the items that a committed batch may have made deliverable.
    pub(crate) fn committed(&self, overlay: &Overlay, effects: &Effects) {
        let mut ready: BTreeMap<QueueId, u32> = overlay.queues.keys().map(|&id| (id, 1)).collect();
        for (name, queue) in &effects.queues {
            let Some(known) = overlay.by_name(name) else { continue };
            // The end of a lease makes another item deliverable only if the queue limits concurrency.
            let flow = &known.policy.flow;
            let freed = match (flow.limits_keys(), flow.concurrency) {
                (true, _) => queue.key_leases_ended.max(queue.leases_ended),
                (false, Some(_)) => queue.leases_ended,
                (false, None) => 0,
            };
            let count = queue.ready_count().saturating_add(freed);
            if count > 0 {
                let so_far = ready.entry(known.id).or_default();
                *so_far = so_far.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
            }
        }
        if ready.is_empty() {
            return;
        }
        let mut outgoing = lock(&self.outgoing);
        for (queue, count) in ready {
            let so_far = outgoing.entry(queue).or_default();
            *so_far = so_far.saturating_add(count);
        }
        drop(outgoing);
        self.outgoing_added.notify_one();
    }

    /// Waits for hints, or for a change of `listening`.
    pub(crate) async fn next(&self) -> PeerHints {
        self.incoming_changed.notified().await;
        let mut incoming = lock(&self.incoming);
        let listening = incoming.listening;
        std::mem::replace(&mut *incoming, PeerHints { listening, ..PeerHints::default() })
    }

    fn take_outgoing(&self) -> Option<String> {
        let outgoing = std::mem::take(&mut *lock(&self.outgoing));
        (!outgoing.is_empty()).then(|| payload(&outgoing))
    }

    fn change_incoming(&self, change: impl FnOnce(&mut PeerHints)) {
        change(&mut lock(&self.incoming));
        self.incoming_changed.notify_one();
    }

    pub(crate) fn is_listening(&self) -> bool {
        lock(&self.incoming).listening
    }

    /// Adds a hint for this server itself: it submitted an item from the inbox, which wakes no receiver of its broker.
    pub(crate) fn submitted_from_inbox(&self, queue: &QueueName) {
        self.change_incoming(|incoming| {
            let so_far = incoming.ready.entry(queue.clone()).or_default();
            *so_far = so_far.saturating_add(1);
        });
    }

    fn receive(&self, payload: &str, catalog: &CatalogCache) {
        if payload == INBOX {
            self.inbox.notify_one();
            return;
        }
        let catalog = catalog.get();
        self.change_incoming(|incoming| {
            for part in payload.split(',').filter(|part| !part.is_empty()) {
                // A queue that this server does not know is new.
                match read_part(part).and_then(|(id, count)| Some((catalog.by_id(id)?, count))) {
                    Some((queue, count)) => {
                        let so_far = incoming.ready.entry(queue.name.clone()).or_default();
                        *so_far = so_far.saturating_add(count);
                    }
                    None => incoming.anything = true,
                }
            }
        });
    }
}

fn payload(hints: &BTreeMap<QueueId, u32>) -> String {
    if hints.len() > QUEUES_MAX {
        return ANYTHING.to_owned();
    }
    let parts: Vec<String> =
        hints.iter().map(|(&id, count)| format!("{}:{count}", queue_number(id))).collect();
    parts.join(",")
}

fn read_part(part: &str) -> Option<(QueueId, u32)> {
    let (id, count) = part.split_once(':')?;
    Some((queue_id(id.parse().ok()?), count.parse().ok()?))
}

/// Sends and receives notifications. Connects again when a connection fails.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) target: Target,
    pub(crate) schema: String,
    pub(crate) channel: String,
    pub(crate) exchange: Arc<HintExchange>,
    pub(crate) catalog: Arc<CatalogCache>,
}

pub(crate) async fn run(listener: Listener) {
    let mut pause = RECONNECT_MIN;
    loop {
        match connect(&listener).await {
            Ok((client, unread)) => {
                pause = RECONNECT_MIN;
                let ended = exchange_hints(&listener, &client, unread).await;
                tracing::debug!(ended, "notifications of other servers do not arrive; will connect again");
            }
            Err(error) => tracing::debug!(%error, "cannot listen to other servers"),
        }
        listener.exchange.change_incoming(|incoming| incoming.listening = false);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_MAX);
    }
}

async fn connect(listener: &Listener) -> Result<(Client, mpsc::Receiver<Notification>), StoreError> {
    let (client, mut connection) = session::connection(&listener.target).await?;
    let (sender, unread) = mpsc::channel(UNREAD_MAX);
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message
                && sender.send(notification).await.is_err()
            {
                return;
            }
        }
    });
    // A hint need not be durable.
    let Listener { schema, channel, .. } = listener;
    let begin = format!(
        "SET synchronous_commit = off; SET application_name = 'towline listens to {schema}'; LISTEN {channel}"
    );
    client.batch_execute(&begin).await.map_err(|error| crate::error::fault(&error))?;
    Ok((client, unread))
}

/// Runs until the connection fails. Returns why it failed.
async fn exchange_hints(
    listener: &Listener,
    client: &Client,
    mut unread: mpsc::Receiver<Notification>,
) -> String {
    let Listener { channel, exchange, catalog, .. } = listener;
    let own = match client.query_one("SELECT pg_backend_pid()", &[]).await {
        Ok(row) => row.get::<_, i32>(0),
        Err(error) => return describe(&error),
    };
    let mut proven = true;
    let mut prove = tokio::time::interval(PROVE_EVERY);
    let mut pause = tokio::time::interval(PAUSE);
    pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let has_outgoing = async {
            pause.tick().await;
            exchange.outgoing_added.notified().await;
        };
        let payload = tokio::select! {
            () = has_outgoing => {
                match exchange.take_outgoing() {
                    Some(payload) => payload,
                    None => continue,
                }
            }
            notification = unread.recv() => {
                let Some(notification) = notification else { return "the connection ended".to_owned() };
                if notification.process_id() != own {
                    exchange.receive(notification.payload(), catalog);
                } else if notification.payload() == PROOF && !proven {
                    proven = true;
                    // Notifications before this one may have been missed.
                    exchange.change_incoming(|incoming| {
                        incoming.anything |= !incoming.listening;
                        incoming.listening = true;
                    });
                }
                continue;
            }
            _ = prove.tick() => {
                if !std::mem::replace(&mut proven, false) {
                    return format!("no notification arrived for {PROVE_EVERY:?}");
                }
                PROOF.to_owned()
            }
        };
        let parameters: [&(dyn ToSql + Sync); 2] = [channel, &payload];
        let sent = client.execute("SELECT pg_notify($1, $2)", &parameters);
        match tokio::time::timeout(PROVE_EVERY, sent).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return describe(&error),
            Err(_) => return format!("no answer for {PROVE_EVERY:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_names_queues_by_number_and_is_bounded() {
        let hints = BTreeMap::from([(QueueId(3), 7), (QueueId(12), u32::MAX)]);
        assert_eq!(payload(&hints), format!("3:7,12:{}", u32::MAX));
        assert_eq!(read_part("12:4294967295"), Some((QueueId(12), u32::MAX)));
        for nonsense in ["", "3", "3:", ":3", "x:1", "1:-1", ANYTHING] {
            assert_eq!(read_part(nonsense), None, "{nonsense:?}");
        }
        let longest: BTreeMap<QueueId, u32> =
            (0..64).map(|n| (QueueId(u32::MAX / 2 - n), u32::MAX)).collect();
        // PostgreSQL refuses 8,000 bytes.
        assert!(payload(&longest).len() < 2000);
        let many = (0..65).map(|n| (QueueId(n), 1)).collect();
        assert_eq!(payload(&many), ANYTHING);
    }
}
