use super::scene::{START, Scene, queue};
use crate::change::{Answer, QueueChange};
use crate::command::{Command, NewQueue};
use crate::counts::Counts;
use crate::event::EventKind;
use crate::id::QueueId;
use crate::policy::{Policy, PolicyPatch};
use crate::queue::QueueState;
use crate::refusal::Refusal;
use crate::schema::Schema;
use crate::time::{Millis, Timestamp};

fn create(policy: Policy, schema: Schema) -> Command {
    Command::CreateQueue(Box::new(NewQueue { id: QueueId(9), name: "q".parse().unwrap(), schema, policy }))
}

#[test]
fn creating_a_queue_again_succeeds_and_with_differences_is_refused_with_their_names() {
    let mut scene = Scene::new();
    let policy = scene.queue.policy.clone();
    let answer = scene.run(create(policy.clone(), Schema::default())).unwrap();
    assert_eq!(answer, Answer::Queue(Box::new(scene.queue.clone())));
    assert!(scene.change().is_empty());
    let schema = Schema { inputs: [("a".parse().unwrap(), true)].into(), ..Schema::default() };
    for (policy, schema, what) in [
        (Policy { max_retries: 9, ..policy.clone() }, Schema::default(), "policy.max_retries"),
        (policy.clone(), schema.clone(), "schema.inputs"),
        (Policy { max_retries: 9, ..policy }, schema, "schema.inputs, policy.max_retries"),
    ] {
        let name = "q".to_owned();
        let what = what.to_owned();
        assert_eq!(scene.run(create(policy, schema)), Err(Refusal::QueueExists { name, what }));
    }
}

#[test]
fn numbers_out_of_range_are_refused_by_name() {
    type Edit = fn(&mut Policy);
    let wrong: [(&str, Edit); 8] = [
        ("visibility_timeout", |policy| policy.visibility_timeout = Millis(0)),
        ("visibility_timeout", |policy| policy.visibility_timeout = Millis(u64::MAX)),
        ("max_retries", |policy| policy.max_retries = 10_001),
        ("failed_ttl", |policy| policy.failed_ttl = Some(Millis(u64::MAX))),
        ("expire_after", |policy| policy.expire_after = Some(Millis(u64::MAX))),
        ("poison_after", |policy| policy.poison_after = Some(0)),
        ("depth_limit", |policy| policy.depth_limit = Some(0)),
        ("lease.renewal_permille", |policy| policy.lease.renewal_permille = Some(1001)),
    ];
    for (name, change) in wrong {
        let mut policy = Policy::default();
        change(&mut policy);
        let refused = Scene::new().run(create(policy, Schema::default())).unwrap_err();
        assert!(matches!(refused, Refusal::Invalid { what, .. } if what == name), "{name}: {refused}");
    }
}

#[test]
fn a_queue_is_not_its_own_dead_letter_queue() {
    let name = || Some("q".parse().unwrap());
    let policy = Policy { dead_letter_queue: name(), ..Policy::default() };
    assert_eq!(Scene::new().run(create(policy, Schema::default())).unwrap_err().code(), "invalid");
    let patch = PolicyPatch { dead_letter_queue: Some(name()), ..PolicyPatch::default() };
    assert_eq!(Scene::new().run(Command::ChangePolicy(Box::new(patch))).unwrap_err().code(), "invalid");
}

#[test]
fn a_patch_changes_its_fields_and_can_remove_a_limit() {
    let mut scene = Scene::with(|policy| policy.depth_limit = Some(5));
    let before = scene.queue.clone();
    let patch = PolicyPatch { max_retries: Some(8), depth_limit: Some(None), ..PolicyPatch::default() };
    scene.run(Command::ChangePolicy(Box::new(patch.clone()))).unwrap();
    assert_eq!((scene.queue.policy.max_retries, scene.queue.policy.depth_limit), (8, None));
    assert_eq!(scene.queue.policy.visibility_timeout, before.policy.visibility_timeout);
    assert_eq!(scene.queue.revision, before.revision + 1);
    scene.run(Command::ChangePolicy(Box::new(patch))).unwrap();
    assert!(scene.change().is_empty());
}

#[test]
fn closing_an_empty_queue_completes_it_and_it_never_reopens() {
    let mut scene = Scene::new();
    scene.run(Command::CloseQueue).unwrap();
    let completed = QueueState::Completed { since: Timestamp(START) };
    assert_eq!(scene.queue.state, completed);
    assert_eq!(scene.change().event(), Some(EventKind::QueueCompleted));
    scene.later(5);
    for command in [Command::CloseQueue, Command::PauseQueue, Command::ResumeQueue] {
        scene.run(command).unwrap();
        assert_eq!(scene.queue.state, completed);
    }
}

#[test]
fn a_queue_with_unfinished_items_is_closed_and_not_completed() {
    for kind in ["pending", "scheduled", "processing", "paused"] {
        let mut scene = Scene::new();
        let mut counts = Counts { completed: 5, failed: 5, ..Counts::default() };
        match kind {
            "pending" => counts.pending = 1,
            "scheduled" => counts.scheduled = 1,
            "processing" => counts.processing = 1,
            _ => counts.paused = 1,
        }
        scene.other_counts = counts;
        scene.run(Command::CloseQueue).unwrap();
        assert_eq!(scene.queue.state.name(), "closed", "{kind}");
    }
}

#[test]
fn pausing_is_independent_of_closing() {
    let mut scene = Scene::new();
    scene.submit(|_| {}).unwrap();
    scene.run(Command::PauseQueue).unwrap();
    assert!(scene.queue.paused);
    assert_eq!(scene.queue.state, QueueState::Open);
    scene.run(Command::PauseQueue).unwrap();
    assert!(scene.change().is_empty());
    scene.run(Command::CloseQueue).unwrap();
    scene.run(Command::ResumeQueue).unwrap();
    assert!(!scene.queue.paused);
    assert_eq!(scene.queue.state.name(), "closed");
}

#[test]
fn a_queue_with_unfinished_items_is_deleted_only_with_force() {
    let mut scene = Scene::new();
    scene.other_counts.processing = 2;
    let refused = scene.run(Command::DeleteQueue { force: false }).unwrap_err();
    assert!(matches!(refused, Refusal::QueueBusy { unfinished: 2, .. }), "{refused}");
    assert_eq!(scene.run(Command::DeleteQueue { force: true }), Ok(Answer::QueueDeleted));
    assert_eq!(scene.change().queue(), Some(&QueueChange::Deleted));
    let mut scene = Scene::new();
    scene.other_counts.completed = 2;
    scene.run(Command::DeleteQueue { force: false }).unwrap();
}

#[test]
fn a_command_without_its_queue_or_item_is_refused() {
    let now = Timestamp(START);
    let nothing = crate::decide::Context::default();
    for command in
        [Command::CloseQueue, Command::PauseQueue, Command::DeleteQueue { force: true }, Command::Elapse]
    {
        assert!(crate::decide::decide(&nothing, command, now).is_err());
    }
    let only_queue = queue(1, "q", |_| {});
    let context = crate::decide::Context { queue: Some(&only_queue), ..Default::default() };
    for command in [Command::Pause, Command::Resume, Command::Redrive, Command::Elapse] {
        assert!(crate::decide::decide(&context, command, now).is_err());
    }
}
