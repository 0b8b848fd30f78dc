//! Buffers as scripts use them: output, and data through pipes.

use crate::rig::{Lines, Run, Server, in_time, piped, until};
use std::io::{Read, Write};
use std::process::Stdio;

fn bash(server: &Server, script: &str) -> Run {
    Run::of(&mut server.script(&format!("set -o pipefail; cd '{}'; {script}", server.directory().display())))
}

#[test]
fn create_prints_the_id_alone_and_show_prints_json() {
    let server = Server::start();
    let id = server.ok(&["buffer", "create", "--tag", "team=mri", "--ttl", "7d"]);
    assert_eq!((id.len(), id.lines().count()), (36, 1), "{id}");
    let shown = server.json(&["buffer", "show", &id]);
    assert_eq!((shown["id"].as_str(), shown["state"].as_str()), (Some(id.as_str()), Some("empty")));
    assert_eq!(shown["tags"]["team"], "mri");
    assert!(shown["expires_at"].is_string());
    let whole = server.json(&["buffer", "create", "-o", "json"]);
    assert!(whole.get("expires_at").is_none() && whole["state"] == "empty", "{whole}");
}

#[test]
fn lists_by_tag_and_deletes_several() {
    let server = Server::start();
    let mri: Vec<String> = (0..3).map(|_| server.ok(&["buffer", "create", "--tag", "team=mri"])).collect();
    let ct = server.ok(&["buffers", "create", "--tag", "team=ct"]);
    let listed = server.json(&["buffers", "list", "--tag", "team=mri"]);
    let ids: Vec<&str> = listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, mri);
    assert_eq!(server.json(&["buffer", "list", "--limit", "2"]).as_array().unwrap().len(), 2);
    let table = server.ok(&["buffer", "list", "-o", "table"]);
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(table.contains("team=ct") && table.starts_with("ID "), "{table}");
    let run = server.run(&["buffer", "delete", &mri[0], "nonsense", &ct]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
    assert!(run.stderr.contains("nonsense"), "{run:?}");
    assert_eq!(server.json(&["buffer", "list"]).as_array().unwrap().len(), 2);
}

#[test]
fn a_reader_that_comes_first_sees_every_byte_as_it_is_written() {
    let server = Server::start();
    let id = server.ok(&["buffer", "create"]);
    let mut reader = piped(&mut server.command(&["buffer", "read", &id])).spawn().unwrap();
    let mut writer =
        piped(&mut server.command(&["buffer", "write", &id])).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = writer.stdin.take().unwrap();
    let mut lines = Lines::of(reader.stdout.take().unwrap());
    for line in ["first\n", "second\n"] {
        input.write_all(line.as_bytes()).unwrap();
        // The bytes arrive although the chunk is not full and the writer has not ended.
        let (rest, read) = lines.read();
        assert_eq!(read, line);
        lines = rest;
    }
    input.write_all(b"last").unwrap();
    drop(input);
    assert_eq!(lines.rest(), "last");
    for child in [writer, reader] {
        let run = Run::end(child);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    }
    assert_eq!(server.json(&["buffer", "show", &id])["bytes"], 17);
}

#[test]
fn large_data_is_transferred_unchanged() {
    let server = Server::start();
    let run = bash(
        &server,
        "head -c 30000001 /dev/urandom > sent && id=$(towline buffer create)
         towline buffer read $id > through_a_pipe & first=$!
         towline buffer read $id --output into_a_file & second=$!
         cat sent | towline buffer write $id && wait $first && wait $second &&
         cmp sent through_a_pipe && cmp sent into_a_file &&
         copy=$(towline buffer copy $id --tag of=$id) && towline buffer read $copy | cmp - sent &&
         other=$(towline buffer create) && towline buffer write $other --input sent &&
         diff <(towline buffer show $id | jq .chain) <(towline buffer show $copy | jq .chain)",
    );
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn an_empty_buffer_is_written_and_read() {
    let server = Server::start();
    let run = bash(
        &server,
        "id=$(towline buffer create); towline buffer write $id < /dev/null && towline buffer read $id | wc -c
         towline buffer show $id | jq -c '[.state, .bytes, .chunks]'",
    );
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (Some(0), "0\n[\"complete\",0,0]\n", "")
    );
}

