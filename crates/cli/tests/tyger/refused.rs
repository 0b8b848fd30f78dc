//! What the document has and this version has not: refused in words, never ignored.

use crate::place::{Place, start};

#[test]
fn the_loop_as_it_is_written_is_told_that_there_are_no_buffers() {
    let place = Place::new();
    place.program("bin/load_model", "true");
    place.says(&["queue", "create", "inference-requests", "--input", "data", "--output", "result"]);
    place.says(&["queue", "submit", "inference-requests", "--input", "data=buffer-1"]);
    let mut script = place.script("service_loop_verbatim.sh");
    script.env("REQUESTS_QUEUE_NAME", "inference-requests");
    let output = start(script).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("no buffers"), "{words}");
    let counts = place.json(&["queue", "counts", "inference-requests"]);
    assert_eq!(counts["pending"], 1, "the item was taken all the same: {counts}");
}

#[test]
fn commands_of_tyger_that_are_not_there_yet_say_so() {
    let place = Place::new();
    for words in [
        &["buffer", "read", "buffer-1"][..],
        &["service", "scale", "my-inference-service", "--replicas", "5"],
        &["trigger", "create", "my-trigger"],
        &["codespec", "create", "--kind", "service"],
    ] {
        let output = place.tyger(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{words:?}");
        assert!(said.contains(&format!("no {}s yet", words[0])), "{words:?}: {said}");
    }
}
