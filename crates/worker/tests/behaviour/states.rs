//! How pieces of work stand, as others see it.

use crate::{Kind, World};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use towline::{Clock, Context, Failure, Options, Outcome, Retry, State, When, work};

fn failed(error: &str) -> Option<State> {
    Some(State::Failed { error: error.to_owned() })
}

pub async fn others_see_how_a_piece_of_work_stands(kind: Kind) {
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
    let asks = world.system().keep_states().start().unwrap();
    let handle = asks.queue(slow.of(()).options(Options::new().retry(retry))).await.unwrap();
    let id = handle.id().to_owned();
    assert_eq!(handle.state().await, Ok(Some(State::Queued)));
    let after =
        asks.queue_after(looks.of(id.clone()), std::slice::from_ref(&id), When::AllDone).await.unwrap();
    assert_eq!(after.state().await, Ok(Some(State::Waiting)));
    let works = world.system().keep_states().work(&slow).work(&looks).start().unwrap();
    world.pass(5).await;
    assert_eq!(asks.state(&id).await, Ok(Some(State::Running { attempt: 1 })));
    let seen = asks.queue(looks.of(id.clone())).await.unwrap();
    assert_eq!(world.drive(seen.result()).await.unwrap(), "Some(Running { attempt: 1 })");
    world.pass(20).await;
    assert_eq!(handle.state().await, Ok(Some(State::Queued)), "it failed, and waits for its second attempt");
    world.pass(20).await;
    assert_eq!(handle.state().await, Ok(Some(State::Running { attempt: 2 })));
    assert_eq!(world.drive(after.result()).await.unwrap(), "Some(Completed)");
    assert_eq!(
        (handle.state().await, after.state().await),
        (Ok(Some(State::Completed)), Ok(Some(State::Completed)))
    );
    assert_eq!(works.state("nobody").await, Ok(None));
}

pub async fn one_that_was_redriven_runs_again(kind: Kind) {
    let world = World::new(kind).await;
    let (clock, began) = (world.clock.clone(), world.clock.now());
    let bad = work("bad", move |(): (), _| {
        let (first, slept) = (clock.now().since(began) < Duration::from_secs(60), Duration::from_secs(10));
        let slept = clock.sleep_until(clock.now().after(slept));
        async move {
            slept.await;
            if first { Err(Failure::abort("no")) } else { Ok(Outcome::Result(())) }
        }
    });
    let system = world.system().keep_states().work(&bad).start().unwrap();
    let handle = system.queue(bad.of(())).await.unwrap();
    world.pass(60).await;
    assert_eq!(handle.state().await, Ok(failed("no")));
    assert_eq!(system.redrive(1).await, Ok(1));
    world.pass(5).await;
    assert_eq!(handle.state().await, Ok(Some(State::Running { attempt: 1 })));
    world.pass(20).await;
    assert_eq!(handle.state().await, Ok(Some(State::Completed)));
}

pub async fn a_group_is_seen_with_all_its_members(kind: Kind) {
    let world = World::new(kind).await;
    let leaf = work("leaf", |well: bool, context: Context| async move {
        let of_group = context.group_states().await?;
        assert_eq!(of_group.len(), 4, "{of_group:?}");
        if well { Ok(Outcome::Append(())) } else { Err(Failure::abort("no")) }
    });
    let root = {
        let leaf = leaf.clone();
        work("root", move |(): (), _| {
            let leaf = leaf.clone();
            async move { Ok(Outcome::<()>::queue([true, false, true].map(|well| leaf.of(well)))) }
        })
    };
    let orphans = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&orphans);
    let system = world.system().keep_states().work(&leaf).work(&root);
    let system = system.on_orphan(move |orphan| told.lock().unwrap().push(orphan)).start().unwrap();
    let handle = system.queue(root.of(())).await.unwrap();
    world.pass(60).await;
    let states = handle.group_states().await.unwrap();
    assert_eq!(states[0], (handle.id().to_owned(), State::Completed));
    let count = |state: &State| states.iter().filter(|(_, of)| of == state).count();
    assert_eq!((states.len(), count(&State::Completed), count(&failed("no").unwrap())), (4, 3, 1));
    let orphans = orphans.lock().unwrap();
    assert_eq!(orphans.len(), 1);
    assert_eq!(orphans[0].states, states);
}

pub async fn without_being_told_to_a_system_knows_what_ended_and_what_waits(kind: Kind) {
    let world = World::new(kind).await;
    let one = work("one", |(): (), _| async { Ok(Outcome::Result(())) });
    let asks = world.system().start().unwrap();
    let handle = asks.queue(one.of(())).await.unwrap();
    let after = asks.queue_after(one.of(()), &[handle.id().to_owned()], When::AllDone).await.unwrap();
    assert_eq!((handle.state().await, after.state().await), (Ok(None), Ok(Some(State::Waiting))));
    let _works = world.system().work(&one).start().unwrap();
    world.drive(after.done()).await.unwrap();
    assert_eq!(
        (handle.state().await, after.state().await),
        (Ok(Some(State::Completed)), Ok(Some(State::Completed)))
    );
    assert_eq!(handle.group_states().await.unwrap().len(), 1, "the root is known by its name");
}
