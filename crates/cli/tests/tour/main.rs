//! Runs the commands in the README and in the documents, and compares their output.
//!
//! The blocks of a page that begin with ```` ```sh ```` or ```` ```bash ```` are one bash session, with `towline` on the
//! path. Every command must succeed. Lines that begin with `# =>` are the output of the command before them. `...` matches
//! any text, and a last line of only `...` matches more lines.
//!
//! A page finds a server with its data in `towline-data`. If the page runs `towline serve` itself, that server is stopped
//! before. The port 7420, the host `db.internal` and `s3://bucket` in the commands stand for a free port, a PostgreSQL
//! server and a directory.
//!
//! The working directory has the folder `examples`. A block after a line `<!-- not run: REASON -->` is left out.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod extract;
mod matching;
#[path = "../../../postgres/tests/store/server.rs"]
mod postgres;
#[path = "../../../postgres/tests/store/reserved_port.rs"]
mod reserved_port;

use extract::Step;
use postgres::Own;
use reserved_port::ReservedPort;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One test for each page, and the list of them.
macro_rules! pages {
    ($($test:ident $page:literal,)*) => {
        $(#[test]
        fn $test() {
            run(extract::session(&std::fs::read_to_string(root().join($page)).unwrap()));
        })*

        const PAGES: &[&str] = &[$($page,)*];
    };
}

pages! {
    readme "README.md",
    backup "docs/backup.md",
    buffers "docs/buffers.md",
    cli "docs/cli.md",
    compute "docs/compute.md",
    events "docs/events.md",
    export_import "docs/export-import.md",
    flow_control "docs/flow-control.md",
    groups "docs/groups.md",
    http "docs/http.md",
    metrics "docs/metrics.md",
    postgres_store "docs/postgres.md",
    schedules "docs/schedules.md",
    security "docs/security.md",
    server "docs/server.md",
    traces "docs/traces.md",
    workers "examples/README.md",
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_page_with_commands_is_run() {
    let mut with_commands = Vec::new();
    for folder in ["", "docs", "docs/worker", "examples"] {
        for entry in std::fs::read_dir(root().join(folder)).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md")
                && !extract::session(&std::fs::read_to_string(&path).unwrap()).is_empty()
            {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                with_commands.push(name);
            }
        }
    }
    let missing: Vec<_> = with_commands.iter().filter(|page| !PAGES.contains(&page.as_str())).collect();
    assert!(missing.is_empty(), "add to the list of pages: {missing:?}");
    assert!(with_commands.len() >= PAGES.len(), "a page of the list has no commands");
}

fn run(mut steps: Vec<Step>) {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("bin")).unwrap();
    std::fs::create_dir(at("work")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_towline"), at("bin/towline")).unwrap();
    std::os::unix::fs::symlink(root().canonicalize().unwrap().join("examples"), at("work/examples")).unwrap();
    let port = ReservedPort::new();
    let bucket = at("bucket").to_str().unwrap().to_owned();
    let mut stands_for = vec![("7420", port.address().port().to_string()), ("s3://bucket", bucket)];
    let database = steps.iter().any(|step| step.command.contains("db.internal")).then(database);
    stands_for.extend(database.iter().map(|(_, port)| ("db.internal", port.address().to_string())));
    for (name, real) in &stands_for {
        for text in steps.iter_mut().flat_map(|step| step.prints.iter_mut().chain([&mut step.command])) {
            *text = text.replace(name, real);
        }
    }
    // One shell for all steps, so that variables stay. The output of each step goes to a separate file.
    let mut script = include_str!("session.sh").to_owned();
    script.push_str("towline serve\n");
    if steps.iter().any(|step| step.command.contains("towline serve")) {
        script.push_str("stop_server\n");
    }
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
    let mut shell = Command::new("bash");
    // Without the variables of the tests, such as TOWLINE_SOAK.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TOWLINE_")) {
        shell.env_remove(name);
    }
    shell.arg(at("tour.sh")).current_dir(at("work"));
    shell.env("PATH", format!("{}:{old}", at("bin").display()));
    shell.env("TOWLINE_LISTEN", port.address().to_string());
    shell.env("TOWLINE_URL", format!("http://{}", port.address()));
    let output = shell.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let reached = std::fs::read_to_string(at("step")).ok().and_then(|step| step.trim().parse().ok());
        let command = reached.map_or("the start", |reached: usize| &steps[reached].command);
        panic!("{command} ended with {}:\n{words}", output.status);
    }
    for (number, step) in steps.iter().enumerate().filter(|(_, step)| !step.prints.is_empty()) {
        let printed = std::fs::read_to_string(at(&format!("out.{number}"))).unwrap();
        let printed: Vec<&str> = printed.lines().collect();
        if let Err(difference) = matching::compare(&step.prints, &printed) {
            panic!("{}\nprints something else: {difference}\n{}\n{words}", step.command, printed.join("\n"));
        }
    }
}

/// A server with the database and the roles that the documents name, and its port.
fn database() -> (Own, ReservedPort) {
    let port = ReservedPort::new();
    let number = port.address().port();
    let settings = ["listen_addresses=127.0.0.1".to_owned(), format!("port={number}")];
    let server = Own::start_tcp(&settings, &[], number);
    postgres::RUNTIME.block_on(async {
        let client = postgres::connect(&server.config()).await.unwrap();
        for statement in ["CREATE DATABASE queue", "CREATE ROLE owner SUPERUSER LOGIN"] {
            client.batch_execute(statement).await.unwrap();
        }
    });
    (server, port)
}

#[test]
fn a_step_that_fails_or_prints_other_text_is_reported() {
    let report = |text: &'static str| {
        let steps = extract::session(text);
        let end = std::panic::catch_unwind(|| run(steps)).unwrap_err();
        *end.downcast::<String>().unwrap()
    };
    let failed = report("```sh\ntrue\nfalse\n```\n");
    assert!(failed.starts_with("false ended with"), "{failed}");
    let differs = report("```sh\necho one\n# => two\n```\n");
    assert!(differs.contains("prints something else"), "{differs}");
}
