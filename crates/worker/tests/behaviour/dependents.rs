//! Work that waits for work.

use crate::{Kind, Log, World};
use std::time::Duration;
use towline::{Error, Failure, Options, Outcome, When, work};

pub async fn it_runs_once_when_all_have_ended_however_late_it_was_said(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let step = {
        let log = log.clone();
        work("step", move |name: String, _| {
            log.add(&name[..]);
            async move { if name == "bad" { Err(Failure::abort("bad")) } else { Ok(Outcome::Result(name)) } }
        })
    };
    // Two systems: whoever ends the last one queues it.
    let (system, other) =
        (world.system().work(&step).start().unwrap(), world.system().work(&step).start().unwrap());
    let delayed = Options::new().delay(Duration::from_secs(60));
    let early = system.queue(step.of("early".to_owned())).await.unwrap();
    world.drive(early.result()).await.unwrap();
    let late = other.queue(step.of("late".to_owned()).options(delayed)).await.unwrap();
    let ids = [early.id().to_owned(), late.id().to_owned(), early.id().to_owned()];
    let after = system.queue_after(step.of("after".to_owned()), &ids, When::AllSuccess).await.unwrap();
    let chained = [after.id().to_owned()];
    let last = other.queue_after(step.of("last".to_owned()), &chained, When::AllDone).await.unwrap();
    assert_eq!(world.drive(last.result()).await.as_deref(), Ok("last"));
    world.pass(600).await;
    assert_eq!(log.read(), ["early", "late", "after", "last"]);
}

pub async fn what_cannot_come_any_more_fails_what_waits_for_it(kind: Kind) {
    let world = World::new(kind).await;
    let step = work("step", |well: bool, _| async move {
        if well { Ok(Outcome::Result(())) } else { Err(Failure::abort("bad")) }
    });
    let system = world.system().work(&step).start().unwrap();
    let mut ids = Vec::new();
    for well in [true, false, false] {
        ids.push(system.queue(step.of(well)).await.unwrap().id().to_owned());
    }
    let one = system.queue_after(step.of(true), &ids, When::Count(1)).await.unwrap();
    let two = system.queue_after(step.of(true), &ids, When::Count(2)).await.unwrap();
    let then = system.queue_after(step.of(true), &[two.id().to_owned()], When::AllSuccess).await.unwrap();
    world.drive(one.done()).await.unwrap();
    let error = world.drive(two.done()).await.unwrap_err();
    assert!(error.to_string().contains("2 of the 3 it waited for did not end well"), "{error}");
    // And so on.
    world.drive(then.done()).await.unwrap_err();
    let refused = system.queue_after(step.of(true), &ids, When::Count(4)).await.unwrap_err();
    assert_eq!(refused, Error::Configuration("4 of 3 cannot end well; wait for fewer".to_owned()));
}
