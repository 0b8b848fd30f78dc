//! The service's processing loop.

use crate::sandbox::{Sandbox, start, well};
use std::collections::BTreeSet;

const ITEMS: usize = 20;

#[test]
fn two_workers_process_every_item_and_exit_when_the_queue_is_completed() {
    let sandbox = Sandbox::new();
    sandbox.program("bin/load_model", "echo loaded >> loaded");
    // Long enough that one worker cannot take all items.
    sandbox.program("bin/run_inference", "read -r input; sleep 0.05; echo \"$input by $WORKER\"");
    sandbox.says(&["queue", "create", "inference-requests", "--input", "data", "--output", "result"]);
    let workers = ["first", "second"].map(|worker| {
        let mut script = sandbox.script("service_loop.sh");
        script.env("REQUESTS_QUEUE_NAME", "inference-requests").env("WORKER", worker);
        start(script)
    });
    let ids: Vec<String> = (0..ITEMS)
        .map(|n| {
            let input = format!("data={}", sandbox.buffer(format!("input {n}\n").as_bytes()));
            sandbox.says(&["queue", "submit", "inference-requests", "--input", &input])
        })
        .collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ITEMS);
    sandbox.says(&["queue", "close", "inference-requests"]);
    for worker in workers {
        let output = worker.wait_with_output().unwrap();
        well(&output);
        assert!(String::from_utf8(output.stdout).unwrap().ends_with("Queue completed, exiting.\n"));
    }
    let mut workers = BTreeSet::new();
    for (n, id) in ids.iter().enumerate() {
        let item = sandbox.json(&["queue", "item", "show", id]);
        assert_eq!((&item["state"], &item["attempt"]), (&"completed".into(), &1.into()), "{item}");
        let result = sandbox.read(item["outputs"]["result"].as_str().unwrap());
        let result = String::from_utf8(result).unwrap();
        let (input, worker) = result.trim_end().split_once(" by ").unwrap_or_else(|| panic!("{result}"));
        assert_eq!(input, format!("input {n}"));
        workers.insert(worker.to_owned());
    }
    assert_eq!(workers.into_iter().collect::<Vec<_>>(), ["first", "second"], "both have worked");
    assert_eq!(std::fs::read_to_string(sandbox.path("loaded")).unwrap().lines().count(), 2);
    assert_eq!(sandbox.json(&["queue", "show", "inference-requests"])["state"], "completed");
}
