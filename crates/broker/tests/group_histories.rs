//! Random histories: the counts of groups and the ends of dependents are those of the members.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use towline_broker::{Broker, ReceiveRequest, Sharing, SteadyClock};
use towline_conformance::ReferenceStore;
use towline_conformance::invariants::GroupLedger;
use towline_domain::change::Answer;
use towline_domain::command::Verb;
use towline_domain::{
    Adjust, Condition, Dependency, DependsOn, FieldSet, ItemId, ItemState, LeaseCall, Outcome, Policy,
    QueueName, Schema, Submission,
};
use towline_store::{Answered, Operation, Reply};

const QUEUES: [&str; 2] = ["a", "b"];
const GROUPS: [&str; 2] = ["g", "h"];

#[derive(Debug, Clone)]
enum Step {
    Submit { queue: usize, group: usize },
    Settle { queue: usize, completes: bool },
    Redrive(prop::sample::Index),
    Cancel(prop::sample::Index),
    Delete(prop::sample::Index),
    Move { item: prop::sample::Index, to: usize },
    DeleteQueue(usize),
    Look,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let item = any::<prop::sample::Index>;
    let step = prop_oneof![
        6 => (0..2_usize, 0..2_usize).prop_map(|(queue, group)| Step::Submit { queue, group }),
        5 => (0..2_usize, any::<bool>()).prop_map(|(queue, completes)| Step::Settle { queue, completes }),
        1 => item().prop_map(Step::Redrive),
        1 => item().prop_map(Step::Cancel),
        2 => item().prop_map(Step::Delete),
        1 => (item(), 0..2_usize).prop_map(|(item, to)| Step::Move { item, to }),
        1 => (0..2_usize).prop_map(Step::DeleteQueue),
        2 => Just(Step::Look),
    ];
    prop::collection::vec(step, 1..40)
}

struct History {
    broker: Broker,
    ledger: GroupLedger,
    members: Vec<ItemId>,
}

impl History {
    async fn update(&mut self, operation: Operation) -> Answered {
        let answer = self.broker.update(vec![operation.clone()]).await.unwrap().pop().unwrap();
        self.ledger.answered(&operation, &answer);
        answer
    }

    async fn create(&mut self, queue: &str) {
        let (schema, policy) = (Box::<Schema>::default(), Box::<Policy>::default());
        let create = Operation::CreateQueue { queue: queue.parse().unwrap(), schema, policy };
        self.update(create).await.unwrap();
    }

    async fn submit(&mut self, queue: &str, submission: Submission) -> ItemId {
        let submit = Operation::Submit { queue: queue.parse().unwrap(), submission: Box::new(submission) };
        match self.update(submit).await {
            Ok(Reply::Answer(Answer::Submitted { id, .. })) => id,
            other => panic!("{other:?}"),
        }
    }

    async fn settle(&mut self, queue: QueueName, completes: bool) {
        let request = ReceiveRequest {
            queue,
            max: 1,
            wait: Duration::ZERO,
            visibility: None,
            fields: FieldSet::NONE,
            make_buffers: false,
        };
        let Some(item) = self.broker.receive(request).await.unwrap().items.pop() else { return };
        let verb = match completes {
            true => Verb::Commit(Outcome::default()),
            false => Verb::Fail { reason: "broken".to_owned() },
        };
        let token = item.head.lease().unwrap().token;
        let call = Box::new(LeaseCall { token, verb, adjust: Adjust::default() });
        self.update(Operation::Lease { id: item.head.id, call }).await.unwrap();
    }

    async fn step(&mut self, step: Step) {
        let pick = |item: prop::sample::Index| item.get(&self.members).to_owned();
        let operation = match step {
            Step::Submit { queue, group } => {
                let mut member = Submission::default();
                member.body.group = Some(GROUPS[group].to_owned());
                let id = self.submit(QUEUES[queue], member).await;
                return self.members.push(id);
            }
            Step::Settle { queue, completes } => {
                return self.settle(QUEUES[queue].parse().unwrap(), completes).await;
            }
            Step::DeleteQueue(queue) => {
                let delete = Operation::DeleteQueue { queue: QUEUES[queue].parse().unwrap(), force: true };
                self.update(delete).await.unwrap();
                return self.create(QUEUES[queue]).await;
            }
            Step::Look => return self.check().await,
            Step::Redrive(_) | Step::Cancel(_) | Step::Delete(_) | Step::Move { .. }
                if self.members.is_empty() =>
            {
                return;
            }
            Step::Redrive(item) => Operation::Redrive { id: pick(item) },
            Step::Cancel(item) => Operation::Cancel { id: pick(item), reason: String::new() },
            Step::Delete(item) => Operation::Delete { id: pick(item), force: true },
            Step::Move { item, to } => Operation::Move { id: pick(item), to: QUEUES[to].parse().unwrap() },
        };
        // A refusal changes nothing.
        drop(self.update(operation).await);
    }

    async fn check(&self) {
        for group in GROUPS {
            let shown = self.broker.group(group).await.unwrap();
            self.ledger.check(group, &shown).unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
}

async fn follow(steps: Vec<Step>) {
    let clock = Arc::new(SteadyClock::new());
    let store = Arc::new(ReferenceStore::new(clock.clone(), 7));
    let broker = Broker::start(store, clock, None, Sharing::Alone);
    let mut history = History { broker, ledger: GroupLedger::default(), members: Vec::new() };
    for queue in QUEUES.into_iter().chain(["last"]) {
        history.create(queue).await;
    }
    for step in steps {
        history.step(step).await;
    }
    history.check().await;
    for group in GROUPS {
        let on = DependsOn::Group { name: group.to_owned(), expect: 0 };
        let after = Some(Box::new(Dependency { on, when: Condition::AllSuccess }));
        let id = history.submit("last", Submission { after, ..Submission::default() }).await;
        // The counts include the dependent's submit, which was resolved by then.
        history.broker.group(group).await.unwrap();
        let found = history.broker.store().get(vec![id], FieldSet::NONE).await.unwrap().pop().flatten();
        let state = found.unwrap().item.head.item_state();
        assert_eq!(
            state == ItemState::Pending,
            history.ledger.has_succeeded(group),
            "the dependent of {group} is {state:?}"
        );
    }
    history.broker.stop();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn groups_count_each_member_once(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(follow(steps));
    }
}
