//! Planted bugs: the test breaks each invariant on purpose, and the checker must notice.
//!
//! Two bugs are real: a killed server gets older data than it had acknowledged. The rest report other answers
//! to the checker than the server gave.

use crate::plan::Plan;
use crate::rig::Server;
use crate::wire;
use crate::world::{QUEUES, World};
use std::path::Path;
use std::time::Duration;
use towline_api::{
    Action, Client, Format, NewItem, ReceiveAnswer, ReceiveRequest, ReceivedItem, Settled, Submitted,
    VerbName,
};
use towline_domain::change::Answer;
use towline_domain::{Item, ItemState, Millis};
use towline_store::{Answered, Reply};

const QUEUE: &str = QUEUES[0].0;

struct Scene {
    world: World,
    client: Client,
    server: Server,
}

impl Scene {
    async fn new() -> Scene {
        let server = Server::start();
        let plan = Plan { seed: 1, clients: 1, items: 0, kills: 0, snapshot_every: 1 };
        let world = World::new(plan, vec![server.url()]);
        world.create_queues().await;
        Scene { client: world.client(Format::Json), world, server }
    }

    async fn submit(&self, payload: &str) {
        let items = vec![NewItem { payload: Some(payload.as_bytes().to_vec().into()), ..NewItem::default() }];
        let read = |answers: &Vec<Submitted>| answers.iter().map(wire::submitted).collect();
        let operations = wire::submits(QUEUE, &items);
        let called = self.world.history.call(operations, None, self.client.submit(QUEUE, items), read).await;
        assert!(called.answer().is_some());
    }

    /// Receives one item. The checker sees it as `lie` changes it.
    async fn receive(&self, visibility: u64, lie: impl FnOnce(&mut Item)) -> ReceivedItem {
        let wait = Some(Millis(5000).into());
        let visibility = Millis(visibility);
        let request =
            ReceiveRequest { wait, visibility_timeout: Some(visibility.into()), ..ReceiveRequest::default() };
        let read = |answer: &ReceiveAnswer| {
            let mut received = wire::received(answer, visibility);
            lie(&mut received.items[0]);
            vec![Ok(Reply::Received(received))]
        };
        let operation = wire::receive(QUEUE, &request);
        let call = self.client.receive(QUEUE, &request);
        self.world.history.call(vec![operation], None, call, read).await.answer().unwrap().items.remove(0)
    }

    /// Settles an item. The checker sees the true answer, or what `lie` returns.
    async fn settle(&self, item: &ReceivedItem, verb: VerbName, lie: Option<ItemState>) {
        let (id, lease) =
            (item.id.clone().into_domain("id").unwrap(), item.lease.clone().into_domain("lease").unwrap());
        let action = Action::new(verb, id, lease);
        let read = |answers: &Vec<Settled>| -> Vec<Answered> {
            vec![match lie {
                None => wire::settled(&action, &answers[0]),
                Some(state) => Ok(Reply::Answer(Answer::State(state))),
            }]
        };
        let operations = wire::leases(std::slice::from_ref(&action));
        let call = self.client.settle(vec![action.clone()]);
        assert!(self.world.history.call(operations, None, call, read).await.answer().is_some());
    }

    /// Kills the server, changes its data with `change`, and starts it again.
    fn restart(&mut self, change: impl FnOnce(&Path, &Path)) {
        self.server.kill();
        let directory = self.server.directory();
        change(&directory.join("data"), &directory.join("older"));
        self.world.history.restarted();
        self.server.restart();
    }

    async fn observe(&self) {
        self.world.history.observed(self.world.snapshot().await);
    }

    #[track_caller]
    fn keeps(&self) {
        assert_eq!(self.world.history.violations(), []);
    }

    #[track_caller]
    fn breaks(&self, invariants: &[u8]) {
        let violations = self.world.history.violations();
        for invariant in invariants {
            assert!(violations.iter().any(|found| found.invariant == *invariant), "{violations:#?}");
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), &target).unwrap()),
        }
    }
}

