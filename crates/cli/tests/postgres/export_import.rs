//! Export from a directory to a database, and back.

use crate::migrate::url;
use crate::postgres::Own;
use crate::rig::{Run, Server, piped, towline};
use std::process::Stdio;

#[test]
fn everything_goes_to_a_database_and_back() {
    let mut from = Server::start();
    from.ok(&["queue", "create", "jobs"]);
    for n in 0..5 {
        let (payload, tag) = (format!("work {n}"), format!("n={n}"));
        from.ok(&["queue", "submit", "jobs", "--payload", &payload, "--tag", &tag]);
    }
    let (done, lease) = from.receive(&["jobs"]);
    from.ok(&["item", "commit", &done, "--lease", &lease, "--output-param", "found=it"]);
    let (held, lease) = from.receive(&["jobs"]);
    let list = ["queue", "item", "list", "jobs", "-o", "json"];
    let before = from.json(&list);
    from.stop();

    let database = Own::start();
    let store = url(&database);
    let first = from.directory().join("data");
    let mut back = Server::start();
    back.stop();
    let second = back.directory().join("data");
    let place = from.directory().join("place");
    let place = ["--buffers", place.to_str().unwrap()];
    for (source, target) in [
        (vec!["--data", first.to_str().unwrap()], [&["--store", store.as_str()][..], &place].concat()),
        ([&["--store", store.as_str()][..], &place].concat(), vec!["--data", second.to_str().unwrap()]),
    ] {
        let mut export = towline(&[&["export"][..], &source].concat());
        let mut exporting = piped(&mut export).spawn().unwrap();
        let pipe = Stdio::from(exporting.stdout.take().unwrap());
        let imported = Run::of(towline(&[&["import"][..], &target].concat()).stdin(pipe));
        assert_eq!(Run::end(exporting).code, Some(0));
        assert_eq!(imported.code, Some(0), "{imported:?}");
    }
    back.restart();
    for server in [&Server::start_with(&[("TOWLINE_STORE", store.as_str())]), &back] {
        assert_eq!(server.json(&list), before);
        assert_eq!(server.json(&["item", "show", &done])["output_params"]["found"], "it");
        // The lease is valid after the import.
        server.ok(&["item", "commit", &held, "--lease", &lease]);
    }
}
