//! The benchmark compares a policy with a baseline, and deletes what it creates.

use crate::rig::Server;
use serde_json::Value;

fn names(server: &Server) -> usize {
    server.json(&["queue", "list"]).as_array().unwrap().len()
}

#[test]
fn a_policy_is_measured_in_turns_with_a_baseline() {
    let server = Server::start();
    let limits = ["--keys", "5", "--fairness", "key-1=2", "--concurrency", "40", "--rate", "1000000/s"];
    let mut call = vec!["bench", "--ops", "life,lat", "--sizes", "100", "--items", "500", "--samples", "5"];
    call.extend(["--take", "20", "--repeat", "2", "--compare", "-o", "json"]);
    call.extend(limits);
    let report = server.json(&call);
    let runs = report["runs"].as_array().unwrap();
    let ops: Vec<&str> = runs.iter().map(|run| run["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["life", "life", "lat", "lat"]);
    for pair in runs.chunks(2) {
        let [plain, limited] = pair else { panic!("{pair:?}") };
        assert_eq!(
            (&plain["workload"]["policy"], &plain["workload"]["keys"]),
            (&serde_json::json!({}), &5.into())
        );
        let workload = &limited["workload"];
        assert_eq!((&workload["policy"]["concurrency"], &workload["keys"]), (&40.into(), &5.into()));
        assert_eq!((plain.get("of_plain"), limited["repeats"].as_array().unwrap().len()), (None, 2));
    }
    let ratio = |run: &Value, name: &str| run["of_plain"][name].as_f64().unwrap();
    assert!(ratio(&runs[1], "items_per_second") > 0.0 && ratio(&runs[3], "start_p50_ms") > 0.0);
    assert_eq!(names(&server), 0);
    let words =
        server.ok(&call.iter().map(|word| if *word == "json" { "table" } else { word }).collect::<Vec<_>>());
    for part in ["life plain drain", "concurrency=40", "keys=5", "of plain: enqueueing "] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn replace_keys_are_measured_in_enqueueing_runs() {
    let server = Server::start();
    let call =
        ["bench", "--ops", "bulk", "--sizes", "100", "--seconds", "0.1", "--batch", "10", "-o", "json"];
    let replacing = ["--replace-keys", "7", "--compare"];
    let report = server.json(&[&call[..], &replacing].concat());
    assert_eq!(report["runs"][1]["workload"]["replace_keys"], 7);
    assert!(report["runs"][1]["of_plain"]["items_per_second"].as_f64().unwrap() > 0.0);
    let run = server.run(&["bench", "--ops", "life", "--replace-keys", "7"]);
    assert!(run.code != Some(0) && run.stderr.contains("enqueueing runs"), "{run:?}");
    let run = server.run(&["bench", "--ops", "life", "--items", "5", "--depth-limit", "3"]);
    assert!(run.code != Some(0) && run.stderr.contains("queue_full"), "{run:?}");
    assert_eq!(names(&server), 0);
}
