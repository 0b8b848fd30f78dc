//! The queue "jobs", with clients that submit to it and receivers that wait.

use std::time::Duration;
use tokio::task::JoinHandle;
use towline_broker::{Broker, ReceiveRequest};
use towline_domain::command::{Verb, When};
use towline_domain::{
    Adjust, Body, FieldSet, Flow, Item, LeaseCall, Millis, Outcome, Policy, QueueName, Submission,
};
use towline_store::Operation;

/// How long a receiver waits.
pub const SOON: Duration = Duration::from_secs(60);

/// One way in which the lease of an item ends.
pub type End = Box<dyn Fn(&Item) -> Operation>;

pub fn queue() -> QueueName {
    "jobs".parse().unwrap()
}

pub fn create(name: &str, policy: Policy) -> Operation {
    let (schema, policy) = (Box::default(), Box::new(policy));
    Operation::CreateQueue { queue: name.parse().unwrap(), schema, policy }
}

pub fn limit_by_key(limit: u32) -> Flow {
    Flow { concurrency_per_key: Some(limit), ..Flow::default() }
}

pub async fn ok(broker: &Broker, operation: Operation) {
    broker.update(vec![operation]).await.unwrap().pop().unwrap().unwrap();
}

pub async fn submit_with_key(broker: &Broker, key: &str) {
    let body = Body { fairness_key: Some(key.to_owned()), ..Body::default() };
    let submission = Box::new(Submission { body, ..Submission::default() });
    ok(broker, Operation::Submit { queue: queue(), submission }).await;
}

/// For one item.
pub fn request(wait: Duration) -> ReceiveRequest {
    let (queue, fields) = (queue(), FieldSet::NONE);
    ReceiveRequest { queue, max: 1, wait, visibility: None, fields, make_buffers: false }
}

pub fn receive(broker: &Broker) -> JoinHandle<Vec<Item>> {
    let broker = broker.clone();
    tokio::spawn(async move { broker.receive(request(SOON)).await.unwrap().items })
}

pub async fn hold(broker: &Broker) -> Item {
    receive(broker).await.unwrap().pop().unwrap()
}

fn settle(item: &Item, verb: Verb, adjust: Adjust) -> Operation {
    let call = LeaseCall { token: item.head.lease().unwrap().token, verb, adjust };
    Operation::Lease { id: item.head.id, call: Box::new(call) }
}

pub fn commit(item: &Item) -> Operation {
    settle(item, Verb::Commit(Outcome::default()), Adjust::default())
}

/// All operations that end a lease. None of them leaves the item ready in "jobs"; one moves it to the queue "other".
pub fn ends() -> Vec<End> {
    let later = Millis::hours(1);
    let away = Adjust { queue: Some("other".parse().unwrap()), ..Adjust::default() };
    vec![
        Box::new(commit),
        Box::new(|item| settle(item, Verb::Fail { reason: "no".to_owned() }, Adjust::default())),
        Box::new(move |item| {
            let retry = Verb::Retry { error: "later".to_owned(), delay: Some(later), seed: 1 };
            settle(item, retry, Adjust::default())
        }),
        Box::new(move |item| settle(item, Verb::Release { delay: later, counted: true }, Adjust::default())),
        Box::new(move |item| settle(item, Verb::Defer { until: When::After(later) }, Adjust::default())),
        Box::new(move |item| {
            settle(item, Verb::Release { delay: Millis::ZERO, counted: true }, away.clone())
        }),
        Box::new(|item| Operation::Cancel { id: item.head.id, reason: String::new() }),
        Box::new(|item| Operation::Delete { id: item.head.id, force: true }),
    ]
}

/// Lets every task run until it waits. For tests on one thread.
pub async fn run_until_idle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
