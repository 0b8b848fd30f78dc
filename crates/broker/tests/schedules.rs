//! Each occurrence of a schedule submits one item, with several servers and after faults.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod lost_answers;

use lost_answers::losing_answers;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use towline_broker::{Broker, IfDifferent, ReceiveRequest, Sharing, SteadyClock};
use towline_conformance::ReferenceStore;
use towline_domain::command::Verb;
use towline_domain::schedule::{CatchUp, Overlap, Rhythm, Schedule, Spec, TAG_SCHEDULED_FOR, Template};
use towline_domain::{
    Adjust, FieldSet, ItemId, LeaseCall, Millis, Outcome, Policy, QueueName, ScheduleName, Schema, Timestamp,
};
use towline_store::{Filter, ManualClock, Operation, Store, StoredItem};

const START: Timestamp = Timestamp(1_767_225_600_000);
const SHARED: Sharing = Sharing::Shared { poll_every: Duration::from_secs(60) };

fn queue() -> QueueName {
    "jobs".parse().unwrap()
}

fn name() -> ScheduleName {
    "nightly".parse().unwrap()
}

/// Every minute.
fn minutes() -> Spec {
    Spec {
        queue: queue(),
        rhythm: Rhythm::Cron { cron: "* * * * *".to_owned(), time_zone: "UTC".to_owned() },
        start: None,
        end: None,
        jitter: None,
        catch_up: CatchUp::One,
        overlap: Overlap::Allow,
        item: Template { blob: Some("work".into()), ..Template::default() },
    }
}

struct Scene {
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
    broker: Broker,
}

impl Scene {
    async fn new(spec: Spec) -> Scene {
        let clock = Arc::new(ManualClock::new(START));
        let store: Arc<dyn Store> = Arc::new(ReferenceStore::new(clock.clone(), 1));
        Scene::on(store, clock, spec).await
    }

    async fn on(store: Arc<dyn Store>, clock: Arc<ManualClock>, spec: Spec) -> Scene {
        let broker = Broker::start(store.clone(), clock.clone(), None, SHARED);
        let scene = Scene { clock, store, broker };
        scene.make_queue(Policy::default()).await;
        let put = scene.broker.put_schedule(&name(), spec, None, IfDifferent::Change).await.unwrap();
        assert!(put.created);
        scene
    }

    async fn make_queue(&self, policy: Policy) {
        let create = Operation::CreateQueue {
            queue: queue(),
            schema: Box::new(Schema::default()),
            policy: Box::new(policy),
        };
        self.broker.update(vec![create]).await.unwrap().remove(0).unwrap();
    }

    fn another_server(&self) -> Broker {
        Broker::start(self.store.clone(), self.clock.clone(), None, SHARED)
    }

    async fn run_due(&self) {
        self.broker.run_due_schedules().await.unwrap();
    }

    async fn schedule(&self) -> Schedule {
        self.broker.schedule(&name()).await.unwrap().unwrap()
    }

    async fn items(&self) -> Vec<StoredItem> {
        self.store.list(Filter::default(), None, 1000, FieldSet::ALL).await.unwrap().items
    }

    /// How many items each occurrence has, in minutes after the start.
    async fn occurrences(&self) -> BTreeMap<u64, usize> {
        let mut counted = BTreeMap::new();
        for stored in self.items().await {
            let Some(tag) = stored.item.body.tags.get(TAG_SCHEDULED_FOR) else { continue };
            let time: jiff::Timestamp = tag.parse().unwrap();
            let since = Timestamp(time.as_millisecond().unsigned_abs()).since(START);
            *counted.entry(since.0 / 60_000).or_default() += 1;
        }
        counted
    }

