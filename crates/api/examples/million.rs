//! Measures operations on a million items, and their effect on other clients.
//!
//! `cargo run --release -p towline-api --example million -- <URL> <pid of the server> [items]` fills a queue
//! with finished items, counts and lists them, then deletes all while a client submits, receives and commits
//! at full speed. Then it fills a dead-letter queue and lets retention empty it. It deletes its queues,
//! `million-*`, at the end.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement that prints its results")]

use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::TokioExecutor;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use towline_api::client::ItemQuery;
use towline_api::{
    Action, Client, ItemFilter, Millis, NewItem, PolicyBody, PutQueue, ReceiveRequest, ReceivedItem, VerbName,
};

type Fault = Box<dyn Error + Send + Sync>;
const BATCH: usize = 5000;
const QUEUES: [&str; 4] = ["million-old", "million-new", "million-dead", "million-source"];
/// Retention of dead letters.
const KEPT: Millis = Millis(20_000);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Fault> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("name the server's address")?;
    let pid: u32 = arguments.next().ok_or("name the server's process")?.parse()?;
    let items: usize = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let client = Client::new(&url)?;
    make_queues(&client).await?;
    let start = Instant::now();
    finish(&client, items).await?;
    println!("{items} items submitted, received and committed in {:.1} s", start.elapsed().as_secs_f64());
    count(&client).await?;
    list(&url, pid, items).await?;
    purge(&client, items).await?;
    dead_letters(&client, items).await?;
    for queue in QUEUES {
        client.delete_queue(queue, true).await?;
    }
    Ok(())
}

async fn make_queues(client: &Client) -> Result<(), Fault> {
    let none = PolicyBody::default();
    let dead = PolicyBody { failed_ttl: Some(Some(KEPT.into())), ..none.clone() };
    let source = PolicyBody {
        dead_letter_queue: Some(Some("million-dead".to_owned())),
        depth_limit: Some(Some(i64::try_from(BATCH)?)),
        ..none.clone()
    };
    for (queue, policy) in QUEUES.into_iter().zip([none.clone(), none, dead, source]) {
        client.put_queue(queue, &PutQueue { policy, ..PutQueue::default() }).await?;
    }
    Ok(())
}

/// Submits and commits items. All have the tag `all=yes`, one in ten has `color=red`.
async fn finish(client: &Client, items: usize) -> Result<(), Fault> {
    for first in (0..items).step_by(BATCH) {
        let item = |n: usize| NewItem {
            tags: [("all", "yes"), ("color", if n.is_multiple_of(10) { "red" } else { "blue" })]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..NewItem::default()
        };
        client.submit("million-old", (first..items.min(first + BATCH)).map(item).collect()).await?;
        settle(client, "million-old", VerbName::Commit).await?;
    }
    Ok(())
}

/// Receives and settles a batch. Returns how many items.
async fn settle(client: &Client, queue: &str, verb: VerbName) -> Result<usize, Fault> {
    let request = ReceiveRequest { max: Some(i64::try_from(BATCH)?), ..ReceiveRequest::default() };
    let received = client.receive(queue, &request).await?.items;
    let action = |item: &ReceivedItem| -> Result<Action, Fault> {
        Ok(Action::new(verb, item.id.clone().into_domain("id")?, item.lease.clone().into_domain("lease")?))
    };
    let actions = received.iter().map(action).collect::<Result<Vec<_>, Fault>>()?;
    client.settle(actions).await?;
    Ok(received.len())
}

async fn count(client: &Client) -> Result<(), Fault> {
    let tags = |tags: &[&str]| ItemFilter {
        state: Some("completed".to_owned()),
        tag: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..ItemFilter::default()
    };
    for (what, filter) in [
        ("state", tags(&[])),
        ("state and a tag of one in ten", tags(&["color=red"])),
        ("state and a tag of all", tags(&["all=yes"])),
        ("state and both tags", tags(&["all=yes", "color=red"])),
    ] {
        let query = ItemQuery { filter, ..ItemQuery::default() };
        let (mut times, mut counted) = (Vec::new(), 0);
        for _ in 0..11 {
            let start = Instant::now();
            let part = client.count(Some("million-old"), &query).await?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            assert_eq!(part.next, None, "counted in one call");
            counted = part.count;
        }
        times.sort_by(f64::total_cmp);
        println!("count by {what}: {counted} in {:.1} ms, at most {:.1} ms", times[5], times[10]);
    }
    Ok(())
}

