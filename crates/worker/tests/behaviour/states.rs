//! States of work.

use crate::{BackendKind, World};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use towline::{Clock, Condition, Context, Failure, Options, Outcome, Retry, State, work};

fn failed(error: &str) -> Option<State> {
    Some(State::Failed { error: error.to_owned() })
}

pub async fn every_state_of_work_is_visible(kind: BackendKind) {
    let world = World::new(kind).await;
    let clock = world.clock.clone();
    let slow = work("slow", move |(): (), context: Context| {
        let slept = clock.sleep_until(clock.now().after(Duration::from_secs(10)));
        async move {
            slept.await;
            if context.attempt() == 1 { Err(Failure::retry("not at first")) } else { Ok(Outcome::Result(())) }
        }
    });
    let looks = work("looks", |id: String, context: Context| async move {
        Ok(Outcome::Result(format!("{:?}", context.state(&id).await?)))
    });
    let retry = Retry { base: Duration::from_secs(30), jitter: 0.0, ..Retry::default() };
    let submitter = world.system().track_states().start().unwrap();
    let handle = submitter.submit(slow.of(()).options(Options::new().retry(retry))).await.unwrap();
    let id = handle.id().to_owned();
    assert_eq!(handle.state().await, Ok(Some(State::Pending)));
    let after = submitter
        .submit_after(looks.of(id.clone()), std::slice::from_ref(&id), Condition::AllDone)
        .await
        .unwrap();
    assert_eq!(after.state().await, Ok(Some(State::Waiting)));
    let worker = world.system().track_states().work(&slow).work(&looks).start().unwrap();
    world.pass(5).await;
    assert_eq!(submitter.state(&id).await, Ok(Some(State::Processing { attempt: 1 })));
    let seen = submitter.submit(looks.of(id.clone())).await.unwrap();
    assert_eq!(world.drive(seen.result()).await.unwrap(), "Some(Processing { attempt: 1 })");
    world.pass(20).await;
    assert_eq!(handle.state().await, Ok(Some(State::Pending)), "it waits for its second attempt");
    world.pass(20).await;
    assert_eq!(handle.state().await, Ok(Some(State::Processing { attempt: 2 })));
    assert_eq!(world.drive(after.result()).await.unwrap(), "Some(Completed)");
    assert_eq!(
        (handle.state().await, after.state().await),
        (Ok(Some(State::Completed)), Ok(Some(State::Completed)))
    );
    assert_eq!(worker.state("unknown id").await, Ok(None));
}

pub async fn redriven_work_is_processing_again(kind: BackendKind) {
    let world = World::new(kind).await;
    let (clock, began) = (world.clock.clone(), world.clock.now());
    let bad = work("bad", move |(): (), _| {
        let (first, slept) = (clock.now().since(began) < Duration::from_secs(60), Duration::from_secs(10));
        let slept = clock.sleep_until(clock.now().after(slept));
        async move {
            slept.await;
            if first { Err(Failure::fail("no")) } else { Ok(Outcome::Result(())) }
        }
    });
    let system = world.system().track_states().work(&bad).start().unwrap();
    let handle = system.submit(bad.of(())).await.unwrap();
    world.pass(60).await;
    assert_eq!(handle.state().await, Ok(failed("no")));
    assert_eq!(system.redrive(1).await, Ok(1));
    world.pass(5).await;
    assert_eq!(handle.state().await, Ok(Some(State::Processing { attempt: 1 })));
    world.pass(20).await;
    assert_eq!(handle.state().await, Ok(Some(State::Completed)));
}

pub async fn group_states_list_all_members(kind: BackendKind) {
    let world = World::new(kind).await;
    let leaf = work("leaf", |succeeds: bool, context: Context| async move {
        let of_group = context.group_states().await?;
        assert_eq!(of_group.len(), 4, "{of_group:?}");
        if succeeds { Ok(Outcome::Append(())) } else { Err(Failure::fail("no")) }
    });
    let root = {
        let leaf = leaf.clone();
        work("root", move |(): (), _| {
            let leaf = leaf.clone();
            async move { Ok(Outcome::<()>::submit([true, false, true].map(|succeeds| leaf.of(succeeds)))) }
        })
    };
    let orphans = Arc::new(Mutex::new(Vec::new()));
    let reported = Arc::clone(&orphans);
    let system = world.system().track_states().work(&leaf).work(&root);
    let system = system.on_orphan(move |orphan| reported.lock().unwrap().push(orphan)).start().unwrap();
    let handle = system.submit(root.of(())).await.unwrap();
    world.pass(60).await;
    let states = handle.group_states().await.unwrap();
    assert_eq!(states[0], (handle.id().to_owned(), State::Completed));
    let count = |state: &State| states.iter().filter(|(_, of)| of == state).count();
    assert_eq!((states.len(), count(&State::Completed), count(&failed("no").unwrap())), (4, 3, 1));
    let orphans = orphans.lock().unwrap();
    assert_eq!(orphans.len(), 1);
    assert_eq!(orphans[0].states, states);
}

pub async fn ended_and_waiting_work_is_known_without_tracking(kind: BackendKind) {
    let world = World::new(kind).await;
    let one = work("one", |(): (), _| async { Ok(Outcome::Result(())) });
    let submitter = world.system().start().unwrap();
    let handle = submitter.submit(one.of(())).await.unwrap();
    let after =
        submitter.submit_after(one.of(()), &[handle.id().to_owned()], Condition::AllDone).await.unwrap();
    assert_eq!((handle.state().await, after.state().await), (Ok(None), Ok(Some(State::Waiting))));
    let _worker = world.system().work(&one).start().unwrap();
    world.drive(after.done()).await.unwrap();
    assert_eq!(
        (handle.state().await, after.state().await),
        (Ok(Some(State::Completed)), Ok(Some(State::Completed)))
    );
    assert_eq!(
        handle.group_states().await.unwrap().len(),
        1,
        "the name of the group contains the id of the root"
    );
}