fn put_back(data: &Path, older: &Path) {
    std::fs::remove_dir_all(data).unwrap();
    copy(older, data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correct_server_has_no_violation() {
    let mut scene = Scene::new().await;
    for payload in ["a", "b", "c"] {
        scene.submit(payload).await;
    }
    let item = scene.receive(60_000, |_| {}).await;
    scene.settle(&item, VerbName::Commit, None).await;
    scene.settle(&item, VerbName::Commit, None).await;
    scene.settle(&item, VerbName::Release, None).await;
    scene.receive(60_000, |_| {}).await;
    scene.restart(|_, _| {});
    scene.observe().await;
    scene.keeps();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_acknowledged_submits_is_caught() {
    let mut scene = Scene::new().await;
    scene.submit("kept").await;
    scene.restart(copy);
    scene.submit("lost").await;
    scene.restart(put_back);
    scene.observe().await;
    scene.breaks(&[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_an_acknowledged_commit_is_caught() {
    let mut scene = Scene::new().await;
    scene.submit("done").await;
    let item = scene.receive(60_000, |_| {}).await;
    scene.restart(copy);
    scene.settle(&item, VerbName::Commit, None).await;
    scene.restart(put_back);
    scene.observe().await;
    scene.breaks(&[6, 12]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_commit_is_caught() {
    let scene = Scene::new().await;
    scene.submit("once").await;
    let first = scene.receive(100, |_| {}).await;
    let second = scene.receive(60_000, |_| {}).await;
    scene.settle(&second, VerbName::Commit, None).await;
    scene.keeps();
    scene.settle(&first, VerbName::Commit, Some(ItemState::Completed)).await;
    scene.breaks(&[4, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_settle_that_is_accepted_is_caught() {
    for verb in [VerbName::Fail, VerbName::Release, VerbName::Defer] {
        let scene = Scene::new().await;
        scene.submit("late").await;
        let item = scene.receive(100, |_| {}).await;
        // Later than any difference of clocks can explain.
        tokio::time::sleep(Duration::from_millis(500)).await;
        scene
            .settle(
                &item,
                verb,
                Some(if verb == VerbName::Fail { ItemState::Failed } else { ItemState::Pending }),
            )
            .await;
        scene.breaks(&[4]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_valid_lease_is_caught() {
    let scene = Scene::new().await;
    scene.submit("mine").await;
    let mine = scene.receive(60_000, |_| {}).await;
    scene.submit("another").await;
    let id = mine.id.into_domain("id").unwrap();
    let steal = |item: &mut Item| {
        (item.head.id, item.head.deliveries, item.head.retries) = (id, 2, 1);
        item.fields.blob = Some("mine".into());
    };
    scene.receive(60_000, steal).await;
    scene.breaks(&[3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_payload_an_item_from_nowhere_and_one_attempt_too_many_are_caught() {
    let scene = Scene::new().await;
    scene.submit("as it was").await;
    scene.receive(60_000, |item| item.fields.blob = Some("as it wos".into())).await;
    scene.breaks(&[2]);

    let scene = Scene::new().await;
    let unheard_of = NewItem { payload: Some(b"?".to_vec().into()), ..NewItem::default() };
    scene.client.submit(QUEUE, vec![unheard_of]).await.unwrap();
    scene.receive(60_000, |_| {}).await;
    scene.breaks(&[2]);

    let scene = Scene::new().await;
    scene.submit("again and again").await;
    scene.receive(60_000, |item| (item.head.deliveries, item.head.retries) = (5, 4)).await;
    scene.breaks(&[7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_that_do_not_add_up_are_caught() {
    let scene = Scene::new().await;
    scene.submit("one").await;
    let mut snapshot = scene.world.snapshot().await;
    snapshot.queues.iter_mut().for_each(|view| view.counts.pending = 2);
    scene.world.history.observed(snapshot);
    scene.breaks(&[9]);
}
