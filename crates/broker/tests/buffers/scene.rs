//! A broker on the reference store, with a place for buffers.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use towline_broker::{
    AccessError, Broker, CollectionRule, OffloadRule, ReceiveRequest, Sharing, SteadyClock, Storage,
};
use towline_buffers::{
    BufferState as State, Buffers, Location, NewBuffer, NewChunk, Options, Position, WriterId,
};
use towline_conformance::ReferenceStore;
use towline_domain::change::Answer;
use towline_domain::command::Verb;
use towline_domain::{
    Adjust, Backoff, Body, BufferId, FieldSet, Fields, Item, ItemId, LeaseCall, LeaseToken, Millis, Outcome,
    OutputSet, Policy, QueueName, Schema, Submission,
};
use towline_store::{Answered, Operation, OperationResult, Reply, Store};

pub fn queue() -> QueueName {
    "jobs".parse().unwrap()
}

pub struct Scene {
    pub broker: Broker,
    pub store: Arc<dyn Store>,
    pub buffers: Buffers,
    pub directory: Arc<TempDir>,
}

/// Rounds of collection follow one another closely; `grace` as given.
pub fn often(grace: u64) -> CollectionRule {
    CollectionRule { every: Duration::from_millis(20), grace: Millis(grace) }
}

pub const NEVER: CollectionRule =
    CollectionRule { every: Duration::from_secs(1 << 30), grace: Millis::days(1000) };

impl Scene {
    pub async fn new(collection: CollectionRule) -> Scene {
        let clock = Arc::new(SteadyClock::new());
        Scene::on(Arc::new(ReferenceStore::new(clock.clone(), 1)), clock, collection).await
    }

    pub async fn on(store: Arc<dyn Store>, clock: Arc<SteadyClock>, collection: CollectionRule) -> Scene {
        Scene::in_directory(Arc::new(tempfile::tempdir().unwrap()), store, clock, collection).await
    }

    /// A broker of another store, with the same place for buffers.
    pub async fn beside(other: &Scene, salt: u64, collection: CollectionRule) -> Scene {
        let clock = Arc::new(SteadyClock::new());
        let store = Arc::new(ReferenceStore::new(clock.clone(), salt));
        Scene::in_directory(Arc::clone(&other.directory), store, clock, collection).await
    }

    async fn in_directory(
        directory: Arc<TempDir>,
        store: Arc<dyn Store>,
        clock: Arc<SteadyClock>,
        collection: CollectionRule,
    ) -> Scene {
        let place: Location = directory.path().to_str().unwrap().parse().unwrap();
        let buffers = Buffers::open(&place, Options::default()).unwrap();
        let storage = Storage { buffers: buffers.clone(), offload: OffloadRule::default(), collection };
        let broker = Broker::start(store.clone(), clock, Some(storage), Sharing::Alone);
        let scene = Scene { broker, store, buffers, directory };
        let schema = Schema {
            inputs: [("data".parse().unwrap(), false)].into(),
            outputs: [("result".parse().unwrap(), true)].into(),
            ..Schema::default()
        };
        let policy = Policy { max_retries: 100, backoff: Backoff::NONE, ..Policy::default() };
        let create =
            Operation::CreateQueue { queue: queue(), schema: Box::new(schema), policy: Box::new(policy) };
        scene.run(create).await.unwrap();
        scene
    }

    pub async fn run(&self, operation: Operation) -> Answered {
        self.broker.update(vec![operation]).await.unwrap().pop().unwrap()
    }

    pub async fn submit(&self, submission: Submission) -> OperationResult<(ItemId, bool)> {
        let submit = Operation::Submit { queue: queue(), submission: Box::new(submission) };
        self.run(submit).await.map(|reply| match reply {
            Reply::Answer(Answer::Submitted { id, created }) => (id, created),
            other => panic!("{other:?}"),
        })
    }

    pub async fn receive(&self) -> OperationResult<Option<Item>> {
        let request = ReceiveRequest {
            queue: queue(),
            max: 1,
            wait: Duration::ZERO,
            visibility: None,
            fields: FieldSet::ALL,
            make_buffers: true,
        };
        self.broker.receive(request).await.map(|mut received| received.items.pop())
    }