async fn list(url: &str, pid: u32, items: usize) -> Result<(), Fault> {
    let before = memory(pid)?;
    let request = http::Request::get(format!("{url}/v1/queues/million-old/items"))
        .header("accept", "application/x-ndjson")
        .body(Empty::<bytes::Bytes>::new())?;
    let start = Instant::now();
    let mut body = Http::builder(TokioExecutor::new()).build_http().request(request).await?.into_body();
    let (mut lines, mut bytes, mut most, mut measured) = (0, 0, before, Instant::now());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        lines += data.iter().filter(|byte| **byte == b'\n').count();
        bytes += data.len();
        if measured.elapsed() > Duration::from_millis(20) {
            (most, measured) = (most.max(memory(pid)?), Instant::now());
        }
    }
    assert_eq!(lines, items, "every item has its line");
    let (seconds, more) = (start.elapsed().as_secs_f64(), (most - before) / 1024);
    println!(
        "list of {lines} items, {} MB, in {seconds:.1} s; the server held {} MiB before and at most {more} MiB more",
        bytes / 1_000_000,
        before / 1024,
    );
    Ok(())
}

/// Resident memory in KiB.
fn memory(pid: u32) -> Result<u64, Fault> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Life-cycles per second, idle and while all finished items are deleted.
async fn purge(client: &Client, items: usize) -> Result<(), Fault> {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let traffic = tokio::spawn(live(client.clone(), stop.clone(), done.clone()));
    let seen = || done.load(Ordering::Relaxed);
    let rate = |begun: u64, start: Instant| (seen() - begun) as f64 / start.elapsed().as_secs_f64();
    let quiet = async || {
        let (begun, start) = (seen(), Instant::now());
        tokio::time::sleep(Duration::from_secs(5)).await;
        rate(begun, start)
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = quiet().await;
    let filter = ItemFilter { state: Some("completed".to_owned()), ..ItemFilter::default() };
    let mut query = ItemQuery { filter, ..ItemQuery::default() };
    let (begun, start, mut removed) = (seen(), Instant::now(), 0);
    loop {
        let purged = client.purge("million-old", &query).await?;
        removed += purged.done;
        query.cursor = purged.next;
        if query.cursor.is_none() {
            break;
        }
    }
    let (beside, seconds) = (rate(begun, start), start.elapsed().as_secs_f64());
    let after = quiet().await;
    stop.store(true, Ordering::Relaxed);
    traffic.await??;
    assert_eq!(removed, u64::try_from(items)?);
    println!(
        "purge of {removed} in {seconds:.1} s; life-cycles a second: {before:.0} before, {beside:.0} meanwhile, {after:.0} after"
    );
    Ok(())
}

async fn live(client: Client, stop: Arc<AtomicBool>, done: Arc<AtomicU64>) -> Result<(), Fault> {
    while !stop.load(Ordering::Relaxed) {
        client.submit("million-new", vec![NewItem::default(); 100]).await?;
        let settled = settle(&client, "million-new", VerbName::Commit).await?;
        done.fetch_add(settled as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Fails every item into the dead-letter queue. Shows that dead letters do not count against the depth limit
/// of their origin, and how long retention takes.
async fn dead_letters(client: &Client, items: usize) -> Result<(), Fault> {
    let start = Instant::now();
    let mut most = 0;
    for _ in (0..items).step_by(BATCH) {
        let submitted = client.submit("million-source", vec![NewItem::default(); BATCH]).await?;
        assert!(submitted.iter().all(|one| one.error.is_none()), "dead letters do not fill the origin");
        settle(client, "million-source", VerbName::Fail).await?;
        most = most.max(client.counts("million-dead").await?.failed);
    }
    println!("{items} dead letters in {:.1} s, {most} held at most", start.elapsed().as_secs_f64());
    let start = Instant::now();
    while client.counts("million-dead").await?.failed > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!(
        "the last of them was gone after {:.1} s; each is kept for {KEPT}",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}
