//! Commands of the document that this version does not support are refused with a hint, never ignored.

use crate::sandbox::Sandbox;

#[test]
fn unsupported_tyger_commands_are_refused_with_a_hint() {
    let sandbox = Sandbox::new();
    for words in [
        &["service", "scale", "my-inference-service", "--replicas", "5"][..],
        &["trigger", "create", "my-trigger"],
        &["codespec", "create", "--kind", "service"],
    ] {
        let output = sandbox.tyger(words).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{words:?}");
        assert!(message.contains(&format!("no {}s yet", words[0])), "{words:?}: {message}");
    }
}
