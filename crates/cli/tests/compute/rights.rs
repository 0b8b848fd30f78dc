//! What the token of a replica permits: its queues, and buffers by id. Nothing else.

use crate::rig::{Server, until};

const PROBE: &str = "
towline queue submit $JOBS_QUEUE_NAME > /dev/null && echo submits
towline queue receive $JOBS_QUEUE_NAME > /dev/null && echo receives
towline queue show $JOBS_QUEUE_NAME > /dev/null && echo shows
b=$(towline buffer create) && echo hi | towline buffer write $b && [ $(towline buffer read $b) = hi ] && echo uses buffers
towline queue show other 2> /dev/null && echo BAD reads other
towline queue submit other 2> /dev/null && echo BAD submits other
towline queue submit towline:pool:default 2> /dev/null && echo BAD submits code
towline buffer list 2> /dev/null && echo BAD lists buffers
towline buffer delete $b 2> /dev/null && echo BAD deletes buffers
towline queue create mine 2> /dev/null && echo BAD creates queues
towline queue delete $JOBS_QUEUE_NAME 2> /dev/null && echo BAD deletes its queue
towline codespec create evil --command -- true 2> /dev/null && echo BAD creates code
towline run list 2> /dev/null && echo BAD lists runs
towline kv set a b 2> /dev/null && echo BAD writes records
echo over
exec sleep 600";

fn probe(server: &Server, admin: &dyn Fn(&[&str]) -> String) {
    admin(&["queue", "create", "requests"]);
    admin(&["queue", "create", "other"]);
    admin(&["codespec", "create", "code", "--queue", "jobs", "--command", "--", "sh", "-c", PROBE]);
    admin(&["service", "create", "s", "--codespec", "code", "--queue", "jobs=requests"]);
    let mut log = String::new();
    until("it is so", || {
        log = admin(&["service", "logs", "s", "--replica", "0"]);
        log.ends_with("over")
    });
    assert_eq!(log, "submits\nreceives\nshows\nuses buffers\nover", "{}", server.log());
}

#[test]
fn a_replica_may_use_its_queues_and_buffers_on_a_server_without_tokens() {
    let server = crate::server();
    probe(&server, &|args| server.ok(args));
}

#[test]
fn a_replica_may_use_its_queues_and_buffers_on_a_server_with_tokens() {
    let compute = ("TOWLINE_COMPUTE".to_owned(), "process".to_owned());
    let (server, token) = Server::start_asking(|_| vec![compute]);
    let admin = |args: &[&str]| {
        let mut command = server.command(args);
        command.env("TOWLINE_TOKEN", &token);
        crate::rig::Run::of(&mut command).ok(args)
    };
    probe(&server, &admin);
}

#[test]
fn the_token_of_a_replica_ends_with_it() {
    let server = crate::server();
    server.ok(&["queue", "create", "requests"]);
    let kept = server.directory().join("kept");
    let script = format!("cp $TOWLINE_TOKEN_FILE {0}.new && mv {0}.new {0}; exec sleep 600", kept.display());
    server.ok(&["codespec", "create", "code", "--queue", "jobs", "--command", "--", "sh", "-c", &script]);
    server.ok(&["service", "create", "s", "--codespec", "code", "--queue", "jobs=requests"]);
    until("it is so", || kept.exists());
    let with_token = |args: &[&str]| {
        let mut command = server.command(args);
        command.env("TOWLINE_TOKEN_FILE", &kept);
        crate::rig::Run::of(&mut command)
    };
    assert_eq!(with_token(&["queue", "show", "requests"]).code, Some(0));
    assert_eq!(
        with_token(&["queue", "show", "other"]).code,
        Some(1),
        "also without tokens it has its rights alone"
    );
    server.ok(&["service", "delete", "s"]);
    until("it is so", || {
        with_token(&["queue", "show", "requests"]).stderr.contains("lease of this token has ended")
    });
}
