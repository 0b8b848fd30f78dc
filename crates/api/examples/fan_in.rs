//! Measures what a large group costs: the same work with a group and without one, in turns.
//!
//! `cargo run --release -p towline-api --example fan_in -- <URL> <pid of the server> [children] [turns]`
//! submits the children, receives and commits all of them, and, with a group, waits for the item that depends
//! on them. It deletes its queue, `fan-in`, at the end.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement that prints its results")]

use std::error::Error;
use std::time::{Duration, Instant};
use towline_api::{
    Action, Client, DependencyBody, NewItem, PutQueue, ReceiveRequest, ReceivedItem, VerbName,
};

type Fault = Box<dyn Error + Send + Sync>;
const BATCH: usize = 5000;
const QUEUE: &str = "fan-in";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Fault> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("name the server's address")?;
    let pid: u32 = arguments.next().ok_or("name the server's process")?.parse()?;
    let children: usize = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let turns: usize = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let client = Client::new(&url)?;
    for turn in 0..turns {
        for grouped in [false, true] {
            let group = grouped.then(|| format!("fan-in-{turn}"));
            client.put_queue(QUEUE, &PutQueue::default()).await?;
            let (start, cpu_seconds) = (Instant::now(), cpu(pid)?);
            run(&client, children, group).await?;
            let (taken, cpu_seconds) = (start.elapsed().as_secs_f64(), cpu(pid)? - cpu_seconds);
            let what = if grouped { "in a group" } else { "without one" };
            println!("{children} children {what}: {taken:.1} s, {cpu_seconds:.1} s of the server's CPU");
            client.delete_queue(QUEUE, true).await?;
        }
    }
    Ok(())
}

async fn run(client: &Client, children: usize, group: Option<String>) -> Result<(), Fault> {
    let mut left = children;
    while left > 0 {
        let count = left.min(BATCH);
        let child = NewItem { group: group.clone(), ..NewItem::default() };
        client.submit(QUEUE, vec![child; count]).await?;
        left -= count;
    }
    if let Some(group) = &group {
        let expect = Some(i64::try_from(children)?);
        let after = DependencyBody { group: Some(group.clone()), expect, ..DependencyBody::default() };
        client.submit(QUEUE, vec![NewItem { after: Some(after), ..NewItem::default() }]).await?;
    }
    let mut left = children;
    while left > 0 {
        left -= take(client, BATCH, Duration::ZERO).await?;
    }
    let Some(group) = group else { return Ok(()) };
    let start = Instant::now();
    while take(client, 1, Duration::from_secs(60)).await? == 0 {}
    println!("  the last was there {} ms after the last commit", start.elapsed().as_millis());
    let start = Instant::now();
    let shown = client.wait_group(&group, children as u64, Duration::from_secs(60)).await?;
    println!("  {} completed, shown in {} ms", shown.completed, start.elapsed().as_millis());
    Ok(())
}

/// Receives and commits items. Returns how many.
async fn take(client: &Client, max: usize, wait: Duration) -> Result<usize, Fault> {
    let request = ReceiveRequest {
        max: Some(i64::try_from(max)?),
        wait: Some(wait.into()),
        ..ReceiveRequest::default()
    };
    let items = client.receive(QUEUE, &request).await?.items;
    let commit = |item: &ReceivedItem| Action {
        verb: Some(VerbName::Commit.into()),
        id: Some(item.id.clone()),
        lease: Some(item.lease.clone()),
        ..Action::default()
    };
    if !items.is_empty() {
        client.settle(items.iter().map(commit).collect()).await?;
    }
    Ok(items.len())
}

/// CPU seconds of a process: fields 14 and 15 of its `stat`, in hundredths.
fn cpu(pid: u32) -> Result<f64, Fault> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
    Ok((ticks(11) + ticks(12)) / 100.0)
}
