//! Schemathesis makes calls from the served OpenAPI description. No answer may be an internal error, and all
//! must match.

use crate::rig::{Run, Server};
use std::path::PathBuf;
use std::process::Command;

/// `scripts/install-test-tools` installs it here.
fn program() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").expect("a home")).join(".cache"),
        PathBuf::from,
    );
    let program = cache.join("towline/schemathesis/bin/schemathesis");
    assert!(program.exists(), "{} is missing; run scripts/install-test-tools", program.display());
    program
}

#[test]
fn every_answer_matches_the_openapi_description() {
    // The description is of a server that requires tokens.
    let (server, token) = Server::start_asking(|_| Vec::new());
    let soak = std::env::var_os("TOWLINE_SOAK").is_some();
    let output = Command::new(program())
        .current_dir(server.directory())
        .args(["--config-file", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/schemathesis.toml")])
        .args(["run", &format!("{}/v1/openapi.json", server.url())])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--seed", &crate::seed().to_string(), "--workers", "2"])
        .args(["--max-time", if soak { "600" } else { "45" }])
        .env("NO_COLOR", "1")
        .env("COLUMNS", "150")
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(!server.log().contains("panicked"), "{}", server.log());
    for args in
        [&["queue", "create", "after"][..], &["queue", "submit", "after"], &["queue", "receive", "after"]]
    {
        Run::of(server.command(args).env("TOWLINE_TOKEN", &token)).ok(args);
    }
}
