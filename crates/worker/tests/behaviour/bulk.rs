//! Much work at once: submitted in batches, held back by back-pressure, and awaited until the system is idle.

use crate::{BackendKind, Log, World};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use towline::{
    AnyJob, Clock, ConcurrencyLimiter, Condition, Context, Error, Failure, Options, Outcome, Retry, remote,
    work,
};

const SECOND: Duration = Duration::from_secs(1);

pub async fn jobs_submitted_together_are_sent_in_batches(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let logging = |name: &'static str| {
        let log = log.clone();
        work(name, move |n: u32, _| {
            log.add(format!("{name} {n}"));
            async move { Ok(Outcome::Result(n)) }
        })
        .queue(world.queue(name))
    };
    let (a, b) = (logging("a"), logging("b"));
    let system = world.system().work(&a).work(&b).start().unwrap();
    let keyed = |n: u32| a.of(n).options(Options::new().idempotency_key(format!("{}", n % 500)));
    let jobs: Vec<AnyJob> = (0..600).flat_map(|n| [keyed(n).any(), b.of(n).any()]).collect();
    let ids = system.submit_all(jobs).await.unwrap();
    assert_eq!(ids.len(), 1200);
    assert_eq!((ids[0].as_str(), ids[2].as_str(), ids[1000].as_str()), ("a:0", "a:1", "a:0"));
    assert_eq!(world.traffic.submits(), 4, "two queues, batches of 500 and 100 for each");
    world.drive(system.idle()).await.unwrap();
    let mut done = log.read();
    done.sort_unstable();
    done.dedup();
    assert_eq!((done.len(), log.read().len()), (1100, 1100), "500 of a, 600 of b");
    assert_eq!(world.drive(system.handle(&b, &ids[1199]).result()).await, Ok(599));
    assert_eq!(system.submit_all(Vec::<AnyJob>::new()).await.unwrap(), Vec::<String>::new());
}

pub async fn if_one_input_cannot_be_encoded_no_job_is_submitted(kind: BackendKind) {
    let world = World::new(kind).await;
    let half = work("half", |n: f64, _| async move { Ok(Outcome::Result(n / 2.0)) });
    let system = world.system().start().unwrap();
    let error = system.submit_all([1.0, f64::NAN, 2.0].map(|n| half.of(n))).await.unwrap_err();
    assert!(matches!(error, Error::Codec(_)), "{error}");
    assert_eq!(world.depth().await, 0);
}

pub async fn a_submitter_waits_while_the_queue_is_full(kind: BackendKind) {
    let world = World::new(kind).await;
    let (slow, clock) = (Log::default(), world.clock.clone());
    let one = work("one", move |n: u32, _| {
        slow.add("one");
        let slept = clock.sleep_until(clock.now().after(SECOND));
        async move {
            slept.await;
            Ok(Outcome::Result(n))
        }
    });
    let submitter = world.system().backpressure(5, SECOND * 60).start().unwrap();
    for n in 0..5 {
        submitter.submit(one.of(n)).await.unwrap();
    }
    let began = world.clock.now();
    let error = world.drive(submitter.submit(one.of(5))).await.unwrap_err();
    assert_eq!(error, Error::QueueFull { limit: 5, wait: SECOND * 60 });
    assert_eq!((world.clock.now().since(began), world.depth().await), (SECOND * 60, 5));
    // Two submitters wait until a worker makes room.
    let (mut sixth, mut many) =
        (pin!(submitter.submit(one.of(6))), pin!(submitter.submit_all((7..27).map(|n| one.of(n)))));
    assert!(is_pending(sixth.as_mut()).await && is_pending(many.as_mut()).await);
    let worker = world.system().work(&one).concurrency(ConcurrencyLimiter::balanced(1)).start().unwrap();
    let both = async { (sixth.await.unwrap().result().await, many.await.unwrap().len()) };
    assert_eq!(world.drive(both).await, (Ok(6), 20));
    world.drive(worker.idle()).await.unwrap();
    assert_eq!(worker.stats().completed, 26);
}

async fn is_pending<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

