//! kill -9 of PostgreSQL under load: answered operations are kept, and unanswered ones happened completely or not at all.

use crate::calls::*;
use crate::harness::open;
use crate::server::Own;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;
use towline_domain::{FieldSet, HeadFilter, ItemId, ItemState, Policy, StateName};
use towline_postgres::Time;
use towline_store::{Filter, Store};

const CALLERS: usize = 4;
const KILLS: usize = 3;
/// A condition is checked this many times, at least 5 ms apart.
const TRIES_MAX: usize = 24_000;

#[test]
fn nothing_answered_is_lost_and_nothing_is_committed_twice() {
    let mut server = Own::start();
    let store = open(&server.config(), "towline", Time::Database).unwrap();
    survives(&store, KILLS, || {
        server.kill();
        server.start_again();
    });
}

/// What the callers were answered.
#[derive(Default)]
struct Answered {
    submitted: Mutex<BTreeSet<ItemId>>,
    commits: Mutex<BTreeMap<ItemId, usize>>,
}

impl Answered {
    /// Submits five items, receives four and commits them, as far as the store answers.
    fn round(&self, store: &dyn Store, caller: usize, round: usize) {
        let batch = (0..5).map(|n| submit("jobs", &format!("{caller}/{round}/{n}"))).collect();
        if let Ok(answers) = block_on(store.update(batch)) {
            self.submitted.lock().unwrap().extend(answers.answers.iter().map(|answer| submitted(answer).0));
        }
        let receive = receive_call("jobs", 4, seed(caller, round));
        let Ok(answers) = block_on(store.update(vec![receive])) else { return };
        let given = leases(&answers.answers[0]);
        let settles = given.iter().map(|&(id, token)| lease(id, token, commit())).collect();
        if let Ok(answers) = block_on(store.update(settles)) {
            for (answer, (id, _)) in answers.answers.iter().zip(&given) {
                assert_eq!(*answer, left(ItemState::Completed), "its lease lasts five minutes");
                *self.commits.lock().unwrap().entry(*id).or_default() += 1;
            }
        }
    }
}

/// Callers submit, receive and commit, while `disturb` is called so many times. Afterwards no answered operation may be
/// missing, and no item may be committed twice.
pub fn survives(store: &dyn Store, times: usize, mut disturb: impl FnMut()) {
    run(store, create("jobs", Policy { max_retries: 10_000, ..Policy::default() })).unwrap();
    let answered = Answered::default();
    let (killed, progress) = (AtomicBool::new(false), Barrier::new(CALLERS + 1));
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (killed, progress, answered) = (&killed, &progress, &answered);
            scope.spawn(move || {
                let mut round = 0;
                for _ in 0..times {
                    progress.wait();
                    // A few rounds after the kill show that the store works again.
                    let mut more = 3;
                    for _ in 0..TRIES_MAX * 10 {
                        if more == 0 {
                            break;
                        }
                        round += 1;
                        more -= usize::from(killed.load(Ordering::SeqCst));
                        answered.round(store, caller, round);
                    }
                    progress.wait();
                }
            });
        }
        let mut progressed = true;
        for _ in 0..times {
            killed.store(false, Ordering::SeqCst);
            let submits = || answered.submitted.lock().unwrap().len();
            let before = submits();
            progress.wait();
            let enough = |_| {
                submits() >= before + 100 || {
                    thread::sleep(Duration::from_millis(5));
                    false
                }
            };
            progressed &= (0..TRIES_MAX).any(enough);
            disturb();
            killed.store(true, Ordering::SeqCst);
            progress.wait();
        }
        assert!(progressed, "the callers make no progress");
    });
    let Answered { submitted, commits } = answered;
    let commits = commits.into_inner().unwrap();
    assert!(!commits.is_empty() && commits.values().all(|&times| times == 1), "committed once");
    let found = list(store, None);
    let missing: Vec<_> = submitted.into_inner().unwrap().difference(&found).copied().collect();
    assert!(missing.is_empty(), "answered and lost: {missing:?}");
    let completed = list(store, Some(StateName::Completed));
    let undone: Vec<_> = commits.keys().filter(|id| !completed.contains(id)).collect();
    assert!(undone.is_empty(), "answered as committed, but not completed: {undone:?}");
    let counts = counts(store, "jobs");
    assert_eq!((counts.total(), counts.completed), (found.len() as u64, completed.len() as u64));
}

fn list(store: &dyn Store, state: Option<StateName>) -> BTreeSet<ItemId> {
    let (mut all, mut after) = (BTreeSet::new(), None);
    loop {
        let head = HeadFilter { state, ..HeadFilter::default() };
        let filter = Filter { head, ..Filter::default() };
        let page = block_on(store.list(filter, after, 1000, FieldSet::NONE)).unwrap();
        for stored in &page.items {
            assert!(all.insert(stored.item.head.id), "listed once");
        }
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}
