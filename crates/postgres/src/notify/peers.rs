//! Peer hints: servers notify each other with PostgreSQL's `NOTIFY` of queues in which items may be ready, and of items
//! that ended.
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
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::MissedTickBehavior;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Notification};
use towline_domain::{Effects, ItemId, QueueId};
use towline_store::{Operation, PeerHints, QueueLookup, StoreError};

/// How many queues one notification names. With more, it names none and sends [`ANYTHING`].
const QUEUES_MAX: usize = 64;
/// How many items that left their queue one notification names. With more, it names their queues.
const LEFT_MAX: usize = 64;
/// How many such items wait to be taken. With more, the hint is that anything may have changed.
const LEFT_INCOMING_MAX: usize = 64 * LEFT_MAX;
/// Minimum time between two notifications.
const PAUSE: Duration = Duration::from_millis(2);
/// Minimum time between two notifications of items that left their queue. It is longer than [`PAUSE`]: a notification
/// for each commit would cost more than the delay is worth.
const LEFT_PAUSE: Duration = Duration::from_millis(50);
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

/// Marks the id of an item that left its queue. A queue number without a count: items that are not named left that queue.
const LEFT_MARK: char = '=';

/// The hints that this server has not sent yet.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outgoing {
    /// How many items may have become ready in each queue.
    ready: BTreeMap<QueueId, u32>,
    left: LeftItems,
}

/// Items that ended, or moved to another queue.
#[derive(Debug, Default, PartialEq, Eq)]
struct LeftItems {
    /// At most [`LEFT_MAX`].
    ids: BTreeSet<ItemId>,
    /// The queues of `ids`.
    queues: BTreeSet<QueueId>,
    /// Queues that more items left than are named.
    unnamed: BTreeSet<QueueId>,
}

impl LeftItems {
    fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.unnamed.is_empty()
    }

    fn add(&mut self, ids: impl Iterator<Item = ItemId>, queues: impl Iterator<Item = QueueId>) {
        self.ids.extend(ids.take(LEFT_MAX + 1));
        self.queues.extend(queues);
        if self.ids.len() > LEFT_MAX {
            self.ids.clear();
            self.unnamed.append(&mut self.queues);
        }
    }
}

