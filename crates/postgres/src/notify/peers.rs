//! What servers tell each other through PostgreSQL's `NOTIFY`: in which queues something may be ready now.
//!
//! The server notifies after the commit, on a connection of its own: a transaction that notifies takes a lock of the whole database until
//! it is committed, and no two of them would ever share a sync. What is ready meanwhile is told together. It is a hint:
//! what is lost with a server or a connection is found by asking, as if nobody told anything.

use crate::batch::overlay::Overlay;
use crate::catalog::CatalogCache;
use crate::connection::address::Target;
use crate::connection::session;
use crate::encoding::sql::{queue_id, queue_number};
use crate::error::describe;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::MissedTickBehavior;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Notification};
use towline_domain::{Effects, QueueId, QueueName};
use towline_store::{QueueLookup, StoreError};

/// Queues that one notification names; of more it says only that there are some.
const QUEUES_MAX: usize = 64;
/// Between two notifications, at least: a busy server tells of many batches at once.
const PAUSE: Duration = Duration::from_millis(2);
/// How often a server tells itself something, to know that it hears.
const PROVE_EVERY: Duration = Duration::from_secs(5);
const RECONNECT_MIN: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// Notifications that wait to be read.
const UNREAD_MAX: usize = 1024;

/// Names nothing: the sender wants to hear itself.
const PROOF: &str = "";
const ANYTHING: &str = "*";
/// Said by `enqueue` in SQL.
const INBOX: &str = "inbox";

/// What other servers have brought, as far as it is not taken yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerHints {
    /// Whether notifications arrive at the moment.
    pub hears: bool,
    /// How many items may have become ready in which queue.
    pub ready: BTreeMap<QueueName, u32>,
    /// In any queue: so many that they were not named, or something went by unheard.
    pub anything: bool,
}

