//! Runs the sessions in the README and in the documents, and compares their output.
//!
//! Between `<!-- tour -->` and `<!-- /tour -->`, the blocks that begin with ```` ```sh ```` are one bash
//! session, with `towline` on the path and a server to call. Every command must succeed. Lines that begin
//! with `# =>` are the output of the command before them. `...` matches any text, and a last line of only
//! `...` matches more lines.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod extract;
mod matching;
#[path = "../rig/mod.rs"]
mod rig;

use extract::Step;
use rig::Server;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// The session in a document.
fn session(path: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = std::fs::read_to_string(root.join(path)).unwrap();
    run(extract::tour(&document).unwrap_or_else(|| panic!("there is no tour in {path}")));
}

#[test]
fn the_tour_runs_as_it_is_printed() {
    session("README.md");
}

#[test]
fn every_command_in_the_manual_does_what_it_says() {
    session("docs/cli.md");
}

#[test]
fn buffers_do_what_their_document_says() {
    session("docs/buffers.md");
}

fn run(steps: Vec<Step>) {
    let server = Server::start();
    let at = |name: &str| server.directory().join(name);
    std::fs::create_dir(at("bin")).unwrap();
    std::fs::create_dir(at("work")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_towline"), at("bin/towline")).unwrap();
    // One shell for all steps, so that variables stay. The output of each step goes to a separate file.
    let mut script = "set -euo pipefail\n".to_owned();
    for (number, step) in steps.iter().enumerate() {
        let out = at(&format!("out.{number}"));
        writeln!(
            script,
            "echo {number} > '{}'\n{{\n{}\n}} > '{}'",
            at("step").display(),
            step.command,
            out.display()
        )
        .unwrap();
    }
    std::fs::write(at("tour.sh"), script).unwrap();
    let old = std::env::var("PATH").unwrap();
    let output = Command::new("bash")
        .arg(at("tour.sh"))
        .current_dir(at("work"))
        .env("PATH", format!("{}:{old}", at("bin").display()))
        .env("TOWLINE_URL", server.url())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let reached: usize = std::fs::read_to_string(at("step")).unwrap().trim().parse().unwrap();
        panic!("{} ended with {}:\n{words}", steps[reached].command, output.status);
    }
    for (number, step) in steps.iter().enumerate().filter(|(_, step)| !step.prints.is_empty()) {
        let printed = std::fs::read_to_string(at(&format!("out.{number}"))).unwrap();
        let printed: Vec<&str> = printed.lines().collect();
        if let Err(difference) = matching::compare(&step.prints, &printed) {
            panic!("{}\nprints something else: {difference}\n{}\n{words}", step.command, printed.join("\n"));
        }
    }
}

#[test]
fn a_step_that_fails_or_prints_other_text_is_reported() {
    let report = |text: &'static str| {
        let steps = extract::tour(text).unwrap();
        let end = std::panic::catch_unwind(|| run(steps)).unwrap_err();
        *end.downcast::<String>().unwrap()
    };
    let failed = report("<!-- tour -->\n```sh\ntrue\nfalse\n```\n<!-- /tour -->");
    assert!(failed.starts_with("false ended with"), "{failed}");
    let differs = report("<!-- tour -->\n```sh\necho one\n# => two\n```\n<!-- /tour -->");
    assert!(differs.contains("prints something else"), "{differs}");
}