    async fn commit_one(&self) -> ItemId {
        let request = ReceiveRequest {
            queue: queue(),
            max: 1,
            wait: Duration::ZERO,
            visibility: None,
            fields: FieldSet::NONE,
            make_buffers: false,
        };
        let item = self.broker.receive(request).await.unwrap().items.remove(0);
        let call = LeaseCall {
            token: item.head.lease().unwrap().token,
            verb: Verb::Commit(Outcome::default()),
            adjust: Adjust::default(),
        };
        let settle = Operation::Lease { id: item.head.id, call: Box::new(call) };
        self.broker.update(vec![settle]).await.unwrap().remove(0).unwrap();
        item.head.id
    }
}

fn once_each(minutes: impl IntoIterator<Item = u64>) -> BTreeMap<u64, usize> {
    minutes.into_iter().map(|minute| (minute, 1)).collect()
}

#[tokio::test]
async fn an_occurrence_submits_an_item_at_its_time() {
    let scene = Scene::new(minutes()).await;
    scene.clock.advance(59_999);
    scene.run_due().await;
    assert!(scene.items().await.is_empty());
    scene.clock.advance(1);
    scene.run_due().await;
    scene.run_due().await;
    assert_eq!(scene.occurrences().await, once_each([1]));
    let items = scene.items().await;
    assert_eq!(items[0].item.body.tags["schedule"], "nightly");
    assert_eq!(items[0].item.fields.blob.as_deref(), Some(&b"work"[..]));
    let schedule = scene.schedule().await;
    assert_eq!(schedule.last_item, Some(items[0].item.head.id));
    assert_eq!(schedule.last, Some(START.after(Millis::minutes(1))));
    assert_eq!(schedule.next, Some(START.after(Millis::minutes(2))));
    assert_eq!(schedule.tally.submitted, 1);
}