    /// Submits an item and receives it.
    pub async fn held(&self) -> Item {
        self.submit(Submission::default()).await.unwrap();
        self.receive().await.unwrap().unwrap()
    }

    pub async fn settle(&self, item: &Item, verb: Verb) -> Answered {
        self.settle_with(item, verb, Adjust::default()).await
    }

    pub async fn settle_with(&self, item: &Item, verb: Verb, adjust: Adjust) -> Answered {
        let call = Box::new(LeaseCall { token: token(item), verb, adjust });
        self.run(Operation::Lease { id: item.head.id, call }).await
    }

    /// As the store has it.
    pub async fn stored(&self, id: ItemId) -> Item {
        self.store.get(vec![id], FieldSet::ALL).await.unwrap().pop().flatten().unwrap().item
    }

    /// Writes all of a buffer as a client would, admitted at each step.
    pub async fn write(&self, id: &BufferId, content: &'static [u8]) -> Result<(), AccessError> {
        self.broker.admit_writer(id.as_str()).await?;
        let (writer, now) = (WriterId::from_bytes([7; 16]), self.broker.now().0);
        self.buffers.begin(id.as_str(), writer, now).await?;
        let hash = blake3::hash(content);
        let chain = towline_buffers::link(&towline_buffers::CHAIN_START, 0, content.len() as u64, &hash);
        let data = vec![Bytes::from_static(content)];
        self.buffers.put_chunk(id.as_str(), writer, NewChunk { n: 0, hash, chain, data }, now).await?;
        let totals = Position { chunks: 1, bytes: content.len() as u64, chain };
        Ok(self.buffers.finish(id.as_str(), writer, totals, now).await?)
    }

    pub async fn create(&self, id: &str) -> BufferId {
        self.buffers.create(id, NewBuffer::default(), self.broker.now().0).await.unwrap();
        id.parse().unwrap()
    }

    pub async fn readable(&self, id: &BufferId) -> bool {
        self.broker.admit_reader(id.as_str()).await.is_ok()
    }

    pub async fn state(&self, id: &BufferId) -> Option<State> {
        self.buffers.show(id.as_str(), self.broker.now().0).await.ok().map(|shown| shown.state)
    }

    pub async fn blobs(&self) -> Vec<String> {
        let page = self.buffers.list_blobs(None, 1000).await.unwrap();
        page.blobs.into_iter().map(|blob| blob.key).collect()
    }

    pub async fn until<F: Future<Output = bool>>(&self, what: &str, so: impl Fn() -> F) {
        for _ in 0..1000 {
            if so().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}");
    }
}

pub fn token(item: &Item) -> LeaseToken {
    item.head.lease().unwrap().token
}

pub fn output_buffer(item: &Item) -> BufferId {
    item.head.lease().unwrap().buffers.as_ref().unwrap()["result"].clone()
}

pub fn commit() -> Verb {
    Verb::Commit(Outcome::default())
}

pub fn commit_with(buffer: &BufferId) -> Verb {
    let outputs: OutputSet = [("result".parse().unwrap(), buffer.clone())].into();
    Verb::Commit(Outcome { outputs, ..Outcome::default() })
}

pub fn release() -> Verb {
    Verb::Release { delay: Millis::ZERO, counted: true }
}

pub fn code<T: std::fmt::Debug>(answered: OperationResult<T>) -> &'static str {
    answered.unwrap_err().code()
}

pub fn input(buffer: &str) -> Submission {
    let inputs = [("data".parse().unwrap(), buffer.parse().unwrap())].into();
    Submission { body: Body { inputs, ..Body::default() }, ..Submission::default() }
}

pub fn payload(content: Bytes) -> Submission {
    Submission { fields: Fields { blob: Some(content), ..Fields::default() }, ..Submission::default() }
}

pub fn large(seed: u8) -> Bytes {
    (0..200_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed).collect::<Vec<u8>>().into()
}
