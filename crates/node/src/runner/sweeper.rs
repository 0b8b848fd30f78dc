//! The sweeper: kills what a launch left behind outside of its process group.
//!
//! The end of a launch that succeeds does not look through `/proc`: that takes milliseconds on a full machine. The sweeper looks
//! once for all launches that ended in the last second.

use super::cookies::{INSTANCE_COOKIE, LAUNCH_COOKIE, Process, kill_all};
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Between two looks through `/proc`.
const PAUSE: Duration = Duration::from_secs(1);
/// Looks at `/proc` for one launch. A process that does not die in the meantime is in an uninterruptible wait.
const KILL_ROUNDS: u32 = 500;

/// The launches of a runner, and the thread that kills what the ended ones left.
#[derive(Debug)]
pub(super) struct Sweeper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    instance: String,
    launches: Mutex<Launches>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Launches {
    live: HashSet<String>,
    /// A launch ended since the last look.
    ended: bool,
    closing: bool,
}

impl Sweeper {
    pub(super) fn start(instance: &str) -> io::Result<Sweeper> {
        let shared = Arc::new(Shared {
            instance: instance.to_owned(),
            launches: Mutex::default(),
            changed: Condvar::new(),
        });
        let swept = Arc::clone(&shared);
        thread::Builder::new().name("node-sweeper".to_owned()).spawn(move || swept.run())?;
        Ok(Sweeper(shared))
    }

    /// Counts a launch as live until the answer is dropped. Call it before the launch has a process. `None` if it is live already.
    pub(super) fn enter(&self, launch: &str) -> Option<Live> {
        let is_new = self.0.launches.lock().live.insert(launch.to_owned());
        is_new.then(|| Live { shared: Arc::clone(&self.0), launch: launch.to_owned() })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.0.launches.lock().closing = true;
        self.0.changed.notify_one();
    }
}

/// A launch whose processes the sweeper spares.
#[derive(Debug)]
pub(super) struct Live {
    shared: Arc<Shared>,
    launch: String,
}

impl Live {
    /// Kills all processes of the launch now. `session` is that of its command.
    pub(super) fn kill(&self, session: i32) {
        let (instance, launch) = (&self.shared.instance, &self.launch);
        let is_of_launch = |process: &Process| {
            process.session == session
                || process.has_cookie(INSTANCE_COOKIE, instance) && process.has_cookie(LAUNCH_COOKIE, launch)
        };
        let left = kill_all(is_of_launch, KILL_ROUNDS);
        if left > 0 {
            tracing::warn!(launch, left, "processes of a launch do not die");
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut launches = self.shared.launches.lock();
        launches.live.remove(&self.launch);
        launches.ended = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn run(&self) {
        let mut launches = self.launches.lock();
        while !launches.closing {
            if !launches.ended {
                self.changed.wait(&mut launches);
                continue;
            }
            launches.ended = false;
            drop(launches);
            kill_all(|process| self.is_left_over(process), KILL_ROUNDS);
            // More launches may end meanwhile; they are swept together.
            thread::sleep(PAUSE);
            launches = self.launches.lock();
        }
    }

    fn is_left_over(&self, process: &Process) -> bool {
        let launch = process.cookie(LAUNCH_COOKIE).and_then(|launch| std::str::from_utf8(launch).ok());
        process.has_cookie(INSTANCE_COOKIE, &self.instance)
            && launch.is_some_and(|launch| !self.launches.lock().live.contains(launch))
    }
}
