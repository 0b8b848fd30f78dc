//! Threads that read the log for callers, so that a slow disk does not block the async runtime of a caller.

use crate::error::OpenError;
use crate::log::disk::Disk;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use futures::channel::oneshot;
use std::thread::JoinHandle;
use towline_store::StoreError;

/// A read of this many bytes is not handed over: waking a thread takes longer, and records that were just written are in the
/// operating system's cache.
const HANDED_OVER_BYTES: u64 = 64 << 10;
const THREADS_MIN: usize = 2;
const THREADS_MAX: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct ReaderPool {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl ReaderPool {
    /// `waiting_max`: beyond this many waiting reads, callers read on their own threads.
    pub(crate) fn start(disk: &dyn Disk, waiting_max: usize) -> Result<ReaderPool, OpenError> {
        let (jobs, waiting) = crossbeam_channel::bounded(waiting_max);
        let count = std::thread::available_parallelism().map_or(THREADS_MIN, usize::from);
        let mut pool = ReaderPool { jobs: Some(jobs), threads: Vec::new() };
        for _ in 0..count.clamp(THREADS_MIN, THREADS_MAX) {
            let waiting: Receiver<Job> = waiting.clone();
            let thread = std::thread::Builder::new().name("towline-reader".to_owned());
            let thread = thread.spawn(move || waiting.into_iter().for_each(|job| job()));
            pool.threads.push(thread.map_err(|error| OpenError::io(disk, "", error))?);
        }
        Ok(pool)
    }

    /// Reads about `bytes` of the log with `read`.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        bytes: u64,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let Some(jobs) = self.jobs.as_ref().filter(|_| bytes > HANDED_OVER_BYTES) else { return Ok(read()) };
        let (reply, done) = oneshot::channel();
        // A caller that has gone away is ignored.
        let job = Box::new(move || drop(reply.send(read())));
        match jobs.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => job(),
        }
        done.await.map_err(|_| StoreError::Closed)
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