/// To be told and heard, by all workers of a server.
#[derive(Debug, Default)]
pub(crate) struct News {
    tell: Mutex<BTreeMap<QueueId, u32>>,
    telling: Notify,
    heard: Mutex<PeerHints>,
    hearing: Notify,
    /// There is something in the inbox.
    pub(crate) inbox: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl News {
    /// Tells peers what a committed batch may mean for receivers that wait there.
    pub(crate) fn committed(&self, overlay: &Overlay, effects: &Effects) {
        let mut ready: BTreeMap<QueueId, u32> = overlay.queues.keys().map(|&id| (id, 1)).collect();
        for (name, queue) in &effects.queues {
            let Some(known) = overlay.by_name(name) else { continue };
            // The end of a lease lets another item be delivered only where something limits that.
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
        let mut tell = lock(&self.tell);
        for (queue, count) in ready {
            let so_far = tell.entry(queue).or_default();
            *so_far = so_far.saturating_add(count);
        }
        drop(tell);
        self.telling.notify_one();
    }

    /// Waits until there is something.
    pub(crate) async fn next(&self) -> PeerHints {
        self.hearing.notified().await;
        let mut heard = lock(&self.heard);
        let hears = heard.hears;
        std::mem::replace(&mut *heard, PeerHints { hears, ..PeerHints::default() })
    }

    fn take_told(&self) -> Option<String> {
        let told = std::mem::take(&mut *lock(&self.tell));
        (!told.is_empty()).then(|| payload(&told))
    }

    fn hear(&self, change: impl FnOnce(&mut PeerHints)) {
        change(&mut lock(&self.heard));
        self.hearing.notify_one();
    }

    pub(crate) fn hears(&self) -> bool {
        lock(&self.heard).hears
    }

    /// This server itself brought something, past those who wait here.
    pub(crate) fn brought_here(&self, queue: &QueueName) {
        self.hear(|heard| {
            let so_far = heard.ready.entry(queue.clone()).or_default();
            *so_far = so_far.saturating_add(1);
        });
    }

    fn heard(&self, payload: &str, catalog: &CatalogCache) {
        if payload == INBOX {
            self.inbox.notify_one();
            return;
        }
        let catalog = catalog.get();
        self.hear(|heard| {
            for part in payload.split(',').filter(|part| !part.is_empty()) {
                // A queue that is not known here is new.
                match read_part(part).and_then(|(id, count)| Some((catalog.by_id(id)?, count))) {
                    Some((queue, count)) => {
                        let so_far = heard.ready.entry(queue.name.clone()).or_default();
                        *so_far = so_far.saturating_add(count);
                    }
                    None => heard.anything = true,
                }
            }
        });
    }
}

fn payload(told: &BTreeMap<QueueId, u32>) -> String {
    if told.len() > QUEUES_MAX {
        return ANYTHING.to_owned();
    }
    let parts: Vec<String> =
        told.iter().map(|(&id, count)| format!("{}:{count}", queue_number(id))).collect();
    parts.join(",")
}

fn read_part(part: &str) -> Option<(QueueId, u32)> {
    let (id, count) = part.split_once(':')?;
    Some((queue_id(id.parse().ok()?), count.parse().ok()?))
}

/// Tells and hears, until it is dropped, over as many connections as it takes.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) target: Target,
    pub(crate) schema: String,
    pub(crate) channel: String,
    pub(crate) news: Arc<News>,
    pub(crate) catalog: Arc<CatalogCache>,
}

pub(crate) async fn run(listener: Listener) {
    let mut pause = RECONNECT_MIN;
    loop {
        match connect(&listener).await {
            Ok((client, unread)) => {
                pause = RECONNECT_MIN;
                let ended = converse(&listener, &client, unread).await;
                tracing::debug!(ended, "notifications of other servers are not heard");
            }
            Err(error) => tracing::debug!(%error, "cannot listen to other servers"),
        }
        listener.news.hear(|heard| heard.hears = false);
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
    // Nobody waits for a hint to be on disk.
    let Listener { schema, channel, .. } = listener;
    let begin = format!(
        "SET synchronous_commit = off; SET application_name = 'towline listens to {schema}'; LISTEN {channel}"
    );
    client.batch_execute(&begin).await.map_err(|error| crate::error::fault(&error))?;
    Ok((client, unread))
}

/// Until the connection fails: why it did.
async fn converse(listener: &Listener, client: &Client, mut unread: mpsc::Receiver<Notification>) -> String {
    let Listener { channel, news, catalog, .. } = listener;
    let own = match client.query_one("SELECT pg_backend_pid()", &[]).await {
        Ok(row) => row.get::<_, i32>(0),
        Err(error) => return describe(&error),
    };
    let mut proven = true;
    let mut prove = tokio::time::interval(PROVE_EVERY);
    let mut pause = tokio::time::interval(PAUSE);
    pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let something = async {
            pause.tick().await;
            news.telling.notified().await;
        };
        let tell = tokio::select! {
            () = something => {
                match news.take_told() {
                    Some(payload) => payload,
                    None => continue,
                }
            }
            notification = unread.recv() => {
                let Some(notification) = notification else { return "the connection ended".to_owned() };
                if notification.process_id() != own {
                    news.heard(notification.payload(), catalog);
                } else if notification.payload() == PROOF && !proven {
                    proven = true;
                    // What went by before this one was not heard.
                    news.hear(|heard| {
                        heard.anything |= !heard.hears;
                        heard.hears = true;
                    });
                }
                continue;
            }
            _ = prove.tick() => {
                if !std::mem::replace(&mut proven, false) {
                    return format!("nothing was heard for {PROVE_EVERY:?}");
                }
                PROOF.to_owned()
            }
        };
        let parameters: [&(dyn ToSql + Sync); 2] = [channel, &tell];
        let told = client.execute("SELECT pg_notify($1, $2)", &parameters);
        match tokio::time::timeout(PROVE_EVERY, told).await {
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
        let told = BTreeMap::from([(QueueId(3), 7), (QueueId(12), u32::MAX)]);
        assert_eq!(payload(&told), format!("3:7,12:{}", u32::MAX));
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
