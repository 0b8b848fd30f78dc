//! A fixture for unit tests: one queue, one item, and the latest change.

use crate::backoff::Backoff;
use crate::change::{Answer, Change, QueueChange};
use crate::command::{Adjust, Command, LeaseCall, NewQueue, OutputSet, Receive, Submission, Verb};
use crate::counts::Counts;
use crate::decide::{Context, decide};
use crate::digest::ContentDigest;
use crate::id::{ItemId, LeaseToken, QueueId};
use crate::item::{Head, Item};
use crate::policy::Policy;
use crate::queue::Queue;
use crate::refusal::Refusal;
use crate::schema::Schema;
use crate::time::{Millis, Timestamp};
use uuid::Uuid;

pub(super) const START: u64 = 1_000_000;

pub(super) struct Scene {
    pub(super) now: Timestamp,
    pub(super) queue: Queue,
    /// The queue's counts without the item.
    pub(super) other_counts: Counts,
    pub(super) item: Option<Item>,
    pub(super) target: Option<Queue>,
    pub(super) dead_letters: Option<Queue>,
    pub(super) key_owner: Option<(ItemId, ContentDigest)>,
    pub(super) last: Option<Change>,
}

pub(super) fn token(number: u128) -> LeaseToken {
    LeaseToken(Uuid::from_u128(number))
}

pub(super) fn queue(id: u32, name: &str, change: impl FnOnce(&mut Policy)) -> Queue {
    let mut policy = Policy { visibility_timeout: Millis(1000), backoff: Backoff::NONE, ..Policy::default() };
    change(&mut policy);
    let dead_letter_queue = policy.dead_letter_queue.take();
    let new = NewQueue { id: QueueId(id), name: name.parse().unwrap(), schema: Schema::default(), policy };
    let change = decide(&Context::default(), Command::CreateQueue(Box::new(new)), Timestamp(START));
    match change.unwrap().queue() {
        Some(QueueChange::Put(queue)) => {
            let policy = Policy { dead_letter_queue, ..queue.policy.clone() };
            Queue { policy, ..(**queue).clone() }
        }
        other => panic!("{other:?}"),
    }
}

impl Scene {
    pub(super) fn new() -> Scene {
        Scene::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut Policy)) -> Scene {
        Scene {
            now: Timestamp(START),
            queue: queue(1, "q", change),
            other_counts: Counts::default(),
            item: None,
            target: None,
            dead_letters: None,
            key_owner: None,
            last: None,
        }
    }

    pub(super) fn later(&mut self, millis: u64) {
        self.now = self.now.after(Millis(millis));
    }

    pub(super) fn head(&self) -> &Head {
        &self.item.as_ref().unwrap().head
    }

    pub(super) fn change(&self) -> &Change {
        self.last.as_ref().unwrap()
    }

    pub(super) fn run(&mut self, command: Command) -> Result<Answer, Refusal> {
        let mut counts = self.other_counts;
        let submits = matches!(command, Command::Submit(_));
        if let Some(item) = &self.item {
            counts.add(item.head.count_kind(self.now));
        }
        let context = Context {
            queue: Some(&self.queue),
            counts,
            item: self.item.as_ref().map(|item| &item.head),
            key_owner: self.key_owner,
            replaces: None,
            record: None,
            new_id: submits.then(|| ItemId::derive(7, self.now, 1)),
            target: self.target.as_ref(),
            dead_letters: self.dead_letters.as_ref(),
            handed_off: None,
        };
        let change = decide(&context, command, self.now)?;
        self.item = change.apply(self.item.take());
        if let Some(QueueChange::Put(after)) = change.queue() {
            self.queue = (**after).clone();
        }
        let answer = change.answer().clone();
        self.last = Some(change);
        Ok(answer)
    }

    pub(super) fn submit(&mut self, change: impl FnOnce(&mut Submission)) -> Result<Answer, Refusal> {
        let mut submission = Submission::default();
        change(&mut submission);
        self.run(Command::Submit(Box::new(submission)))
    }

    pub(super) fn receive(&mut self, number: u128) -> Result<Answer, Refusal> {
        self.receiving(number, false)
    }

    pub(super) fn receiving(&mut self, number: u128, make_buffers: bool) -> Result<Answer, Refusal> {
        self.run(Command::Receive(Receive {
            token: token(number),
            visibility: None,
            assigned: false,
            make_buffers,
        }))
    }

    pub(super) fn by(&mut self, number: u128, verb: Verb) -> Result<Answer, Refusal> {
        self.adjusting(number, verb, Adjust::default())
    }

    pub(super) fn adjusting(&mut self, number: u128, verb: Verb, adjust: Adjust) -> Result<Answer, Refusal> {
        self.run(Command::Lease(Box::new(LeaseCall { token: token(number), verb, adjust })))
    }

    /// Submits an item and delivers it under lease 1.
    pub(super) fn held(mut self) -> Scene {
        self.submit(|_| {}).unwrap();
        self.receive(1).unwrap();
        self
    }
}

pub(super) fn retry(message: &str) -> Verb {
    Verb::Retry { error: message.to_owned(), delay: None, seed: 0 }
}

pub(super) fn release() -> Verb {
    Verb::Release { delay: Millis::ZERO, counted: true }
}

pub(super) fn fail(reason: &str) -> Verb {
    Verb::Fail { reason: reason.to_owned() }
}

pub(super) fn commit() -> Verb {
    Verb::Commit(crate::item::Outcome::default())
}

pub(super) fn buffers(pairs: &[(&str, &str)]) -> OutputSet {
    pairs.iter().map(|(slot, buffer)| (slot.parse().unwrap(), buffer.parse().unwrap())).collect()
}
