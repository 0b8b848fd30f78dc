//! `towline queue list` and `counts`.

use crate::connect::Session;
use crate::exit::Failure;
use crate::output::Format;
use towline_api::{CountsShown, QueueShown};

pub async fn run(session: &Session) -> Result<(), Failure> {
    let headers = &["NAME", "STATE", "PENDING", "SCHEDULED", "PROCESSING", "PAUSED", "COMPLETED", "FAILED"];
    let mut listing = session.output.listing(headers);
    let mut cursor = None;
    loop {
        let page = session.client.queues(cursor.as_deref()).await?;
        for queue in &page.queues {
            listing.push(queue, row)?;
        }
        cursor = page.next;
        if cursor.is_none() {
            return listing.finish();
        }
    }
}

pub async fn counts(session: &Session, queue: &str) -> Result<(), Failure> {
    let counts = session.client.counts(queue).await?;
    if session.output.requested() != Some(Format::Table) {
        return session.output.object(&counts);
    }
    let headers = &["PENDING", "SCHEDULED", "PROCESSING", "PAUSED", "COMPLETED", "FAILED"];
    let mut listing = session.output.listing(headers);
    listing.push(&counts, |counts| numbers(counts).to_vec())?;
    listing.finish()
}

fn row(queue: &QueueShown) -> Vec<String> {
    let state = if queue.paused { format!("{}, paused", queue.state) } else { queue.state.clone() };
    [queue.name.clone(), state].into_iter().chain(numbers(&queue.counts)).collect()
}

fn numbers(counts: &CountsShown) -> [String; 6] {
    [counts.pending, counts.scheduled, counts.processing, counts.paused, counts.completed, counts.failed]
        .map(|count| count.to_string())
}
