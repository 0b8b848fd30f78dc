//! Many at once: queued together, held up while too much waits, and waited for until nothing is left.

use crate::{Kind, Log, World};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use towline::{AnyJob, Clock, Context, Doer, Error, Failure, Options, Outcome, Retry, When, elsewhere, work};

const SECOND: Duration = Duration::from_secs(1);

pub async fn what_is_queued_together_is_pushed_together(kind: Kind) {
    let world = World::new(kind).await;
    let log = Log::default();
    let noted = |name: &'static str| {
        let log = log.clone();
        work(name, move |n: u32, _| {
            log.add(format!("{name} {n}"));
            async move { Ok(Outcome::Result(n)) }
        })
        .queue(world.queue(name))
    };
    let (a, b) = (noted("a"), noted("b"));
    let system = world.system().work(&a).work(&b).start().unwrap();
    let keyed = |n: u32| a.of(n).options(Options::new().dedupe_key(format!("{}", n % 500)));
    let jobs: Vec<AnyJob> = (0..600).flat_map(|n| [keyed(n).any(), b.of(n).any()]).collect();
    let ids = system.queue_all(jobs).await.unwrap();
    assert_eq!(ids.len(), 1200);
    assert_eq!((ids[0].as_str(), ids[2].as_str(), ids[1000].as_str()), ("a:0", "a:1", "a:0"));
    assert_eq!(world.traffic.pushes(), 4, "two queues, 500 and 100 of each");
    world.drive(system.idle()).await.unwrap();
    let mut done = log.read();
    done.sort_unstable();
    done.dedup();
    assert_eq!((done.len(), log.read().len()), (1100, 1100), "500 of a, 600 of b");
    assert_eq!(world.drive(system.handle(&b, &ids[1199]).result()).await, Ok(599));
    assert_eq!(system.queue_all(Vec::<AnyJob>::new()).await.unwrap(), Vec::<String>::new());
}

pub async fn if_one_cannot_be_written_down_none_is_queued(kind: Kind) {
    let world = World::new(kind).await;
    let half = work("half", |n: f64, _| async move { Ok(Outcome::Result(n / 2.0)) });
    let system = world.system().start().unwrap();
    let error = system.queue_all([1.0, f64::NAN, 2.0].map(|n| half.of(n))).await.unwrap_err();
    assert!(matches!(error, Error::Codec(_)), "{error}");
    assert_eq!(world.waiting().await, 0);
}

pub async fn who_queues_too_much_is_held_up_until_there_is_room(kind: Kind) {
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
    let asks = world.system().backpressure(5, SECOND * 60).start().unwrap();
    for n in 0..5 {
        asks.queue(one.of(n)).await.unwrap();
    }
    let began = world.clock.now();
    let error = world.drive(asks.queue(one.of(5))).await.unwrap_err();
    assert_eq!(error, Error::Full { limit: 5, wait: SECOND * 60 });
    assert_eq!((world.clock.now().since(began), world.waiting().await), (SECOND * 60, 5));
    // Two who wait, and a worker who comes.
    let (mut sixth, mut many) =
        (pin!(asks.queue(one.of(6))), pin!(asks.queue_all((7..27).map(|n| one.of(n)))));
    assert!(is_pending(sixth.as_mut()).await && is_pending(many.as_mut()).await);
    let works = world.system().work(&one).doer(Doer::balanced(1)).start().unwrap();
    let both = async { (sixth.await.unwrap().result().await, many.await.unwrap().len()) };
    assert_eq!(world.drive(both).await, (Ok(6), 20));
    world.drive(works.idle()).await.unwrap();
    assert_eq!(works.stats().completed, 26);
}

async fn is_pending<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