/// Hints to send and hints that arrived. The workers of a server share it.
#[derive(Debug, Default)]
pub(crate) struct HintExchange {
    outgoing: Mutex<Outgoing>,
    outgoing_added: Notify,
    left_added: Notify,
    incoming: Mutex<PeerHints>,
    incoming_changed: Notify,
    /// The inbox has new entries.
    pub(crate) inbox: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl HintExchange {
    /// Adds hints of the items that a committed batch may have made deliverable, and of those that ended.
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
        let queues = effects.queues.iter().filter(|(_, queue)| queue.left > 0);
        let queues = queues.filter_map(|(name, _)| Some(overlay.by_name(name)?.id));
        // The effects do not list the items of a deleted queue.
        let deleted = overlay.queues.iter().filter(|(_, queue)| queue.is_none()).map(|(&id, _)| id);
        let mut outgoing = lock(&self.outgoing);
        outgoing.left.add(effects.ended.iter().chain(&effects.moved).copied(), queues);
        outgoing.left.unnamed.extend(deleted);
        if !outgoing.left.is_empty() {
            self.left_added.notify_one();
        }
        if ready.is_empty() {
            return;
        }
        for (queue, count) in ready {
            let so_far = outgoing.ready.entry(queue).or_default();
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

    fn take_ready(&self) -> Option<String> {
        let ready = std::mem::take(&mut lock(&self.outgoing).ready);
        (!ready.is_empty()).then(|| payload(&Outgoing { ready, left: LeftItems::default() }))
    }

    fn take_outgoing(&self) -> Option<String> {
        let outgoing = std::mem::take(&mut *lock(&self.outgoing));
        (outgoing != Outgoing::default()).then(|| payload(&outgoing))
    }

    fn change_incoming(&self, change: impl FnOnce(&mut PeerHints)) {
        change(&mut lock(&self.incoming));
        self.incoming_changed.notify_one();
    }

    pub(crate) fn is_listening(&self) -> bool {
        lock(&self.incoming).listening
    }

    /// Adds hints for this server itself: it submitted items from the inbox, which wakes no caller of its broker.
    pub(crate) fn submitted_from_inbox(&self, operations: &[Operation], effects: &Effects) {
        self.change_incoming(|incoming| {
            for operation in operations {
                if let Operation::Submit { queue, .. } = operation {
                    let so_far = incoming.ready.entry(queue.clone()).or_default();
                    *so_far = so_far.saturating_add(1);
                }
            }
            effects.ended.iter().chain(&effects.moved).for_each(|&id| add_left(incoming, id));
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
                let name = |id| catalog.by_id(id).map(|queue| queue.name.clone());
                match read_part(part) {
                    Some(HintPart::Left(id)) => add_left(incoming, id),
                    Some(HintPart::LeftUnnamed(queue)) => match name(queue) {
                        Some(queue) => drop(incoming.left_unnamed.insert(queue)),
                        None => incoming.anything = true,
                    },
                    Some(HintPart::Ready(queue, count)) => match name(queue) {
                        Some(queue) => {
                            let so_far = incoming.ready.entry(queue).or_default();
                            *so_far = so_far.saturating_add(count);
                        }
                        // A queue that this server does not know is new.
                        None => incoming.anything = true,
                    },
                    None => incoming.anything = true,
                }
            }
        });
    }
}

fn add_left(incoming: &mut PeerHints, id: ItemId) {
    if incoming.left.len() < LEFT_INCOMING_MAX {
        incoming.left.insert(id);
    } else {
        incoming.anything = true;
    }
}

fn payload(Outgoing { ready, left }: &Outgoing) -> String {
    if ready.len() > QUEUES_MAX || left.unnamed.len() > QUEUES_MAX {
        return ANYTHING.to_owned();
    }
    let ready = ready.iter().map(|(&id, count)| format!("{}:{count}", queue_number(id)));
    let named = left.ids.iter().map(|id| format!("{LEFT_MARK}{}", id.0.simple()));
    let unnamed = left.unnamed.iter().map(|&id| queue_number(id).to_string());
    ready.chain(named).chain(unnamed).collect::<Vec<_>>().join(",")
}

/// One part of a notification.
#[derive(Debug, PartialEq, Eq)]
enum HintPart {
    Ready(QueueId, u32),
    Left(ItemId),
    LeftUnnamed(QueueId),
}

fn read_part(part: &str) -> Option<HintPart> {
    if let Some(id) = part.strip_prefix(LEFT_MARK) {
        return Some(HintPart::Left(id.parse().ok()?));
    }
    match part.split_once(':') {
        Some((id, count)) => Some(HintPart::Ready(queue_id(id.parse().ok()?), count.parse().ok()?)),
        None => Some(HintPart::LeftUnnamed(queue_id(part.parse().ok()?))),
    }
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
    let mut left_pause = tokio::time::interval(LEFT_PAUSE);
    left_pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let has_outgoing = async {
            pause.tick().await;
            exchange.outgoing_added.notified().await;
        };
        let has_left = async {
            left_pause.tick().await;
            exchange.left_added.notified().await;
        };
        let payload = tokio::select! {
            () = has_outgoing => {
                match exchange.take_ready() {
                    Some(payload) => payload,
                    None => continue,
                }
            }
            () = has_left => {
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
        let ready = BTreeMap::from([(QueueId(3), 7), (QueueId(12), u32::MAX)]);
        let mut left = LeftItems { unnamed: BTreeSet::from([QueueId(5)]), ..LeftItems::default() };
        left.add([item(1)].into_iter(), [QueueId(4)].into_iter());
        let written = payload(&Outgoing { ready, left });
        assert_eq!(written, format!("3:7,12:{},=00000000000000000000000000000001,5", u32::MAX));
        let read: Vec<_> = written.split(',').map(|part| read_part(part).unwrap()).collect();
        let (one, other) = (HintPart::Ready(QueueId(3), 7), HintPart::Ready(QueueId(12), u32::MAX));
        assert_eq!(read, [one, other, HintPart::Left(item(1)), HintPart::LeftUnnamed(QueueId(5))]);
        for nonsense in ["", "3:", ":3", "x:1", "1:-1", "=", "=7", "x", ANYTHING] {
            assert_eq!(read_part(nonsense), None, "{nonsense:?}");
        }
        let queues = || (0..64).map(|n| QueueId(u32::MAX / 2 - n));
        let ids = (0..64).map(|n| item(u128::MAX - n)).collect();
        let left = LeftItems { ids, queues: BTreeSet::new(), unnamed: queues().collect() };
        let longest = Outgoing { ready: queues().map(|id| (id, u32::MAX)).collect(), left };
        // PostgreSQL refuses 8,000 bytes.
        assert!(payload(&longest).len() < 5000);
        let many = (0..65).map(|n| (QueueId(n), 1)).collect();
        assert_eq!(payload(&Outgoing { ready: many, left: LeftItems::default() }), ANYTHING);
    }

    fn item(number: u128) -> ItemId {
        ItemId(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn more_items_than_one_notification_names_are_hinted_by_their_queues() {
        let mut left = LeftItems::default();
        left.add((0..64).map(item), [QueueId(1), QueueId(2)].into_iter());
        assert_eq!((left.ids.len(), left.unnamed.len()), (64, 0));
        left.add([item(64)].into_iter(), [QueueId(3)].into_iter());
        assert_eq!((left.ids.len(), left.unnamed.len()), (0, 3));
        let mut incoming = PeerHints::default();
        (0..5000).for_each(|number| add_left(&mut incoming, item(number)));
        assert!(incoming.left.len() == LEFT_INCOMING_MAX && incoming.anything);
    }
}
