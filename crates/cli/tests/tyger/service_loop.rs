//! The service's processing loop.

use crate::place::{Place, start, well};
use std::collections::BTreeSet;

const ITEMS: usize = 20;

#[test]
fn two_workers_process_every_item_and_exit_when_the_queue_is_completed() {
    let place = Place::new();
    place.program("bin/load_model", "echo loaded >> loaded");
    // Long enough that one worker does not take them all.
    place.program("bin/run_inference", "read -r input; sleep 0.05; echo \"$input $WORKER\" >> processed");
    place.says(&["queue", "create", "inference-requests", "--input", "data"]);
    let workers = ["first", "second"].map(|worker| {
        let mut script = place.script("service_loop.sh");
        script.env("REQUESTS_QUEUE_NAME", "inference-requests").env("WORKER", worker);
        start(script)
    });
    let ids: BTreeSet<String> = (0..ITEMS)
        .map(|n| {
            let input = format!("data=buffer-{n}");
            place.says(&["queue", "submit", "inference-requests", "--input", &input])
        })
        .collect();
    assert_eq!(ids.len(), ITEMS);
    place.says(&["queue", "close", "inference-requests"]);
    for worker in workers {
        let output = worker.wait_with_output().unwrap();
        well(&output);
        assert!(String::from_utf8(output.stdout).unwrap().ends_with("Queue completed, exiting.\n"));
    }
    let processed = std::fs::read_to_string(place.path("processed")).unwrap();
    let inputs: BTreeSet<&str> = processed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!((processed.lines().count(), inputs.len()), (ITEMS, ITEMS), "{processed}");
    for worker in ["first", "second"] {
        assert!(processed.contains(worker), "{worker} did nothing:\n{processed}");
    }
    assert_eq!(std::fs::read_to_string(place.path("loaded")).unwrap().lines().count(), 2);
    let counts = place.json(&["queue", "counts", "inference-requests"]);
    assert_eq!((&counts["completed"], &counts["failed"]), (&ITEMS.into(), &0.into()), "{counts}");
    assert_eq!(place.json(&["queue", "show", "inference-requests"])["state"], "completed");
}
