//! How long output buffers are kept after the commit of the attempt that they were made for.

use crate::scene::{Scene, code, commit, commit_with, often, output_buffer, queue, release, token};
use towline_domain::command::{HandOff, Verb};
use towline_domain::{Adjust, BufferId, Item, LeaseCall, LeaseToken, Millis, PolicyPatch, Submission};
use towline_store::{Answered, Operation};

impl Scene {
    async fn set_output_ttl(&self, output_ttl: Option<Millis>) {
        let patch = Box::new(PolicyPatch { output_ttl: Some(output_ttl), ..PolicyPatch::default() });
        self.run(Operation::ChangePolicy { queue: queue(), patch }).await.unwrap();
    }

    /// Waits until a round of collection has gone through everything that is there now, at a later time.
    async fn later_round(&self) {
        let (rounds, now) = (self.broker.collected().rounds, self.broker.now());
        self.until("the clock goes on", || async { self.broker.now().since(now).0 > 5 }).await;
        self.until("a whole round", || async { self.broker.collected().rounds >= rounds + 2 }).await;
    }

    async fn expires_at(&self, id: &BufferId) -> Option<u64> {
        self.buffers.meta(id.as_str()).await.unwrap().expires_at_ms
    }

    /// A commit that the store refuses: it hands an item off to a queue that does not exist.
    async fn refused_commit(&self, item: &Item, verb: Verb) {
        let hand_off = HandOff { queue: "none".parse().unwrap(), submission: Submission::default() };
        let adjust = Adjust { then_submit: vec![hand_off], ..Adjust::default() };
        assert_eq!(code(self.settle_with(item, verb, adjust).await), "queue_not_found");
    }

    async fn settle_under(&self, item: &Item, token: LeaseToken, verb: Verb) -> Answered {
        let call = Box::new(LeaseCall { token, verb, adjust: Adjust::default() });
        self.run(Operation::Lease { id: item.head.id, call }).await
    }
}

#[tokio::test]
async fn committed_outputs_are_removed_after_the_output_ttl() {
    let scene = Scene::new(often(60_000)).await;
    let kept = scene.held().await;
    scene.write(&output_buffer(&kept), b"kept").await.unwrap();
    scene.settle(&kept, commit()).await.unwrap();
    scene.set_output_ttl(Some(Millis(400))).await;
    let (unnamed, named) = (scene.held().await, scene.held().await);
    let own = scene.create("own").await;
    for (item, verb) in [(&unnamed, commit()), (&named, commit_with(&output_buffer(&named)))] {
        let buffer = output_buffer(item);
        scene.write(&buffer, b"short").await.unwrap();
        scene.settle(item, verb).await.unwrap();
        assert!(scene.readable(&buffer).await, "readable from the commit on");
        let expires_at = scene.buffers.meta(buffer.as_str()).await.unwrap().expires_at_ms;
        assert!(expires_at.is_some_and(|at| at > unnamed.head.created_at.0 + 400));
    }
    // A buffer that a client made keeps its own time to live.
    let held = scene.held().await;
    scene.write(&own, b"own").await.unwrap();
    scene.settle(&held, commit_with(&own)).await.unwrap();
    for item in [&unnamed, &named] {
        scene
            .until("the output is removed", || async { scene.state(&output_buffer(item)).await.is_none() })
            .await;
        assert_eq!(scene.stored(item.head.id).await.outcome.outputs.len(), 1, "the item still names it");
    }
    assert!(scene.readable(&output_buffer(&kept)).await && scene.readable(&own).await);
}

#[tokio::test]
async fn a_refused_commit_loses_no_output() {
    let scene = Scene::new(often(60_000)).await;
    scene.set_output_ttl(Some(Millis(1))).await;
    let (unnamed, named) = (scene.held().await, scene.held().await);
    let commits = [(&unnamed, commit()), (&named, commit_with(&output_buffer(&named)))];
    for (item, verb) in &commits {
        scene.write(&output_buffer(item), b"result").await.unwrap();
        scene.refused_commit(item, verb.clone()).await;
    }
    scene.later_round().await;
    // The workers keep their leases. Meanwhile the queue keeps outputs for good.
    scene.set_output_ttl(None).await;
    for (item, verb) in commits {
        scene.settle(item, verb).await.unwrap();
        assert_eq!(scene.expires_at(&output_buffer(item)).await, None);
    }
    scene.later_round().await;
    for item in [&unnamed, &named] {
        assert!(scene.readable(&output_buffer(item)).await);
    }
}

#[tokio::test]
async fn a_commit_that_changes_nothing_leaves_a_kept_output_as_it_is() {
    let scene = Scene::new(often(60_000)).await;
    let item = scene.held().await;
    let id = output_buffer(&item);
    scene.write(&id, b"kept").await.unwrap();
    scene.settle(&item, commit_with(&id)).await.unwrap();
    scene.set_output_ttl(Some(Millis(1))).await;
    // The same commit again, and commits under another lease.
    scene.settle(&item, commit_with(&id)).await.unwrap();
    let other = scene.held().await;
    assert_eq!(code(scene.settle_under(&item, token(&other), commit_with(&id)).await), "lease_lost");
    assert_eq!(code(scene.settle_under(&other, token(&item), commit_with(&id)).await), "lease_lost");
    assert_eq!(scene.expires_at(&id).await, None);
    scene.later_round().await;
    assert!(scene.state(&id).await.is_some());
}

#[tokio::test]
async fn an_output_that_another_item_committed_outlives_the_output_ttl() {
    for maker_first in [true, false] {
        let scene = Scene::new(often(60_000)).await;
        scene.set_output_ttl(Some(Millis(1))).await;
        let pause = scene.broker.pause_deletions().await;
        let (maker, control, other) = (scene.held().await, scene.held().await, scene.held().await);
        let (id, unshared) = (output_buffer(&maker), output_buffer(&control));
        for (item, id) in [(&maker, &id), (&control, &unshared)] {
            scene.write(id, b"shared").await.unwrap();
            if maker_first {
                scene.settle(item, commit()).await.unwrap();
            }
        }
        scene.settle(&other, commit_with(&id)).await.unwrap();
        if !maker_first {
            scene.settle(&maker, commit()).await.unwrap();
            scene.settle(&control, commit()).await.unwrap();
        }
        drop(pause);
        scene.until("the other output is removed", || async { scene.state(&unshared).await.is_none() }).await;
        scene.later_round().await;
        assert!(scene.state(&id).await.is_some() && scene.readable(&id).await, "maker first: {maker_first}");
    }
}

#[tokio::test]
async fn an_attempt_that_ends_after_a_refused_commit_does_not_keep_its_buffer() {
    let scene = Scene::new(often(300)).await;
    scene.set_output_ttl(Some(Millis::hours(1))).await;
    let item = scene.held().await;
    let id = output_buffer(&item);
    scene.write(&id, b"result").await.unwrap();
    scene.refused_commit(&item, commit()).await;
    scene.settle(&item, release()).await.unwrap();
    scene.until("the buffer is collected", || async { scene.state(&id).await.is_none() }).await;
}
