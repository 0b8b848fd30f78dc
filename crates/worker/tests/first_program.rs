//! Builds and runs the first program of the guide, in a crate of its own, as the guide shows it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::Command;

/// The content of the first block in this language.
fn block<'a>(document: &'a str, language: &str) -> &'a str {
    let (_, rest) = document.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn the_first_program_of_the_guide_builds_and_prints_what_the_guide_says() {
    let guide = include_str!("../../../docs/worker/guide.md");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = block(guide, "toml").replace("../towline/crates/worker", here.to_str().unwrap());
    assert!(manifest.contains(here.to_str().unwrap()), "{manifest}");
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("src")).unwrap();
    std::fs::write(at("Cargo.toml"), manifest).unwrap();
    std::fs::write(at("src/main.rs"), block(guide, "rust")).unwrap();
    // The versions of this workspace, which are already on this machine.
    std::fs::copy(here.join("../../Cargo.lock"), at("Cargo.lock")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO")) {
        if name != "CARGO_HOME" {
            cargo.env_remove(name);
        }
    }
    // Kept between runs, so that only the first one builds the dependencies.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("first_program");
    let output = cargo
        .args(["run", "--quiet", "--offline", "--target-dir"])
        .arg(target)
        .current_dir(directory.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), block(guide, "text"), "{errors}");
}
