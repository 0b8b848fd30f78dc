//! The queue of one run: the server, the queue created for the run, and the items to send.

use super::payload;
use super::plan::Run;
use super::server::Server;
use super::workload::Workload;
use anyhow::{Context, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use towline_api::payload::Payload;
use towline_api::{Client, CountsShown, NewItem, PutQueue, Submitted};

/// Cheap to clone. Every task of a run has one.
#[derive(Debug, Clone)]
pub struct BenchQueue {
    pub server: Arc<Server>,
    pub queue: Arc<str>,
    pub text: Arc<[u8]>,
    payload: Payload,
    workload: Arc<Workload>,
    /// Items created so far.
    made: Arc<AtomicU64>,
    /// Items that the server acknowledged so far, for the progress bar.
    pub progress: Arc<AtomicU64>,
}

impl BenchQueue {
    /// Creates the queue.
    pub async fn open(
        server: Arc<Server>,
        queue: &str,
        run: &Run,
        progress: Arc<AtomicU64>,
    ) -> anyhow::Result<BenchQueue> {
        let text = payload::text(run.size);
        let payload = payload::payload(&text)?;
        let put = PutQueue { policy: run.workload.queue(), ..PutQueue::default() };
        let made = server.client()?.put_queue(queue, &put).await?;
        let bench_queue = BenchQueue {
            server,
            queue: queue.into(),
            text: text.into(),
            payload,
            workload: Arc::new(run.workload.clone()),
            made: Arc::default(),
            progress,
        };
        bench_queue.expect(&made.counts, 0)?;
        Ok(bench_queue)
    }

    /// Deletes the queue with everything in it.
    pub async fn close(server: &Server, queue: &str) -> anyhow::Result<()> {
        let deleted = server.client()?.delete_queue(queue, true).await;
        deleted
            .with_context(|| format!("cannot delete the queue {queue} of the benchmark; delete it by hand"))
    }

    /// Clients with an open connection.
    pub async fn clients(&self, count: usize) -> anyhow::Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            let client = self.server.client()?;
            client.counts(&self.queue).await?;
            clients.push(client);
        }
        Ok(clients)
    }

    pub fn items(&self, count: usize) -> Vec<NewItem> {
        (0..count).map(|_| self.item(&self.payload)).collect()
    }

    pub fn item(&self, payload: &Payload) -> NewItem {
        self.workload.apply(payload::item(payload), self.made.fetch_add(1, Ordering::Relaxed))
    }

    /// Submits items. Fails unless the server accepts all of them, as new items or as replacements.
    pub async fn submit(&self, client: &Client, items: Vec<NewItem>) -> anyhow::Result<()> {
        let count = items.len();
        let answers = client.submit(&self.queue, items).await?;
        ensure!(answers.len() == count, "{count} items were submitted, {} answered", answers.len());
        for Submitted { id, created, replaced, error, .. } in answers {
            if let Some(error) = error {
                anyhow::bail!("an item was refused: {} ({})", error.message, error.code);
            }
            let replaced = self.workload.replaces() && replaced == Some(true);
            ensure!(
                id.is_some() && (created == Some(true) || replaced),
                "an item was answered, but not taken as new"
            );
        }
        self.progress.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    pub async fn counts(&self) -> anyhow::Result<CountsShown> {
        Ok(self.server.client()?.counts(&self.queue).await?)
    }

    /// Fails unless the queue has exactly the pending items that this many submits leave.
    pub fn expect(&self, counts: &CountsShown, items: u64) -> anyhow::Result<()> {
        let pending = self.workload.left(items);
        let expected =
            CountsShown { pending, scheduled: 0, processing: 0, paused: 0, completed: 0, failed: 0 };
        ensure!(
            *counts == expected,
            "the queue {} should have {pending} items, all pending, and has {counts:?}",
            self.queue
        );
        Ok(())
    }
}
