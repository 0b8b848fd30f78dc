//! A body that is small on the wire and large once it is decoded is refused before it takes much memory.

use crate::calls::Call;
use crate::connection::{Answer, Connection, Ended};
use crate::random::Random;
use crate::rig::Server;
use crate::{seed, still_serves};

/// The size of each body, and the largest that the server accepts.
const BODY_BYTES: usize = 4 << 20;
/// Peak memory that the server may take above what it takes idle, with one body at a time: the body, a copy, and what is decoded.
const PEAK_MAX: u64 = 16 * BODY_BYTES as u64;
/// Bodies with random content, besides the listed ones.
const RANDOM_BODIES: usize = 28;

/// Routes whose bodies contain a list or a map, the JSON before and after its content, and whether it is a map.
const PLACES: [(&str, &str, &str, &str, bool); 14] = [
    ("POST", "/v1/queues/q/items", r#"{"items":["#, "]}", false),
    ("POST", "/v1/queues/q/items", r#"{"items":[{"params":{"a":["#, "]}}]}", false),
    ("POST", "/v1/queues/q/items", r#"{"items":[{"params":{"a":{"#, "}}}]}", true),
    ("POST", "/v1/queues/q/items", r#"{"items":[{"params":{"#, "}}]}", true),
    ("POST", "/v1/queues/q/items", r#"{"items":[{"tags":{"#, "}}]}", true),
    ("POST", "/v1/queues/q/items", r#"{"items":[{"after":{"items":["#, "]}}]}", false),
    ("POST", "/v1/settle", r#"{"actions":["#, "]}", false),
    ("POST", "/v1/settle", r#"{"actions":[{"unset":["#, "]}]}", false),
    ("POST", "/v1/settle", r#"{"actions":[{"output_params":{"#, "}}]}", true),
    ("PUT", "/v1/queues/other", r#"{"schema":{"inputs":["#, "]}}", false),
    ("PATCH", "/v1/queues/q", r#"{"policy":{"tally_tags":["#, "]}}", false),
    ("PATCH", "/v1/queues/q", r#"{"policy":{"weights":{"#, "}}}", true),
    ("POST", "/v1/queues/q/receive", r#"{"fields":["#, "]}", false),
    ("PUT", "/v1/schedules/s", r#"{"every":"1h","queue":"q","item":{"tags":{"#, "}}}", true),
];

/// Values that take more memory than text.
const SMALL_VALUES: [&str; 10] =
    ["{}", "[]", "null", "0", "\"\"", "[0]", "{\"\":0}", "[[[[0]]]]", "{\"a\":{\"\":[]}}", "\"\\u0001\""];

fn json_body(place: usize, random: &mut Random, values: &[&str]) -> Vec<u8> {
    let (_, _, before, after, is_map) = PLACES[place];
    let mut body = before.as_bytes().to_vec();
    let mut name = 0_u32;
    while body.len() < BODY_BYTES - after.len() - 40 {
        if is_map {
            body.extend_from_slice(format!("\"{name:x}\":").as_bytes());
            name += 1;
        }
        body.extend_from_slice(random.pick(values).unwrap().as_bytes());
        body.push(b',');
    }
    body.pop();
    body.extend_from_slice(after.as_bytes());
    body
}

/// The same body in MessagePack.
fn messagepack(json: &[u8]) -> Vec<u8> {
    fn write(value: &serde_json::Value, out: &mut Vec<u8>) {
        let length = |short: u8, long: u8, length: usize, out: &mut Vec<u8>| match u8::try_from(length) {
            Ok(length) if length < 16 => out.push(short | length),
            _ => {
                out.push(long);
                out.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
            }
        };
        match value {
            serde_json::Value::String(text) if text.len() < 32 => {
                out.push(0xa0 | u8::try_from(text.len()).unwrap());
                out.extend_from_slice(text.as_bytes());
            }
            serde_json::Value::Array(list) => {
                length(0x90, 0xdd, list.len(), out);
                list.iter().for_each(|value| write(value, out));
            }
            serde_json::Value::Object(map) => {
                length(0x80, 0xdf, map.len(), out);
                for (name, value) in map {
                    write(&name.as_str().into(), out);
                    write(value, out);
                }
            }
            serde_json::Value::Number(_) => out.push(0),
            _ => out.push(0xc0),
        }
    }
    let mut out = Vec::new();
    write(&serde_json::from_slice(json).unwrap(), &mut out);
    out
}

/// MessagePack that claims lengths that it does not have, and JSON that is nested deeply.
fn lying_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let items = |list: &[u8]| [b"\x81\xa5items", list].concat();
    let one_item = |field: &[u8]| items(&[b"\x91\x81", field].concat());
    let deep =
        |open: &str| format!("{{\"items\":[{{\"params\":{{\"a\":{}", open.repeat(500_000)).into_bytes();
    vec![
        ("application/msgpack", items(b"\xdd\xff\xff\xff\xff")),
        (
            "application/msgpack",
            items(&[b"\xdd\xff\xff\xff\xff".to_vec(), vec![0x80; BODY_BYTES - 20]].concat()),
        ),
        ("application/msgpack", items(b"\xc6\xff\xff\xff\xff")),
        ("application/msgpack", one_item(b"\xa4tags\xdf\xff\xff\xff\xff")),
        ("application/msgpack", one_item(b"\xa6params\x81\xa1a\xdd\xff\xff\xff\xff")),
        ("application/msgpack", one_item(b"\xa7payload\xc6\xff\xff\xff\xff")),
        ("application/msgpack", one_item(b"\xa6source\xdb\xff\xff\xff\xff")),
        ("application/msgpack", one_item(&[b"\xa6params\x81\xa1a".to_vec(), vec![0x91; 1 << 20]].concat())),
        ("application/json", deep("[")),
        ("application/json", deep("{\"a\":")),
        ("application/json", deep("[[],")),
    ]
}

struct Sender {
    connection: Connection,
    pid: u32,
}

impl Sender {
    /// Sends a body and returns the code of the answer, or "200".
    fn send(&mut self, method: &'static str, path: &str, content_type: &str, body: Vec<u8>) -> String {
        let headers = vec![("content-type", content_type.to_owned())];
        let shown = format!("{path} {:?}", String::from_utf8_lossy(&body[..body.len().min(80)]));
        let call = Call { method, path: path.to_owned(), headers, body, may_wait: false };
        let code = match self.connection.exchange(&call) {
            Ended::Answered(Answer { status: 200, .. }) => "200".to_owned(),
            Ended::Answered(answer) => {
                let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
                let code = problem["code"].as_str().unwrap().to_owned();
                let detail = problem["detail"].as_str().unwrap();
                assert!(code != "too_large" || detail.contains("split the call"), "{shown}: {detail}");
                code
            }
            other => panic!("{shown}: {other:?}"),
        };
        let peak = crate::status_bytes(self.pid, "VmHWM:");
        assert!(peak < PEAK_MAX + idle_max(), "{shown}: {code}, peak {} MiB", peak >> 20);
        code
    }
}

/// More than the server takes idle.
const fn idle_max() -> u64 {
    48 << 20
}

#[test]
fn a_small_body_does_not_decode_to_a_large_value() {
    let bytes = BODY_BYTES.to_string();
    let server = Server::start_with(&[("MALLOC_ARENA_MAX", "1"), ("TOWLINE_BODY_BYTES_MAX", &bytes)]);
    let idle = crate::status_bytes(server.pid(), "VmHWM:");
    assert!(idle < idle_max(), "{idle}");
    let mut sender = Sender { connection: Connection::new(server.address()), pid: server.pid() };
    sender.connection.json("PUT", "/v1/queues/q", "{}");
    let mut random = Random::new(seed(), 5);
    // Many empty elements, in every list of operations.
    for place in [0, 6] {
        let body = json_body(place, &mut random, &["{}"]);
        let (method, path, ..) = PLACES[place];
        assert_eq!(sender.send(method, path, "application/msgpack", messagepack(&body)), "too_large");
        assert_eq!(sender.send(method, path, "application/json", body), "too_large");
    }
    for (content_type, body) in lying_bodies() {
        let code = sender.send("POST", "/v1/queues/q/items", content_type, body);
        assert!(["malformed_body", "too_large"].contains(&code.as_str()), "{code}");
    }
    for round in 0..RANDOM_BODIES {
        let place = round % PLACES.len();
        let (method, path, ..) = PLACES[place];
        let one = [*random.pick(&SMALL_VALUES).unwrap()];
        let values = if random.one_in(3) { &SMALL_VALUES[..] } else { &one[..] };
        let body = json_body(place, &mut random, values);
        if random.one_in(2) {
            sender.send(method, path, "application/msgpack", messagepack(&body));
        } else {
            sender.send(method, path, "application/json", body);
        }
    }
    let peak = crate::status_bytes(server.pid(), "VmHWM:");
    println!("peak of the server's memory: {} MiB, {} MiB idle", peak >> 20, idle >> 20);
    still_serves(&server);
}
