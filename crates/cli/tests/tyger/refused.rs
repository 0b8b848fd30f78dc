//! What the document has and this version has not: refused in words, never ignored.

use crate::place::Place;

#[test]
fn commands_of_tyger_that_are_not_there_yet_say_so() {
    let place = Place::new();
    for words in [
        &["service", "scale", "my-inference-service", "--replicas", "5"][..],
        &["trigger", "create", "my-trigger"],
        &["codespec", "create", "--kind", "service"],
    ] {
        let output = place.tyger(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{words:?}");
        assert!(said.contains(&format!("no {}s yet", words[0])), "{words:?}: {said}");
    }
}