#[tokio::test]
async fn the_broker_runs_due_schedules() {
    let clock = Arc::new(SteadyClock::new());
    let store: Arc<dyn Store> = Arc::new(ReferenceStore::new(clock.clone(), 1));
    let broker = Broker::start(store, clock, None, Sharing::Alone);
    let create = Operation::CreateQueue { queue: queue(), schema: Box::default(), policy: Box::default() };
    broker.update(vec![create]).await.unwrap().remove(0).unwrap();
    let spec = Spec { rhythm: Rhythm::Every { every: Millis::seconds(1) }, ..minutes() };
    broker.put_schedule(&name(), spec, None, IfDifferent::Change).await.unwrap();
    let request = ReceiveRequest {
        queue: queue(),
        max: 1,
        wait: Duration::from_secs(60),
        visibility: None,
        fields: FieldSet::NONE,
        make_buffers: false,
    };
    let mut times = Vec::new();
    for _ in 0..3 {
        let received = broker.receive(request.clone()).await.unwrap();
        times.push(received.items[0].body.tags[TAG_SCHEDULED_FOR].clone());
    }
    times.dedup();
    assert_eq!(times.len(), 3, "{times:?}");
    broker.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_several_servers_submits_the_item() {
    let scene = Scene::new(Spec { catch_up: CatchUp::All { max: 1000 }, ..minutes() }).await;
    let peers = [scene.another_server(), scene.another_server(), scene.another_server()];
    for _ in 0..40 {
        scene.clock.advance(60_000);
        let all = peers.iter().chain([&scene.broker]).cloned();
        let running: Vec<_> =
            all.map(|broker| tokio::spawn(async move { broker.run_due_schedules().await })).collect();
        for one in running {
            one.await.unwrap().unwrap();
        }
    }
    assert_eq!(scene.occurrences().await, once_each(1..=40));
    assert_eq!(scene.items().await.len(), 40);
    assert_eq!(scene.schedule().await.tally.submitted, 40);
}

#[tokio::test]
async fn a_server_that_starts_later_catches_up() {
    for (catch_up, expected, missed) in [
        (CatchUp::None, vec![1, 2, 7], 4),
        (CatchUp::One, vec![1, 2, 7], 4),
        (CatchUp::All { max: 3 }, vec![1, 2, 5, 6, 7], 2),
        (CatchUp::All { max: 100 }, vec![1, 2, 3, 4, 5, 6, 7], 0),
    ] {
        let scene = Scene::new(Spec { catch_up, ..minutes() }).await;
        for _ in 0..2 {
            scene.clock.advance(60_000);
            scene.run_due().await;
        }
        scene.broker.stop();
        // Half a minute after the seventh occurrence.
        scene.clock.advance(5 * 60_000 + 30_000);
        let later = scene.another_server();
        later.run_due_schedules().await.unwrap();
        assert_eq!(scene.occurrences().await, once_each(expected), "{catch_up:?}");
        let schedule = later.schedule(&name()).await.unwrap().unwrap();
        assert_eq!(schedule.tally.missed, missed, "{catch_up:?}");
        assert_eq!(schedule.next, Some(START.after(Millis::minutes(8))));
    }
}

#[tokio::test]
async fn without_catch_up_a_late_occurrence_is_missed() {
    let daily = Rhythm::Cron { cron: "0 3 * * *".to_owned(), time_zone: "UTC".to_owned() };
    let scene = Scene::new(Spec { rhythm: daily, catch_up: CatchUp::None, ..minutes() }).await;
    scene.clock.advance(Millis::hours(5).0);
    scene.run_due().await;
    assert!(scene.items().await.is_empty());
    let schedule = scene.schedule().await;
    assert_eq!((schedule.tally.missed, schedule.last), (1, None));
    assert_eq!(schedule.next, Some(START.after(Millis::hours(27))));
}

#[tokio::test]
async fn a_busy_server_runs_the_schedule_of_a_server_that_stopped() {
    let busy = Rhythm::Every { every: Millis::seconds(1) };
    let scene = Scene::new(Spec { rhythm: busy, ..minutes() }).await;
    scene.run_due().await;
    let peer = scene.another_server();
    let orphan: ScheduleName = "orphan".parse().unwrap();
    peer.put_schedule(&orphan, minutes(), None, IfDifferent::Change).await.unwrap();
    peer.stop();
    // An occurrence is due every second, so the server never sleeps for long.
    for _ in 0..60 {
        scene.clock.advance(1000);
        scene.run_due().await;
    }
    let schedule = scene.broker.schedule(&orphan).await.unwrap().unwrap();
    assert_eq!((schedule.tally.submitted, schedule.last), (1, Some(START.after(Millis::minutes(1)))));
}

#[tokio::test]
async fn a_clock_that_is_set_back_repeats_no_occurrence() {
    let scene = Scene::new(minutes()).await;
    scene.clock.advance(180_000);
    scene.run_due().await;
    assert_eq!(scene.occurrences().await, once_each([3]));
    scene.clock.set(START);
    let later = scene.another_server();
    for _ in 0..3 {
        scene.clock.advance(60_000);
        scene.run_due().await;
        later.run_due_schedules().await.unwrap();
    }
    assert_eq!(
        scene.occurrences().await,
        once_each([3]),
        "none until the clock reaches the last occurrence again"
    );
    scene.clock.advance(60_000);
    scene.run_due().await;
    assert_eq!(scene.occurrences().await, once_each([3, 4]));
}

#[tokio::test]
async fn overlap_skip_skips_occurrences_while_the_previous_item_is_unfinished() {
    let scene = Scene::new(Spec { overlap: Overlap::Skip, ..minutes() }).await;
    for _ in 0..3 {
        scene.clock.advance(60_000);
        scene.run_due().await;
    }
    assert_eq!(scene.occurrences().await, once_each([1]));
    assert_eq!(scene.schedule().await.tally.skipped, 2);
    scene.commit_one().await;
    scene.clock.advance(60_000);
    scene.run_due().await;
    assert_eq!(scene.occurrences().await, once_each([1, 4]));
}

#[tokio::test]
async fn overlap_cancel_cancels_the_previous_item() {
    let scene = Scene::new(Spec { overlap: Overlap::Cancel, ..minutes() }).await;
    for _ in 0..3 {
        scene.clock.advance(60_000);
        scene.run_due().await;
    }
    let ended: Vec<bool> = scene.items().await.iter().map(|stored| stored.item.head.is_terminal()).collect();
    assert_eq!(ended, [true, true, false]);
}

#[tokio::test]
async fn a_resumed_schedule_continues_with_the_next_occurrence() {
    let scene = Scene::new(Spec { catch_up: CatchUp::All { max: 100 }, ..minutes() }).await;
    let paused = scene.broker.pause_schedule(&name(), true).await.unwrap();
    assert_eq!((paused.paused, paused.next), (true, None));
    scene.clock.advance(150_000);
    scene.run_due().await;
    assert!(scene.items().await.is_empty());
    let next = scene.broker.next_times(&paused, 2).unwrap();
    assert_eq!(
        next,
        [START.after(Millis::minutes(3)), START.after(Millis::minutes(4))],
        "as if it were resumed"
    );
    scene.broker.pause_schedule(&name(), false).await.unwrap();
    scene.clock.advance(60_000);
    scene.run_due().await;
    assert_eq!(scene.occurrences().await, once_each([3]));
}

#[tokio::test]
async fn a_run_on_request_does_not_change_the_next_occurrence() {
    let scene = Scene::new(minutes()).await;
    let before = scene.schedule().await;
    let id = scene.broker.run_schedule(&name()).await.unwrap();
    let items = scene.items().await;
    assert_eq!(items[0].item.head.id, id);
    assert_eq!(items[0].item.body.tags.get(TAG_SCHEDULED_FOR), None);
    let after = scene.schedule().await;
    assert_eq!(after, Schedule { last_item: Some(id), ..before });
    scene.clock.advance(60_000);
    scene.run_due().await;
    assert_eq!(scene.occurrences().await, once_each([1]));
}

#[tokio::test]
async fn a_schedule_without_its_queue_shows_the_error_and_recovers() {
    let scene = Scene::new(minutes()).await;
    let delete = Operation::DeleteQueue { queue: queue(), force: true };
    scene.broker.update(vec![delete]).await.unwrap().remove(0).unwrap();
    scene.clock.advance(60_000);
    scene.run_due().await;
    let schedule = scene.schedule().await;
    let error = schedule.error.unwrap();
    assert_eq!((error.code.as_str(), error.occurrence), ("queue_not_found", START.after(Millis::minutes(1))));
    assert_eq!(schedule.tally.refused, 1);
    assert_eq!(schedule.next, Some(START.after(Millis::minutes(2))));
    scene.make_queue(Policy::default()).await;
    scene.clock.advance(60_000);
    scene.run_due().await;
    assert_eq!(scene.occurrences().await, once_each([2]));
    assert_eq!(scene.schedule().await.error, None);
}

#[tokio::test]
async fn an_occurrence_waits_for_room_in_its_queue() {
    let daily = Rhythm::Cron { cron: "0 3 * * *".to_owned(), time_zone: "UTC".to_owned() };
    let scene = Scene::new(Spec { rhythm: daily, ..minutes() }).await;
    let patch = towline_domain::PolicyPatch { depth_limit: Some(Some(1)), ..Default::default() };
    let limit = Operation::ChangePolicy { queue: queue(), patch: Box::new(patch) };
    scene.broker.update(vec![limit]).await.unwrap().remove(0).unwrap();
    let run = scene.broker.run_schedule(&name()).await.unwrap();
    scene.clock.advance(Millis::hours(3).0);
    scene.run_due().await;
    let waiting = scene.schedule().await;
    assert_eq!(waiting.error.unwrap().code, "queue_full");
    assert_eq!(waiting.next, Some(START.after(Millis::hours(3))), "the occurrence is still to come");
    assert_eq!(scene.commit_one().await, run);
    scene.clock.advance(5000);
    scene.run_due().await;
    assert_eq!(scene.occurrences().await, once_each([180]));
    let done = scene.schedule().await;
    assert_eq!((done.error, done.tally.refused), (None, 0));
}

#[tokio::test]
async fn a_put_lists_what_it_changed_and_keeps_the_next_occurrence() {
    let scene = Scene::new(Spec { rhythm: Rhythm::Every { every: Millis::minutes(10) }, ..minutes() }).await;
    let spec = scene.schedule().await.spec;
    scene.clock.advance(Millis::minutes(4).0);
    let same = scene.broker.put_schedule(&name(), spec.clone(), None, IfDifferent::Change).await.unwrap();
    assert_eq!((same.created, same.changed.len()), (false, 0));
    let other = Spec { overlap: Overlap::Skip, jitter: Some(Millis(5)), ..spec.clone() };
    let put = scene.broker.put_schedule(&name(), other.clone(), None, IfDifferent::Change).await.unwrap();
    assert_eq!(put.changed, ["jitter", "overlap"]);
    assert_eq!(put.schedule.next, Some(START.after(Millis::minutes(10))), "unchanged");
    let faster = Spec { rhythm: Rhythm::Every { every: Millis::minutes(2) }, ..other };
    let put = scene.broker.put_schedule(&name(), faster, Some(true), IfDifferent::Change).await.unwrap();
    assert_eq!(put.changed, ["every", "paused"]);
    assert_eq!(put.schedule.next, None);
    let resumed = scene.broker.pause_schedule(&name(), false).await.unwrap();
    assert_eq!(resumed.next, Some(START.after(Millis::minutes(6))), "counted from the time of the change");
}

#[tokio::test]
async fn a_schedule_without_occurrences_is_refused() {
    let scene = Scene::new(minutes()).await;
    let name: ScheduleName = "never".parse().unwrap();
    let refused = async |spec| {
        scene.broker.put_schedule(&name, spec, None, IfDifferent::Change).await.unwrap_err().to_string()
    };
    let thirtieth = Rhythm::Cron { cron: "0 0 30 2 *".to_owned(), time_zone: "UTC".to_owned() };
    assert!(refused(Spec { rhythm: thirtieth, ..minutes() }).await.contains("never comes"));
    assert!(
        refused(Spec { end: Some(START), ..minutes() }).await.contains("nothing would ever be submitted")
    );
    let often = Rhythm::Every { every: Millis(999) };
    assert!(refused(Spec { rhythm: often, ..minutes() }).await.contains("too often"));
    assert_eq!(scene.broker.schedules(None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn schedules_are_listed_in_pages_and_deleted() {
    let scene = Scene::new(minutes()).await;
    for number in 0..150 {
        let name: ScheduleName = format!("s{number:03}").parse().unwrap();
        scene.broker.put_schedule(&name, minutes(), None, IfDifferent::Change).await.unwrap();
    }
    let all = scene.broker.schedules(None, 1000).await.unwrap();
    assert_eq!(all.len(), 151);
    assert!(all.is_sorted_by(|one, other| one.name < other.name));
    let page = scene.broker.schedules(Some(&all[99].name), 30).await.unwrap();
    assert_eq!(page, all[100..130]);
    scene.broker.delete_schedule(&name()).await.unwrap();
    assert!(scene.broker.delete_schedule(&name()).await.is_err());
    scene.clock.advance(60_000);
    scene.run_due().await;
    assert_eq!(scene.items().await.len(), 150);
}

#[tokio::test]
async fn a_lost_answer_leads_to_no_second_item() {
    let clock = Arc::new(ManualClock::new(START));
    let store = Arc::new(losing_answers(ReferenceStore::new(clock.clone(), 1)));
    let spec = Spec { catch_up: CatchUp::All { max: 1000 }, ..minutes() };
    let scene = Scene::on(store.clone(), clock, spec).await;
    store.guard.lose_every(2);
    // The broker tries again a second after a fault.
    for _ in 0..605 {
        scene.clock.advance(1000);
        scene.run_due().await;
    }
    assert_eq!(scene.occurrences().await, once_each(1..=10));
    assert_eq!(scene.schedule().await.tally.submitted, 10);
}
