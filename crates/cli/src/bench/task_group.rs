//! The tasks of one run. The first failure ends the run, and dropping the group stops all tasks.

use anyhow::Context;
use std::future::Future;
use tokio::task::JoinSet;

#[derive(Debug)]
pub struct TaskGroup<T> {
    tasks: JoinSet<anyhow::Result<T>>,
    finished: Vec<T>,
}

impl<T: Send + 'static> TaskGroup<T> {
    pub fn new() -> TaskGroup<T> {
        TaskGroup { tasks: JoinSet::new(), finished: Vec::new() }
    }

    pub fn add(&mut self, work: impl Future<Output = anyhow::Result<T>> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Waits for `other` while the tasks run, unless one of them fails.
    pub async fn meanwhile<O>(&mut self, other: impl Future<Output = O>) -> anyhow::Result<O> {
        let mut other = std::pin::pin!(other);
        loop {
            tokio::select! {
                output = &mut other => return Ok(output),
                Some(ended) = self.tasks.join_next() => {
                    self.finished.push(ended.context("a task of the benchmark panicked")??);
                }
            }
        }
    }

    pub async fn all(mut self) -> anyhow::Result<Vec<T>> {
        while let Some(ended) = self.tasks.join_next().await {
            self.finished.push(ended.context("a task of the benchmark panicked")??);
        }
        Ok(self.finished)
    }
}