pub async fn a_submit_by_a_handler_never_waits_for_room(kind: BackendKind) {
    let world = World::new(kind).await;
    let leaf = work("leaf", |n: u32, _| async move { Ok(Outcome::Append(n)) });
    let root = {
        let leaf = leaf.clone();
        work("root", move |(): (), context: Context| {
            let leaf = leaf.clone();
            async move {
                for n in 0..5 {
                    context.submit(leaf.of(n)).await?;
                }
                Ok(Outcome::<u32>::submit((5..10).map(|n| leaf.of(n))))
            }
        })
    };
    let system = world.system().work(&leaf).work(&root).concurrency(ConcurrencyLimiter::balanced(1));
    let system = system.backpressure(1, Duration::ZERO).start().unwrap();
    let handle = system.submit(root.of(())).await.unwrap();
    let mut all: Vec<u32> = world.drive(handle.group_all()).await.unwrap();
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<u32>>());
}

pub async fn a_system_is_idle_when_no_work_is_left(kind: BackendKind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let (clock, began) = (world.clock.clone(), world.clock.now());
    let flaky = {
        let log = log.clone();
        work("flaky", move |name: String, context: Context| {
            log.add(format!(
                "{name} {} in hour {}",
                context.attempt(),
                clock.now().since(began).as_secs() / 3600
            ));
            async move {
                match context.attempt() {
                    1 => Err(Failure::retry_after("not at first", Duration::from_secs(7))),
                    _ => Ok(Outcome::Result(())),
                }
            }
        })
    };
    let other = world.queue("other");
    let aside = remote::<(), ()>("aside").queue(std::sync::Arc::clone(&other));
    let system = world.system().work(&flaky).start().unwrap();
    world.drive(system.idle()).await.unwrap();
    assert_eq!(world.clock.now(), began, "the system was idle at once");
    let hour = Options::new().delay(Duration::from_secs(3600));
    let first = system.submit(flaky.of("first".to_owned()).options(hour)).await.unwrap();
    let last = flaky.of("last".to_owned());
    system.submit_after(last, &[first.id().to_owned()], Condition::AllDone).await.unwrap();
    system.submit(aside.of(())).await.unwrap();
    world.drive(system.idle()).await.unwrap();
    assert_eq!(
        log.read(),
        ["first 1 in hour 1", "first 2 in hour 1", "last 1 in hour 1", "last 2 in hour 1"]
    );
    // The system does not receive from that queue.
    assert_eq!(other.size().await.unwrap(), Some(1));
    assert_eq!(system.stats().running, 0);
}

pub async fn a_system_is_not_idle_while_another_system_holds_a_lease(kind: BackendKind) {
    let world = World::new(kind).await;
    let (clock, began) = (world.clock.clone(), world.clock.now());
    let slow = work("slow", move |(): (), _| {
        let slept = clock.sleep_until(clock.now().after(SECOND * 10));
        async move {
            slept.await;
            Ok(Outcome::Result(()))
        }
    });
    let worker = world.system().work(&slow).start().unwrap();
    let submitter = world.system().start().unwrap();
    submitter.submit(slow.of(())).await.unwrap();
    world.pass(1).await;
    assert_eq!((world.depth().await, worker.stats().running, submitter.stats().running), (0, 1, 0));
    world.drive(submitter.idle()).await.unwrap();
    assert!(world.clock.now().since(began) >= SECOND * 10);
    assert_eq!(worker.stats().completed, 1);
}

pub async fn a_thousand_children_are_submitted_in_batches_and_all_waited_for(kind: BackendKind) {
    let world = World::new(kind).await;
    let child =
        work("child", |n: u64, _| async move { Ok(Outcome::Append(n)) }).queue(world.queue("children"));
    let sum = work("sum", |(): (), _| async { Ok(Outcome::Result("all".to_owned())) });
    let parent = {
        let (child, sum) = (child.clone(), sum.clone());
        work("parent", move |n: u64, _| {
            let (child, sum) = (child.clone(), sum.clone());
            async move {
                Ok(Outcome::<()>::submit_then((0..n).map(|n| child.of(n)), Condition::AllSuccess, sum.of(())))
            }
        })
    };
    let defaults = Options::new().retry(Retry::never());
    let system = world.system().work(&child).work(&sum).work(&parent).defaults(defaults).start().unwrap();
    let handle = system.submit(parent.of(1001)).await.unwrap();
    let before = world.traffic.submits();
    assert_eq!(world.drive(handle.group::<String>()).await.unwrap().as_deref(), Some("all"));
    // Three batches of children, and one submit of the dependent by each child that saw the condition met.
    assert!(world.traffic.submits() - before < 100, "{} submits", world.traffic.submits() - before);
    let all: Vec<u64> = handle.group_all().await.unwrap();
    assert_eq!((all.len(), all.iter().sum::<u64>()), (1001, 500_500));
}