pub async fn what_a_handler_queues_is_never_held_up(kind: Kind) {
    let world = World::new(kind).await;
    let leaf = work("leaf", |n: u32, _| async move { Ok(Outcome::Append(n)) });
    let root = {
        let leaf = leaf.clone();
        work("root", move |(): (), context: Context| {
            let leaf = leaf.clone();
            async move {
                for n in 0..5 {
                    context.queue(leaf.of(n)).await?;
                }
                Ok(Outcome::<u32>::queue((5..10).map(|n| leaf.of(n))))
            }
        })
    };
    let system = world.system().work(&leaf).work(&root).doer(Doer::balanced(1));
    let system = system.backpressure(1, Duration::ZERO).start().unwrap();
    let handle = system.queue(root.of(())).await.unwrap();
    let mut all: Vec<u32> = world.drive(handle.group_all()).await.unwrap();
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<u32>>());
}

pub async fn it_is_idle_when_nothing_is_left_to_do(kind: Kind) {
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
    let aside = elsewhere::<(), ()>("aside").queue(std::sync::Arc::clone(&other));
    let system = world.system().work(&flaky).start().unwrap();
    world.drive(system.idle()).await.unwrap();
    assert_eq!(world.clock.now(), began, "there was nothing");
    let hour = Options::new().delay(Duration::from_secs(3600));
    let first = system.queue(flaky.of("first".to_owned()).options(hour)).await.unwrap();
    let last = flaky.of("last".to_owned());
    system.queue_after(last, &[first.id().to_owned()], When::AllDone).await.unwrap();
    system.queue(aside.of(())).await.unwrap();
    world.drive(system.idle()).await.unwrap();
    assert_eq!(
        log.read(),
        ["first 1 in hour 1", "first 2 in hour 1", "last 1 in hour 1", "last 2 in hour 1"]
    );
    // It does not work on that queue.
    assert_eq!(other.size().await.unwrap(), Some(1));
    assert_eq!(system.stats().running, 0);
}

pub async fn it_is_not_idle_while_another_process_has_something(kind: Kind) {
    let world = World::new(kind).await;
    let (clock, began) = (world.clock.clone(), world.clock.now());
    let slow = work("slow", move |(): (), _| {
        let slept = clock.sleep_until(clock.now().after(SECOND * 10));
        async move {
            slept.await;
            Ok(Outcome::Result(()))
        }
    });
    let works = world.system().work(&slow).start().unwrap();
    let asks = world.system().start().unwrap();
    asks.queue(slow.of(())).await.unwrap();
    world.pass(1).await;
    assert_eq!((world.waiting().await, works.stats().running, asks.stats().running), (0, 1, 0));
    world.drive(asks.idle()).await.unwrap();
    assert!(world.clock.now().since(began) >= SECOND * 10);
    assert_eq!(works.stats().completed, 1);
}

pub async fn children_by_the_thousand_come_together_and_are_all_waited_for(kind: Kind) {
    let world = World::new(kind).await;
    let child =
        work("child", |n: u64, _| async move { Ok(Outcome::Append(n)) }).queue(world.queue("children"));
    let sum = work("sum", |(): (), _| async { Ok(Outcome::Result("all".to_owned())) });
    let parent = {
        let (child, sum) = (child.clone(), sum.clone());
        work("parent", move |n: u64, _| {
            let (child, sum) = (child.clone(), sum.clone());
            async move { Ok(Outcome::<()>::queue_then((0..n).map(|n| child.of(n)), When::AllSuccess, sum.of(()))) }
        })
    };
    let defaults = Options::new().retry(Retry::never());
    let system = world.system().work(&child).work(&sum).work(&parent).defaults(defaults).start().unwrap();
    let handle = system.queue(parent.of(1001)).await.unwrap();
    let before = world.traffic.pushes();
    assert_eq!(world.drive(handle.group::<String>()).await.unwrap().as_deref(), Some("all"));
    // Three, and one of what follows, by each who saw that it was time.
    assert!(world.traffic.pushes() - before < 100, "{} pushes", world.traffic.pushes() - before);
    let all: Vec<u64> = handle.group_all().await.unwrap();
    assert_eq!((all.len(), all.iter().sum::<u64>()), (1001, 500_500));
}
