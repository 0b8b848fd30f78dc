//! Ctrl-C and SIGTERM, heard from the start to the end, so that what was begun is taken back.

use anyhow::bail;
use std::future::Future;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub struct Interrupt {
    raised: watch::Receiver<bool>,
}

impl Interrupt {
    /// From now on these signals don't end the process by themselves.
    pub fn listen() -> anyhow::Result<Interrupt> {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let (raise, raised) = watch::channel(false);
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            let _ = raise.send(true);
        });
        Ok(Interrupt { raised })
    }

    /// Ready when a signal has come.
    pub async fn raised(&self) {
        let mut raised = self.raised.clone();
        if raised.wait_for(|raised| *raised).await.is_err() {
            // Nobody listens any more: none will come.
            std::future::pending::<()>().await;
        }
    }

    /// The work's result, unless a signal comes first.
    pub async fn or<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::select! {
            result = work => result,
            () = self.raised() => bail!("interrupted"),
        }
    }
}
