//! Reports every call and its answer to the checker.

use crate::clock;
use crate::wire;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use towline_api::{ClientError, Code};
use towline_conformance::invariants::{Checker, Snapshot, Violation};
use towline_domain::{ItemId, Millis};
use towline_store::{Answered, Operation};

/// The store reads its clock once per batch, so a call that joins a batch late is decided by an earlier time.
/// This is far longer than a batch takes.
const GROUP: Millis = Millis(250);

/// A killed server closes its connections, and a client gives up on a silent one. No call takes this long.
const HANGS: Duration = Duration::from_secs(240);
/// Loopback reports a dead server sooner. The output names calls that took longer.
const LONG: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct History {
    checker: Mutex<Checker>,
    calls: AtomicU64,
    figures: Mutex<BTreeMap<&'static str, u64>>,
}

impl History {
    /// Makes one call and records whether it was answered, lost or never sent. `id` is the item of the call,
    /// if it has one.
    pub async fn call<T>(
        &self,
        operations: Vec<Operation>,
        id: Option<ItemId>,
        send: impl Future<Output = Result<T, ClientError>>,
        read: impl FnOnce(&T) -> Vec<Answered>,
    ) -> Called<T> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        self.checker().invoked(call, &operations, clock::before(GROUP));
        let all = |refusal: towline_domain::Refusal| -> Vec<Answered> {
            operations.iter().map(|_| Err(refusal.clone().into())).collect()
        };
        let began = clock::instant();
        let Ok(sent) = tokio::time::timeout(HANGS, send).await else {
            panic!("neither an answer nor an end of the connection: {operations:?}")
        };
        let (called, answers) = match sent {
            Ok(answer) => {
                let answers = read(&answer);
                (Called::Answered(answer), answers)
            }
            Err(ClientError::Refused(problem)) if problem.code == "unavailable" => {
                // The database was lost, perhaps during a commit.
                self.checker().lost(call);
                self.count("calls that the database left open", 1);
                return Called::Lost;
            }
            Err(ClientError::Refused(problem)) => {
                let refused = all(wire::problem(id, &problem));
                (Called::Refused(Code::parse(&problem.code).unwrap()), refused)
            }
            Err(ClientError::Unreachable { cause, .. }) => {
                // A refused connection means that no server got the call. After any other error a server may
                // have got it.
                if !cause.contains("refused") {
                    self.checker().lost(call);
                    let took = clock::instant().duration_since(began);
                    if took > LONG {
                        println!("lost after {took:?}: {cause}: {operations:?}");
                    }
                    self.count("calls whose answer was lost", 1);
                    return Called::Lost;
                }
                self.count("calls that no server got", 1);
                let message = cause.clone();
                (Called::Unheard, all(towline_domain::Refusal::Invalid { what: "call", message }))
            }
            Err(error) => panic!("{error}"),
        };
        self.checker().answered(call, &answers, clock::now());
        called
    }

    pub fn restarted(&self) {
        self.checker().restarted();
    }

    pub fn observed(&self, snapshot: Snapshot) {
        self.checker().observed_from_outside(snapshot);
    }

    pub fn violations(&self) -> Vec<Violation> {
        self.checker().violations().to_vec()
    }

    pub fn count(&self, what: &'static str, more: u64) {
        *self.figures.lock().unwrap().entry(what).or_default() += more;
    }

    pub fn figure(&self, what: &str) -> u64 {
        self.figures.lock().unwrap().get(what).copied().unwrap_or_default()
    }

    pub fn figures(&self) -> String {
        let figures = self.figures.lock().unwrap();
        figures.iter().map(|(what, count)| format!("  {count:>9}  {what}\n")).collect()
    }

    fn checker(&self) -> std::sync::MutexGuard<'_, Checker> {
        self.checker.lock().unwrap()
    }
}

/// The outcome of a call.
pub enum Called<T> {
    Answered(T),
    Refused(Code),
    /// The call may have been carried out.
    Lost,
    /// The call was certainly not carried out.
    Unheard,
}

impl<T> Called<T> {
    pub fn answer(self) -> Option<T> {
        match self {
            Called::Answered(answer) => Some(answer),
            _ => None,
        }
    }
}
