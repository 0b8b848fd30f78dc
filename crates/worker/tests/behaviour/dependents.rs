//! Work that waits for its dependencies.

use crate::{BackendKind, Log, World};
use std::time::Duration;
use towline::{Condition, Error, Failure, Options, Outcome, work};

pub async fn a_dependent_runs_once_when_its_dependencies_have_ended(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let step = {
        let log = log.clone();
        work("step", move |name: String, _| {
            log.add(&name[..]);
            async move { if name == "bad" { Err(Failure::fail("bad")) } else { Ok(Outcome::Result(name)) } }
        })
    };
    // Two systems: the one that ends the last dependency submits the dependent.
    let (system, other) =
        (world.system().work(&step).start().unwrap(), world.system().work(&step).start().unwrap());
    let delayed = Options::new().delay(Duration::from_secs(60));
    let early = system.submit(step.of("early".to_owned())).await.unwrap();
    world.drive(early.result()).await.unwrap();
    let late = other.submit(step.of("late".to_owned()).options(delayed)).await.unwrap();
    let ids = [early.id().to_owned(), late.id().to_owned(), early.id().to_owned()];
    let after = system.submit_after(step.of("after".to_owned()), &ids, Condition::AllSuccess).await.unwrap();
    let chained = [after.id().to_owned()];
    let last = other.submit_after(step.of("last".to_owned()), &chained, Condition::AllDone).await.unwrap();
    assert_eq!(world.drive(last.result()).await.as_deref(), Ok("last"));
    world.pass(600).await;
    assert_eq!(log.read(), ["early", "late", "after", "last"]);
}

pub async fn a_dependent_fails_when_its_condition_cannot_be_met(kind: BackendKind) {
    let world = World::new(kind).await;
    let step = work("step", |succeeds: bool, _| async move {
        if succeeds { Ok(Outcome::Result(())) } else { Err(Failure::fail("bad")) }
    });
    let system = world.system().work(&step).start().unwrap();
    let mut ids = Vec::new();
    for succeeds in [true, false, false] {
        ids.push(system.submit(step.of(succeeds)).await.unwrap().id().to_owned());
    }
    let one = system.submit_after(step.of(true), &ids, Condition::CountOf(1)).await.unwrap();
    let two = system.submit_after(step.of(true), &ids, Condition::CountOf(2)).await.unwrap();
    let then =
        system.submit_after(step.of(true), &[two.id().to_owned()], Condition::AllSuccess).await.unwrap();
    world.drive(one.done()).await.unwrap();
    let error = world.drive(two.done()).await.unwrap_err();
    assert!(error.to_string().contains("2 of its 3 dependencies failed"), "{error}");
    // The failure of a dependent fails its own dependents.
    world.drive(then.done()).await.unwrap_err();
    let refused = system.submit_after(step.of(true), &ids, Condition::CountOf(4)).await.unwrap_err();
    assert_eq!(
        refused,
        Error::Configuration("4 of 3 dependencies cannot complete; wait for fewer".to_owned())
    );
}