#[test]
fn ranges() {
    let server = Server::start();
    let id = server.ok(&["buffer", "create"]);
    assert_eq!(server.feed(&["buffer", "write", &id], "0123456789").code, Some(0));
    for (range, bytes) in [
        ("0-0", "0"),
        ("2-5", "2345"),
        ("7-", "789"),
        ("7-100", "789"),
        ("-3", "789"),
        ("-100", "0123456789"),
    ] {
        assert_eq!(server.ok(&["buffer", "read", &id, "--range", range]), bytes, "{range}");
    }
    for range in ["10-", "10-20"] {
        let run = server.run(&["buffer", "read", &id, "--range", range]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{range}");
        assert!(run.stderr.contains("10 bytes"), "{run:?}");
    }
}

#[test]
fn an_overwrite_is_refused_before_reading_the_input() {
    let server = Server::start();
    let id = server.ok(&["buffer", "create"]);
    assert_eq!(server.feed(&["buffer", "write", &id], "mine").code, Some(0));
    let run = bash(&server, &format!("yes | towline buffer write {id}; echo ${{PIPESTATUS[1]}}"));
    assert_eq!(run.stdout, "1\n", "{run:?}");
    assert!(run.stderr.contains("overwrite refused"), "{run:?}");
    assert_eq!(server.ok(&["buffer", "read", &id]), "mine");
}

#[test]
fn a_closed_pipe_ends_the_read_quietly() {
    let server = Server::start();
    let id = server.ok(&["buffer", "create"]);
    let file = server.directory().join("file");
    std::fs::write(&file, "x".repeat(20 << 20)).unwrap();
    server.ok(&["buffer", "write", &id, "--input", file.to_str().unwrap()]);
    let run = bash(&server, &format!("towline buffer read {id} | head -c 3"));
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "xxx", ""));
    // Also while no bytes arrive.
    let empty = server.ok(&["buffer", "create"]);
    let run = bash(&server, &format!("towline buffer read {empty} | true"));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_missing_buffer_is_reported_before_touching_a_file() {
    let server = Server::start();
    let file = server.directory().join("precious");
    std::fs::write(&file, "precious").unwrap();
    for id in ["nothing", "../../etc/passwd", "..", "a/b", ""] {
        for args in [
            &["buffer", "show", id][..],
            &["buffer", "read", id, "--output", file.to_str().unwrap()],
            &["buffer", "write", id],
            &["buffer", "copy", id],
            &["buffer", "delete", id],
        ] {
            let run = server.run(args);
            assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{args:?}: {run:?}");
            assert!(run.stderr.contains("buffer"), "{args:?}: {run:?}");
        }
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "precious");
    let run = server.run(&["buffer", "write", "b", "--input", "/does/not/exist"]);
    assert!(run.code == Some(1) && run.stderr.contains("/does/not/exist"), "{run:?}");
}

#[test]
fn an_idle_writer_is_kept_alive() {
    let server = Server::start();
    let id = server.ok(&["buffer", "create"]);
    let mut writer =
        piped(&mut server.command(&["buffer", "write", &id])).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = writer.stdin.take().unwrap();
    input.write_all(b"before").unwrap();
    let sign = || server.json(&["buffer", "show", &id])["last_sign_at"].as_str().map(str::to_owned);
    until("the first bytes are there", || server.json(&["buffer", "show", &id])["bytes"] == 6);
    let first = sign();
    until("the writer sends a sign of life", {
        let mut seen = vec![first];
        move || {
            let now = sign();
            if seen.last() != Some(&now) {
                seen.push(now);
            }
            seen.len() == 2
        }
    });
    input.write_all(b" and after").unwrap();
    drop(input);
    assert_eq!(Run::end(writer).code, Some(0));
    assert_eq!(server.ok(&["buffer", "read", &id]), "before and after");
}

#[test]
fn no_progress_is_printed_to_pipes() {
    let server = Server::start();
    let id = server.ok(&["buffer", "create"]);
    let run = server.feed(&["buffer", "write", &id], &"x".repeat(5 << 20));
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""));
    let child = piped(&mut server.command(&["buffer", "read", &id])).spawn().unwrap();
    let output = in_time("it is read", move || child.wait_with_output()).unwrap();
    let mut stderr = String::new();
    (&output.stderr[..]).read_to_string(&mut stderr).unwrap();
    assert_eq!((output.stdout.len(), stderr.as_str()), (5 << 20, ""));
}
