//! Submits that wait for room in a full queue.
#![allow(clippy::unwrap_used, reason = "tests")]

mod lost_answers;

use lost_answers::{LostAnswers, losing_answers};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use towline_broker::{Broker, ReceiveRequest, Sharing, SteadyClock};
use towline_conformance::{InterceptedStore, ReferenceStore};
use towline_domain::change::Answer;
use towline_domain::{FieldSet, ItemId, Policy, QueueName, Refusal, Schema, Submission};
use towline_store::{Answered, Filter, Operation, OperationError, Reply, Store as _};

const SOON: Duration = Duration::from_secs(60);

fn queue() -> QueueName {
    "jobs".parse().unwrap()
}

fn submission() -> Operation {
    Operation::Submit { queue: queue(), submission: Box::new(Submission::default()) }
}

/// A broker with a queue that has room for this number of items.
async fn full_at(depth: u64) -> Broker {
    start(depth).await.0
}

async fn start(depth: u64) -> (Broker, Arc<InterceptedStore<LostAnswers>>) {
    let clock = Arc::new(SteadyClock::new());
    let store = Arc::new(losing_answers(ReferenceStore::new(clock.clone(), 1)));
    let broker = Broker::start(store.clone(), clock, None, Sharing::Alone);
    let policy = Policy { depth_limit: Some(depth), ..Policy::default() };
    let create = Operation::CreateQueue {
        queue: queue(),
        schema: Box::new(Schema::default()),
        policy: Box::new(policy),
    };
    broker.update(vec![create]).await.unwrap().pop().unwrap().unwrap();
    (broker, store)
}

fn submit(broker: &Broker, count: usize, wait: Duration) -> JoinHandle<Vec<Answered>> {
    let broker = broker.clone();
    let batch = (0..count).map(|_| submission()).collect();
    tokio::spawn(async move { broker.submit(&queue(), batch, wait, || Some(())).await.unwrap() })
}

fn ids(answers: &[Answered]) -> Vec<ItemId> {
    let id = |answer: &Answered| match answer {
        Ok(Reply::Answer(Answer::Submitted { id, created: true })) => *id,
        other => panic!("{other:?}"),
    };
    answers.iter().map(id).collect()
}

async fn receive(broker: &Broker) -> Option<ItemId> {
    let request = ReceiveRequest {
        queue: queue(),
        max: 1,
        wait: SOON,
        visibility: None,
        fields: FieldSet::NONE,
        make_buffers: false,
    };
    broker.receive(request).await.unwrap().items.first().map(|item| item.head.id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_makes_room_for_one() {
    let broker = full_at(1).await;
    let first = ids(&submit(&broker, 1, Duration::ZERO).await.unwrap());
    let waiting = submit(&broker, 1, SOON);
    assert_eq!(receive(&broker).await, Some(first[0]));
    let second = ids(&waiting.await.unwrap());
    assert_eq!(receive(&broker).await, Some(second[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_is_submitted_in_parts_and_in_order() {
    let broker = full_at(2).await;
    let waiting = submit(&broker, 7, SOON);
    let mut received = Vec::new();
    for _ in 0..7 {
        received.extend(receive(&broker).await);
    }
    assert_eq!(ids(&waiting.await.unwrap()), received);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_many_waiting_submits_succeed() {
    let broker = full_at(3).await;
    let waiting: Vec<_> = (0..60).map(|n| submit(&broker, 1 + n % 3, SOON)).collect();
    let mut received = Vec::new();
    for _ in 0..120 {
        received.extend(receive(&broker).await);
    }
    let mut submitted = Vec::new();
    for waiting in waiting {
        submitted.extend(ids(&waiting.await.unwrap()));
    }
    received.sort_unstable();
    submitted.sort_unstable();
    assert_eq!(received, submitted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_its_wait_a_submit_is_refused_because_the_queue_is_full() {
    let broker = full_at(1).await;
    let answers = submit(&broker, 3, Duration::from_millis(30)).await.unwrap();
    ids(&answers[..1]);
    for answer in &answers[1..] {
        assert!(
            matches!(answer, Err(OperationError::Refused(Refusal::QueueFull { depth: 1, limit: 1, .. }))),
            "{answer:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_a_higher_limit_and_a_closed_queue_wake_a_waiting_submit() {
    let broker = full_at(1).await;
    let first = ids(&submit(&broker, 1, Duration::ZERO).await.unwrap());
    let waiting = submit(&broker, 1, SOON);
    let cancel = Operation::Cancel { id: first[0], reason: String::new() };
    broker.update(vec![cancel]).await.unwrap().pop().unwrap().unwrap();
    ids(&waiting.await.unwrap());
    let waiting = submit(&broker, 1, SOON);
    let patch = towline_domain::PolicyPatch { depth_limit: Some(Some(2)), ..Default::default() };
    let change = Operation::ChangePolicy { queue: queue(), patch: Box::new(patch) };
    broker.update(vec![change]).await.unwrap().pop().unwrap().unwrap();
    ids(&waiting.await.unwrap());
    let waiting = submit(&broker, 1, SOON);
    broker.update(vec![Operation::CloseQueue { queue: queue() }]).await.unwrap().pop().unwrap().unwrap();
    let answers = waiting.await.unwrap();
    assert!(
        matches!(answers[..], [Err(OperationError::Refused(Refusal::QueueClosed { .. }))]),
        "{answers:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_broker_ends_waiting_submits() {
    let broker = full_at(1).await;
    ids(&submit(&broker, 1, Duration::ZERO).await.unwrap());
    let waiting = submit(&broker, 1, SOON);
    broker.stop();
    let answers = waiting.await.unwrap();
    assert!(matches!(answers[..], [Err(OperationError::Refused(Refusal::QueueFull { .. }))]), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submit_under_way_at_a_fault_is_answered_as_unknown() {
    let (broker, store) = start(1).await;
    let waiting = submit(&broker, 2, SOON);
    let listed = async || store.list(Filter::default(), None, 9, FieldSet::NONE).await.unwrap().items;
    while listed().await.is_empty() {
        tokio::task::yield_now().await;
    }
    store.guard.lose_every(1);
    // As another server would, without a wake-up: the first waiting submitter polls.
    let first = listed().await[0].item.head.id;
    let cancel = Operation::Cancel { id: first, reason: String::new() };
    store.store.update(vec![cancel]).await.unwrap().answers.pop().unwrap().unwrap();
    let answers = waiting.await.unwrap();
    assert_eq!(ids(&answers[..1]), [first]);
    assert!(matches!(answers[1..], [Err(OperationError::Failed(_))]), "{answers:?}");
    assert_eq!(listed().await.len(), 2, "the store submitted it");
}
