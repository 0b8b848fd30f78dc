//! The trace of an item, from a flag or from the environment.

use crate::rig::{Run, Server};
use serde_json::json;

const FIRST: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const SECOND: &str = "00-11111111111111111111111111111111-2222222222222222-00";

#[test]
fn an_item_belongs_to_the_trace_of_its_submit() {
    let server = Server::start();
    server.ok(&["queue", "create", "jobs"]);
    let trace = |id: &str| server.json(&["item", "show", id.trim()])["trace"].clone();
    let submit = ["queue", "submit", "jobs"];
    assert_eq!(trace(&server.ok(&submit)), json!(null));
    let flags = [&submit[..], &["--traceparent", SECOND, "--tracestate", "rojo=1"]].concat();
    let own = json!({"traceparent": SECOND, "tracestate": "rojo=1"});
    assert_eq!(trace(&server.ok(&flags)), own);
    let within = |args: &[&str], parent: &str| {
        let mut command = server.command(args);
        Run::of(command.env("TRACEPARENT", parent).env("TRACESTATE", "congo=2")).ok(args)
    };
    assert_eq!(trace(&within(&submit, FIRST)), json!({"traceparent": FIRST, "tracestate": "congo=2"}));
    assert_eq!(trace(&within(&flags, FIRST)), own, "the flag overrides the environment");
    assert_eq!(trace(&within(&submit, "nonsense")), json!(null));
    let run = server.run(&[&submit[..], &["--traceparent", "nonsense"]].concat());
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("00-<32 hex digits>"), "{run:?}");
}
