//! The spawner: the one thread that starts processes.
//!
//! Linux sends the death signal of a parent when the *thread* that started the child ends. The runtime's threads come and go; this
//! one lives as long as the runner.

use super::child::Child;
use crate::runner::guardian::Lifeline;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use tokio::sync::oneshot;

/// Clones are of the same thread. It ends with the last of them.
#[derive(Debug, Clone)]
pub(super) struct Spawner(Sender<Order>);

struct Order {
    command: Command,
    reply: oneshot::Sender<io::Result<Child>>,
}

impl Spawner {
    pub(super) fn start(lifeline: Arc<Lifeline>) -> io::Result<Spawner> {
        let (sender, orders) = mpsc::channel();
        thread::Builder::new().name("node-spawner".to_owned()).spawn(move || run(&orders, &lifeline))?;
        Ok(Spawner(sender))
    }

    /// Starts a process soon. Dropping the answer kills it.
    pub(super) fn spawn(&self, command: Command) -> Spawned {
        let (reply, spawned) = oneshot::channel();
        // If the thread has ended, the receiver sees that its sender is gone.
        let _ = self.0.send(Order { command, reply });
        Spawned(spawned)
    }
}

/// A process that starts soon.
#[derive(Debug)]
pub(super) struct Spawned(oneshot::Receiver<io::Result<Child>>);

impl Spawned {
    pub(super) async fn child(self) -> io::Result<Child> {
        self.0.await.map_err(|_| io::Error::other("the spawner thread has ended"))?
    }
}

fn run(orders: &Receiver<Order>, lifeline: &Arc<Lifeline>) {
    for Order { mut command, reply } in orders {
        let child = command.spawn().and_then(|process| Child::new(process, Arc::clone(lifeline)));
        // Closes the writing ends of the command's pipes, so that their ends can be seen.
        drop(command);
        // A child whose start was given up is killed by its drop.
        let _ = reply.send(child);
    }
}
