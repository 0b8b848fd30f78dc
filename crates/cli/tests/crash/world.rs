//! What all clients share: the addresses of the servers, the history, and whether to continue.

use crate::history::{Called, History};
use crate::plan::Plan;
use crate::wire;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::RwLock;
use towline_api::ItemFilter;
use towline_api::client::ItemQuery;
use towline_api::{Action, Client, Format, ItemShown, OrderBody, PolicyBody, PutQueue, QueueShown, Settled};
use towline_conformance::invariants::Snapshot;
use towline_domain::change::Answer;
use towline_domain::{CountKind, Counts, Millis};
use towline_store::{Operation, Reply};

/// Queues in priority order and in fifo order, with their leases and retries.
pub const QUEUES: [(&str, Millis, u32); 2] = [("urgent", Millis(1000), 3), ("orderly", Millis(600), 2)];

pub struct World {
    pub plan: Plan,
    pub history: History,
    /// The addresses of all servers. Each client uses one.
    urls: Vec<String>,
    /// Clients hold it for reading during each call. A writer knows that no call is in flight.
    pub gate: RwLock<()>,
    /// How many items may have been submitted so far.
    pub allowance: AtomicU64,
    pub submitted: AtomicU64,
    /// Set at the end: no more submits and no more faults, only finish.
    pub draining: AtomicBool,
    pub done: AtomicBool,
    /// Calls with leases that any client may repeat.
    pub used: Mutex<Vec<Action>>,
}

impl World {
    pub fn new(plan: Plan, urls: Vec<String>) -> World {
        World {
            plan,
            history: History::default(),
            urls,
            gate: RwLock::new(()),
            allowance: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            done: AtomicBool::new(false),
            used: Mutex::new(Vec::new()),
        }
    }

    /// A client that repeats nothing: the test itself repeats lost calls.
    pub fn client(&self, format: Format) -> Client {
        self.client_of(0, format)
    }

    /// A client of the server with this number, modulo the number of servers.
    pub fn client_of(&self, server: u64, format: Format) -> Client {
        let at = usize::try_from(server).unwrap() % self.urls.len();
        Client::new(&self.urls[at]).unwrap().format(format).retry_for(Duration::ZERO)
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    pub async fn create_queues(&self) {
        let client = self.client(Format::Json);
        for (name, visibility, retries) in QUEUES {
            let policy = PolicyBody {
                visibility_timeout: Some(visibility.into()),
                max_retries: Some(i64::from(retries)),
                order: (name == "orderly").then(|| OrderBody::Name("fifo".to_owned())),
                ..PolicyBody::default()
            };
            let put = PutQueue { policy, ..PutQueue::default() };
            let (schema, wanted) = put.clone().into_domain().unwrap();
            let create = Operation::CreateQueue {
                queue: wire::queue_name(name),
                schema: Box::new(schema),
                policy: Box::new(wanted),
            };
            let read = |shown: &QueueShown| {
                vec![Ok(Reply::Answer(Answer::Queue(Box::new(wire::queue(shown).queue))))]
            };
            let called = self.history.call(vec![create], None, client.put_queue(name, &put), read).await;
            assert!(matches!(called, Called::Answered(_)), "queue {name} was not made");
        }
    }

    /// Everything that the servers show when nothing changes any more. The caller blocks all clients.
    pub async fn snapshot(&self) -> Snapshot {
        let client = self.client(Format::MessagePack);
        // Only leases can still lapse.
        for _ in 0..100 {
            let snapshot = self.read(&client).await;
            let again: Vec<Counts> = self.queues(&client).await.iter().map(|view| view.counts).collect();
            let agrees = snapshot.queues.iter().zip(&again).all(|(view, again)| {
                let listed = counted(&snapshot, &view.queue.name);
                view.counts == *again && view.counts == listed
            });
            if agrees {
                return snapshot;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // The checker reports a disagreement.
        self.read(&client).await
    }

    async fn queues(&self, client: &Client) -> Vec<towline_store::QueueView> {
        client.queues(None).await.unwrap().queues.iter().map(wire::queue).collect()
    }

    async fn read(&self, client: &Client) -> Snapshot {
        let queues = self.queues(client).await;
        let mut items = Vec::new();
        for (queue, ..) in QUEUES {
            items.extend(pages(client, queue, None, Some("payload,state_blob,metadata,parameters")).await);
        }
        let items = items.into_iter().map(wire::shown_item).collect();
        Snapshot { now: crate::clock::now(), queues, items }
    }

    pub async fn resume_paused(&self) {
        let client = self.client(Format::Json);
        for (queue, ..) in QUEUES {
            for item in pages(&client, queue, Some("paused"), None).await {
                let id = item.id.into_domain("id").unwrap();
                let state = |answer: &Settled| {
                    let state = wire::item_state(answer.state.as_deref().unwrap());
                    vec![Ok(Reply::Answer(Answer::State(state)))]
                };
                let resume = vec![Operation::Resume { id }];
                self.history.call(resume, Some(id), client.resume_item(id), state).await;
            }
        }
    }

    /// Unfinished items by the servers' own counts.
    pub async fn unfinished(&self) -> u64 {
        let views = self.queues(&self.client(Format::Json)).await;
        views.iter().map(|view| view.counts.unfinished()).sum()
    }
}

/// All items, to the last page. A page may be empty and still have a next one.
async fn pages(client: &Client, queue: &str, state: Option<&str>, fields: Option<&str>) -> Vec<ItemShown> {
    let (state, fields) = (state.map(str::to_owned), fields.map(str::to_owned));
    let filter = ItemFilter { state, ..ItemFilter::default() };
    let mut query = ItemQuery { filter, limit: Some(1000), fields, ..ItemQuery::default() };
    let mut items = Vec::new();
    loop {
        let page = client.items(Some(queue), &query).await.unwrap();
        items.extend(page.items);
        query.cursor = page.next;
        if query.cursor.is_none() {
            return items;
        }
    }
}

fn counted(snapshot: &Snapshot, queue: &towline_domain::QueueName) -> Counts {
    let mut counts = Counts::default();
    for stored in snapshot.items.iter().filter(|stored| stored.queue == *queue) {
        *match stored.item.head.count_kind(snapshot.now) {
            CountKind::Pending => &mut counts.pending,
            CountKind::Scheduled => &mut counts.scheduled,
            CountKind::Processing => &mut counts.processing,
            CountKind::Paused => &mut counts.paused,
            CountKind::Completed => &mut counts.completed,
            CountKind::Failed => &mut counts.failed,
        } += 1;
    }
    counts
}
