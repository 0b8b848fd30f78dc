//! Groups that several servers count, and groups over several databases.

use crate::migrate::url;
use crate::postgres::Own;
use crate::rig::Server;

fn submit(server: &Server, args: &[&str]) -> String {
    server.ok(&[&["queue", "submit", "jobs"], args].concat())
}

fn commit(server: &Server) -> String {
    let (id, lease) = server.receive(&["jobs", "--wait", "20s"]);
    server.ok(&["item", "commit", &id, "--lease", &lease]);
    id
}

fn members(server: &Server) -> [u64; 3] {
    let shown = server.json(&["group", "show", "g"]);
    ["members", "unfinished", "completed"].map(|name| shown[name].as_u64().unwrap())
}

#[test]
fn two_servers_count_each_member_once_and_survive_a_kill() {
    let database = Own::start();
    let store = url(&database);
    let mut servers = [(); 2].map(|()| Server::start_with(&[("TOWLINE_STORE", &store)]));
    servers[0].ok(&["queue", "create", "jobs"]);
    let last = submit(&servers[1], &["--after-group", "g", "--after-expect", "6"]);
    for n in 0..6 {
        submit(&servers[n % 2], &["--group", "g"]);
    }
    for server in &servers {
        assert_eq!(members(server), [6, 6, 0], "each server counts the submits of both");
    }
    for n in 0..4 {
        commit(&servers[n % 2]);
    }
    for server in &servers {
        assert_eq!(members(server), [6, 2, 4]);
    }
    servers[0].kill();
    commit(&servers[1]);
    commit(&servers[1]);
    servers[1].ok(&["group", "wait", "g", "--expect", "6", "--timeout", "60s"]);
    assert_eq!(commit(&servers[1]), last);
    servers[0].restart();
    assert_eq!(members(&servers[0]), [6, 0, 6]);
    assert_eq!(servers[0].json(&["queue", "counts", "jobs", "-o", "json"])["completed"], 7);
}

#[test]
fn a_group_spans_databases() {
    let databases = [Own::start(), Own::start()];
    let stores = databases.each_ref().map(url).join(" ");
    let server = Server::start_with(&[("TOWLINE_STORE", &stores)]);
    server.ok(&["queue", "create", "jobs"]);
    let ids: Vec<String> = (0..6).map(|_| submit(&server, &["--group", "g"])).collect();
    let last = submit(&server, &["--after-group", "g"]);
    let of_items: Vec<&str> = ids.iter().flat_map(|id| ["--after-item", id.as_str()]).collect();
    let end = submit(&server, &of_items);
    for _ in 0..6 {
        commit(&server);
    }
    server.ok(&["group", "wait", "g", "--timeout", "60s"]);
    assert_eq!(members(&server), [6, 0, 6]);
    let mut released = [commit(&server), commit(&server)];
    released.sort();
    let mut waited = [last, end];
    waited.sort();
    assert_eq!(released, waited);
}
