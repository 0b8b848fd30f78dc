//! The progress bar of the benchmark.

use super::plan::Run;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::AbortHandle;

const TICK: Duration = Duration::from_millis(200);

/// A bar on stderr, only on a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

/// Shows the progress of one run until it is dropped.
#[derive(Debug)]
pub struct Watch(Option<AbortHandle>);

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Progress {
    pub fn new(runs: usize) -> anyhow::Result<Progress> {
        let style = ProgressStyle::with_template("{elapsed} [{bar:24}] {pos}/{len} runs  {msg}")?;
        let bar = ProgressBar::new(runs as u64).with_style(style.progress_chars("=> "));
        Ok(Progress { bar })
    }

    pub fn watch(&self, run: &Run, items: &Arc<AtomicU64>) -> Watch {
        if self.bar.is_hidden() {
            return Watch(None);
        }
        let (bar, items) = (self.bar.clone(), items.clone());
        let name = format!("{} {}", run.name(), HumanBytes(run.size as u64));
        Watch(Some(
            tokio::spawn(async move {
                let (mut every, mut before) = (tokio::time::interval(TICK), 0);
                loop {
                    every.tick().await;
                    let count = items.load(Ordering::Relaxed);
                    let rate = count.saturating_sub(before) as f64 / TICK.as_secs_f64();
                    bar.set_message(format!("{name}: {} items/s", HumanCount(rate as u64)));
                    bar.tick();
                    before = count;
                }
            })
            .abort_handle(),
        ))
    }

    pub fn finished_one(&self) {
        self.bar.inc(1);
    }
}

/// Clears the line for the next message.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
