//! Ctrl-C and SIGTERM. Commands catch them to clean up.

use anyhow::bail;
use std::future::Future;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub struct Interrupt {
    raised: watch::Receiver<bool>,
}

impl Interrupt {
    /// Catches the signals from now on. They no longer end the process by themselves.
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

    /// Waits for a signal.
    pub async fn raised(&self) {
        let mut raised = self.raised.clone();
        if raised.wait_for(|raised| *raised).await.is_err() {
            // The listening task is gone, so no signal will arrive.
            std::future::pending::<()>().await;
        }
    }

    /// Runs `work` until it is done or a signal arrives.
    pub async fn or<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::select! {
            result = work => result,
            () = self.raised() => bail!("interrupted"),
        }
    }
}
