//! A process that is killed at any moment loses no acknowledged operation, and no deleted item reappears.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod rig;

use rig::*;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use towline_conformance::invariants::Snapshot;
use towline_domain::{ItemId, State};

const WORK_IN: &str = "TOWLINE_TEST_WORK_IN";
const ROUNDS: u64 = 20;

/// Not a test by itself: the process that is killed. It prints each operation after its acknowledgement.
#[test]
fn helper_that_works_until_it_is_killed() {
    let Some(path) = std::env::var_os(WORK_IN) else { return };
    let store = open(Path::new(&path));
    let _ = run(&store, create("jobs"));
    let say = |what: &str, id: ItemId| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n{what} {id}").unwrap();
        out.flush().unwrap();
    };
    for round in 0u64.. {
        let mut batch = Vec::new();
        for nth in 0..3 {
            batch.push(submit_to("jobs", payload(format!("{round}-{nth}{}", " ".repeat(2000)))));
        }
        for answered in
            futures::executor::block_on(towline_store::Store::update(&store, batch)).unwrap().answers
        {
            say("submitted", submitted(answered));
        }
        let held = received(run(&store, receive_from("jobs", 2, round as u8)));
        for item in &held {
            run(&store, commit(item)).unwrap();
            say("committed", item.head.id);
        }
        if let Some(item) = held.first().filter(|_| round % 2 == 0) {
            say("deleting", item.head.id);
            run(&store, delete(item.head.id)).unwrap();
            say("deleted", item.head.id);
        }
    }
}

#[derive(Default)]
struct Acknowledged {
    submitted: BTreeSet<ItemId>,
    committed: BTreeSet<ItemId>,
    deleting: BTreeSet<ItemId>,
    deleted: BTreeSet<ItemId>,
}

impl Acknowledged {
    fn take(&mut self, line: &str) {
        let Some((what, id)) = line.split_once(' ') else { return };
        // The kill may cut a line short.
        let Ok(id) = id.parse() else { return };
        match what {
            "submitted" => self.submitted.insert(id),
            "committed" => self.committed.insert(id),
            "deleting" => self.deleting.insert(id),
            "deleted" => self.deleted.insert(id),
            _ => false,
        };
    }

    fn check(&self, shown: &Snapshot) {
        let items: BTreeMap<ItemId, &State> =
            shown.items.iter().map(|stored| (stored.item.head.id, &stored.item.head.state)).collect();
        for id in &self.deleted {
            assert!(!items.contains_key(id), "{id} was deleted and has reappeared");
        }
        for id in self.submitted.difference(&self.deleting) {
            assert!(items.contains_key(id), "{id} was acknowledged and is lost");
        }
        for id in self.committed.difference(&self.deleting) {
            assert!(
                matches!(items[id], State::Completed { .. }),
                "{id} was committed and is {:?}",
                items[id]
            );
        }
        for stored in &shown.items {
            let blob = stored.item.fields.blob.as_ref().unwrap();
            assert!(blob.len() > 2000 && blob.ends_with(b"  "), "a payload differs from the submitted one");
        }
    }
}

#[test]
fn no_acknowledged_item_is_lost_and_no_deleted_item_reappears() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["helper_that_works_until_it_is_killed", "--exact", "--nocapture"])
            .env(WORK_IN, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut lines = out.lines();
        // Waits for the first submit, then kills the process after a delay that differs in each round.
        for line in lines.by_ref().map_while(Result::ok) {
            acknowledged.take(&line);
            if line.starts_with("submitted") {
                break;
            }
        }
        std::thread::sleep(Duration::from_micros(round * round * 331 % 40_000));
        child.kill().unwrap();
        child.wait().unwrap();
        lines.map_while(Result::ok).for_each(|line| acknowledged.take(&line));
        acknowledged.check(&contents_of(directory.path()));
    }
    assert!(acknowledged.committed.len() > 20, "the rounds were too short");
    assert!(towline_embedded::verify(directory.path()).unwrap().is_whole());
}
