//! Mutations of a call: of its values, its bytes, its path.

use crate::random::Random;
use serde_json::{Value, json};
use towline_api::Format;

/// Replaces a random value inside a JSON value.
pub fn value(random: &mut Random, at: &mut Value) {
    let place = |random: &mut Random, length: usize| usize::try_from(random.below(length as u64)).unwrap();
    let stay = random.one_in(4);
    match at {
        Value::Object(map) if !stay && !map.is_empty() => {
            let place = place(random, map.len());
            value(random, map.values_mut().nth(place).unwrap());
        }
        Value::Array(list) if !stay && !list.is_empty() => {
            let place = place(random, list.len());
            value(random, &mut list[place]);
        }
        _ => replace(random, at),
    }
}

fn replace(random: &mut Random, at: &mut Value) {
    match (random.below(8), at) {
        (0, Value::Object(map)) => {
            if let Some(name) = map.keys().next().cloned() {
                map.remove(&name);
            }
        }
        (1, Value::Object(map)) => {
            map.insert(text(random), strange(random));
        }
        (2, Value::Array(list)) => {
            let more = list.clone();
            (0..random.below(40)).for_each(|_| list.extend(more.iter().take(50).cloned()));
        }
        (3, Value::Array(list)) => list.push(strange(random)),
        (_, at) => *at = strange(random),
    }
}

fn strange(random: &mut Random) -> Value {
    match random.below(24) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(u64::MAX),
        5 => json!(i64::MIN),
        6 => json!(1e308),
        7 => json!(-0.0),
        8 => json!(0.1),
        9 => json!([]),
        10 => json!({}),
        11 => json!([[[[[null]]]]]),
        12 => (0..random.below(150)).fold(json!(1), |inner, _| json!([inner])),
        13 => (0..random.below(150)).fold(json!(1), |inner, _| json!({ "a": inner })),
        14 => (0..300).map(|n| (format!("name{n}"), json!(n))).collect::<serde_json::Map<_, _>>().into(),
        15 => json!(random.roll()),
        16 => json!("x".repeat(usize::try_from(random.below(6000)).unwrap())),
        17 if random.one_in(20) => json!("A".repeat(5 << 20)),
        _ => json!(text(random)),
    }
}

fn text(random: &mut Random) -> String {
    let texts = [
        "",
        " ",
        "q1",
        "/",
        "..",
        "a\u{0}b",
        "\u{feff}",
        "\u{202e}abc",
        "💥",
        "é",
        "true",
        "null",
        "-5m",
        "5",
        "1e9s",
        "99999999999999999999d",
        "P1Y",
        "PT-5S",
        "2030-01-31",
        "9999-12-31T23:59:59Z",
        "+275760-09-13T00:00:00Z",
        "-009999-01-01T00:00:00Z",
        "aGVsbG8",
        "====",
        "00000000-0000-0000-0000-000000000000",
        "ffffffffffffffffffffffffffffffff",
        "result?",
        "UPPER",
        "payload",
        "commit",
        "__proto__",
        "{\"a\":1}",
        "%00",
        "a=b",
        "2h45m",
    ];
    (*random.pick(&texts).unwrap()).to_owned()
}

/// MessagePack with lengths beyond its end.
const PROMISES: [&[u8]; 7] = [
    &[0xdd, 0xff, 0xff, 0xff, 0xff],
    &[0xdf, 0xff, 0xff, 0xff, 0xff],
    &[0xdb, 0xff, 0xff, 0xff, 0xff],
    &[0xc6, 0xff, 0xff, 0xff, 0xff],
    &[0xc9, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0xc1],
    &[0xd4, 0xff, 0x00],
];

pub fn bytes(random: &mut Random, body: &mut Vec<u8>, format: Format) {
    let at = usize::try_from(random.below(body.len() as u64 + 1)).unwrap();
    match random.below(12) {
        0 | 1 if at < body.len() => body[at] ^= 1 << random.below(8),
        2 if at < body.len() => body[at] = random.roll().to_le_bytes()[0],
        3 | 4 => body.truncate(at),
        5 => {
            let piece: Vec<u8> = body[at..].iter().take(40).copied().collect();
            body.splice(at..at, piece);
        }
        6 => {
            let from = usize::try_from(random.below(body.len() as u64 + 1)).unwrap();
            let piece: Vec<u8> = body[from..].to_vec();
            body.truncate(at);
            body.extend(piece);
        }
        7 => {
            let whole = body.clone();
            body.extend(whole);
        }
        8 => {
            // Nested more deeply than any stack allows.
            let deepest = if random.one_in(20) { 200_000 } else { 300 };
            let depth = usize::try_from(random.below(deepest)).unwrap();
            let open: &[u8] = match (format, random.one_in(2)) {
                (Format::Json, true) => b"[",
                (Format::Json, false) => b"{\"a\":",
                (Format::MessagePack, true) => &[0x91],
                (Format::MessagePack, false) => &[0x81, 0xa1, b'a'],
            };
            body.splice(at..at, open.repeat(depth));
        }
        9 => {
            let broken: [&[u8]; 4] =
                [&[0xff, 0xfe], &[0xed, 0xa0, 0x80], &[0xc0, 0x80], &[0xf5, 0x80, 0x80, 0x80]];
            body.splice(at..at, random.pick(&broken).unwrap().iter().copied());
        }
        10 if format == Format::MessagePack => {
            body.splice(at..at, random.pick(&PROMISES).unwrap().iter().copied());
        }
        10 => {
            let pieces = [
                "1e999",
                "-",
                "\\ud800",
                "\"\\ud800\"",
                "99999999999999999999999999",
                "NaN",
                "/**/",
                ",,",
                "\"a\":1,\"a\":2,",
            ];
            body.splice(at..at, random.pick(&pieces).unwrap().bytes());
        }
        _ => {
            let length = random.below(30);
            let noise = random.bytes(length);
            body.splice(at..at, noise);
        }
    }
}

/// Stays one line of visible characters: a path that cannot be sent tests nothing.
pub fn path(random: &mut Random, path: String) -> String {
    let mut path = path.into_bytes();
    let at = 1 + usize::try_from(random.below(path.len() as u64)).unwrap();
    let pieces = [
        "%00",
        "%",
        "%zz",
        "%ff%fe",
        "..",
        "//",
        "?",
        "&",
        "&limit=0",
        "&limit=-1",
        "&cursor=99999999999999999999",
        "=",
        "%2F",
        "{",
        "é",
        "x",
        "?force=maybe",
        "&tag=",
        "&fields=nonsense",
        "&state=odd",
    ];
    match random.below(4) {
        0 => path.truncate(at),
        1 => {
            let long = b"x".repeat(usize::try_from(random.below(3000)).unwrap());
            path.splice(at..at, long);
        }
        _ => {
            path.splice(at..at, random.pick(&pieces).unwrap().bytes());
        }
    }
    String::from_utf8_lossy(&path).into_owned()
}
