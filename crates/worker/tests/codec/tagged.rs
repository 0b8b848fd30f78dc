//! The tagged codec.

use crate::shapes::{Shape, any_value, shape};
use crate::{TAGGED, refused, round_trip, unreadable};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use towline::codec::{BigInt, Date, ErrorValue, Map, Set, Undefined, Value};

const SAFE: i64 = 9_007_199_254_740_991;

fn date(text: &str) -> Date {
    Date(text.parse().unwrap())
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Example {
    when: Date,
    n: BigInt,
    tags: Set<String>,
}

/// Golden vectors: later versions and other languages must read this text.
#[test]
fn writes_and_reads_every_tag() {
    let example =
        Example { when: date("1970-01-01T00:00:00Z"), n: BigInt(10), tags: Set::from_iter(["a".into()]) };
    assert_eq!(
        round_trip(TAGGED, &example),
        concat!(
            r#"{"when":{"$ayepi":"Date","value":"1970-01-01T00:00:00.000Z"},"#,
            r#""n":{"$ayepi":"BigInt","value":"10"},"#,
            r#""tags":{"$ayepi":"Set","value":["a"]}}"#,
        )
    );
    assert_eq!(round_trip(TAGGED, &Undefined), r#"{"$ayepi":"undefined"}"#);
    assert_eq!(
        round_trip(TAGGED, &Map::from_iter([("a".to_owned(), Some(1)), ("b".to_owned(), None)])),
        r#"{"$ayepi":"Map","value":[["a",1],["b",null]]}"#
    );
    let mut error = ErrorValue { name: "TypeError".into(), message: "no".into(), stack: None };
    assert_eq!(
        round_trip(TAGGED, &error),
        r#"{"$ayepi":"Error","value":{"name":"TypeError","message":"no"}}"#
    );
    error.stack = Some("at x".into());
    assert_eq!(
        round_trip(TAGGED, &error),
        r#"{"$ayepi":"Error","value":{"name":"TypeError","message":"no","stack":"at x"}}"#
    );
    assert_eq!(
        round_trip(TAGGED, &Set::from_iter([Set::from_iter([date("2024-02-29T12:00:00.07Z")])])),
        concat!(
            r#"{"$ayepi":"Set","value":[{"$ayepi":"Set","value":"#,
            r#"[{"$ayepi":"Date","value":"2024-02-29T12:00:00.070Z"}]}]}"#,
        )
    );
    // A year before 0, as `toISOString` writes it.
    assert_eq!(
        round_trip(TAGGED, &date("-000001-01-01T00:00:00Z")),
        r#"{"$ayepi":"Date","value":"-000001-01-01T00:00:00.000Z"}"#
    );
}

#[test]
fn integers_beyond_the_safe_range_are_big_ints() {
    assert_eq!(round_trip(TAGGED, &SAFE), "9007199254740991");
    assert_eq!(round_trip(TAGGED, &-SAFE), "-9007199254740991");
    assert_eq!(round_trip(TAGGED, &(SAFE + 1)), r#"{"$ayepi":"BigInt","value":"9007199254740992"}"#);
    assert_eq!(round_trip(TAGGED, &(-SAFE - 1)), r#"{"$ayepi":"BigInt","value":"-9007199254740992"}"#);
    for integer in [i128::MIN, i128::MAX] {
        assert_eq!(round_trip(TAGGED, &integer), format!(r#"{{"$ayepi":"BigInt","value":"{integer}"}}"#));
    }
    assert_eq!(
        round_trip(TAGGED, &u128::MAX),
        r#"{"$ayepi":"BigInt","value":"340282366920938463463374607431768211455"}"#
    );
}

#[test]
fn a_number_that_javascript_rounded_is_not_an_integer() {
    // 2 ** 60 as `JSON.stringify` writes it.
    let text = "1152921504606847000";
    assert_eq!(TAGGED.decode::<f64>(text), Ok(2f64.powi(60)));
    assert_eq!(
        unreadable::<u64>(TAGGED, text),
        "1152921504606847000 is a float, and floats from 2^53 on are not exact; use an integer (in JavaScript, a \
         BigInt)"
    );
    assert_eq!(TAGGED.decode::<f64>("100000000000000000000"), Ok(1e20));
    assert_eq!(TAGGED.decode::<u64>("9007199254740991"), Ok(SAFE as u64));
}

#[test]
fn a_big_int_is_decoded_as_any_integer_that_it_fits() {
    let text = r#"{"$ayepi":"BigInt","value":"200"}"#;
    assert_eq!(TAGGED.decode::<u8>(text), Ok(200));
    assert_eq!(TAGGED.decode::<i128>(text), Ok(200));
    assert!(unreadable::<i8>(TAGGED, text).contains("200"));
    assert!(unreadable::<u64>(TAGGED, r#"{"$ayepi":"BigInt","value":"-1"}"#).contains("-1"));
    let beyond = format!(r#"[{{"$ayepi":"BigInt","value":"{}0"}}]"#, u128::MAX);
    assert!(unreadable::<Vec<u128>>(TAGGED, &beyond).starts_with("[0]: the BigInt \"3402823669"));
    for digits in ["", "-", "+1", "0x10", "1.0", "1n", " 1", "--1"] {
        let text = format!(r#"{{"$ayepi":"BigInt","value":"{digits}"}}"#);
        assert!(unreadable::<i64>(TAGGED, &text).contains("is not an integer"), "{digits}");
    }
}

#[test]
fn negative_zero_is_kept() {
    assert_eq!(round_trip(TAGGED, &-0.0), "-0.0");
}

#[test]
fn maps_with_other_keys_than_strings_are_a_map() {
    assert_eq!(
        round_trip(TAGGED, &BTreeMap::from([(1, "a".to_owned()), (2, "b".to_owned())])),
        r#"{"$ayepi":"Map","value":[[1,"a"],[2,"b"]]}"#
    );
    assert_eq!(
        round_trip(TAGGED, &BTreeMap::from([((1, true), None), ((2, false), Some('x'))])),
        r#"{"$ayepi":"Map","value":[[[1,true],null],[[2,false],"x"]]}"#
    );
    assert_eq!(round_trip(TAGGED, &BTreeMap::from([("a".to_owned(), 1)])), r#"{"a":1}"#);
    assert_eq!(round_trip(TAGGED, &BTreeMap::<u8, u8>::new()), "{}");
    assert_eq!(round_trip(TAGGED, &Map::<u8, u8>::default()), r#"{"$ayepi":"Map","value":[]}"#);
    assert_eq!(TAGGED.decode(r#"{"1":2}"#), Ok(HashMap::from([(1, 2)])));
    let nested = BTreeMap::from([(7, BTreeMap::from([("x", f64::NAN)]))]);
    assert!(refused(TAGGED, &nested).starts_with("7.x: NaN cannot be written as JSON"));
}

#[derive(Debug, PartialEq, Deserialize)]
struct Usual {
    at: String,
    items: Vec<u8>,
    nothing: Option<u8>,
    unit: (),
    error: BTreeMap<String, String>,
}

#[test]
fn ordinary_types_decode_what_javascript_wrote() {
    let text = r#"{
        "at": {"$ayepi": "Date", "value": "2024-02-29T12:00:00.000Z"},
        "items": {"value": [1, {"$ayepi": "BigInt", "value": "2"}], "$ayepi": "Set"},
        "nothing": {"$ayepi": "undefined"},
        "unit": {"$ayepi": "undefined"},
        "error": {"$ayepi": "Error", "value": {"name": "E", "message": "m", "stack": {"$ayepi": "undefined"}}}
    }"#;
    let expected = Usual {
        at: "2024-02-29T12:00:00Z".into(),
        items: vec![1, 2],
        nothing: None,
        unit: (),
        error: BTreeMap::from([("name".into(), "E".into()), ("message".into(), "m".into())]),
    };
    assert_eq!(TAGGED.decode(text), Ok(expected));
}

#[test]
fn refuses_what_would_be_lost() {
    assert!(refused(TAGGED, &[f64::INFINITY]).starts_with("[0]: inf cannot be written"));
    assert!(
        TAGGED.write(&Value::Bytes(vec![1])).unwrap_err().to_string().starts_with("bytes cannot be written")
    );
    assert_eq!(
        refused(TAGGED, &[date("2024-02-29T12:00:00.0001Z")]),
        "[0]: 2024-02-29T12:00:00.0001Z is finer than a millisecond, which a Date in JavaScript cannot hold; round \
         it with round(jiff::Unit::Millisecond), or use a string"
    );
    let one = || Value::Integer(1.into());
    for value in [Value::Set(vec![one(), one()]), Value::Map(vec![(one(), one()), (one(), Value::Null)])] {
        assert!(TAGGED.write(&value).unwrap_err().to_string().contains("1 occurs twice"));
    }
    // They differ in Rust and are equal in JavaScript.
    for twice in [vec![Value::Float(0.0), Value::Float(-0.0)], vec![one(), Value::Float(1.0)]] {
        assert!(TAGGED.write(&Value::Set(twice)).unwrap_err().to_string().contains("occurs twice"));
    }
}

#[test]
fn an_object_with_the_tag_key_is_refused_and_a_map_is_accepted() {
    let plain = BTreeMap::from([("$ayepi".to_owned(), "Date".to_owned())]);
    assert_eq!(
        refused(TAGGED, &[&plain]),
        "[0]: an object with the key \"$ayepi\" would be read as a tag; rename the key, or use a codec::Map"
    );
    assert_eq!(round_trip(TAGGED, &Map(plain)), r#"{"$ayepi":"Map","value":[["$ayepi","Date"]]}"#);
    assert_eq!(round_trip(TAGGED, &"$ayepi".to_owned()), r#""$ayepi""#);
}

#[test]
fn refuses_malformed_tags() {
    for (text, refusal) in [
        (r#"{"$ayepi":"RegExp","value":"x"}"#, "the tag \"RegExp\" is unknown"),
        (r#"{"$ayepi":"date","value":"x"}"#, "the tag \"date\" is unknown"),
        (r#"{"$ayepi":7}"#, "an integer is not the name of a tag"),
        (r#"{"$ayepi":"undefined","value":1}"#, "the tag \"undefined\" cannot hold an integer"),
        (r#"{"$ayepi":"BigInt"}"#, "the tag \"BigInt\" needs a value"),
        (r#"{"$ayepi":"BigInt","value":1}"#, "the tag \"BigInt\" cannot hold an integer"),
        (r#"{"$ayepi":"Set","value":[1],"more":1}"#, "a tag cannot have the key \"more\""),
        (r#"{"$ayepi":"Set","value":{"a":1}}"#, "the tag \"Set\" cannot hold an object"),
        (r#"{"$ayepi":"Set","value":["a","a"]}"#, "\"a\" occurs twice"),
        (r#"{"$ayepi":"Map","value":[[1,2],[1,3]]}"#, "1 occurs twice"),
        (r#"{"$ayepi":"Map","value":[[1,2],[1,2,3]]}"#, "[1]: 3 items are not a pair"),
        (r#"{"$ayepi":"Map","value":[1]}"#, "[0]: an integer is not a pair"),
        (r#"{"$ayepi":"Date","value":"yesterday"}"#, "the Date \"yesterday\" cannot be read"),
        (r#"{"$ayepi":"Date","value":"+275760-09-13T00:00:00.000Z"}"#, "the Date \"+275760"),
        (r#"{"$ayepi":"Error","value":{"name":"E"}}"#, "the Error cannot be read: missing field `message`"),
        (
            r#"{"$ayepi":"Error","value":{"name":"E","message":"m","code":1}}"#,
            "the Error cannot be read: unknown field",
        ),
        (
            r#"{"$ayepi":"Error","value":{"name":1,"message":"m"}}"#,
            "the Error cannot be read: name: invalid type",
        ),
    ] {
        let error = TAGGED.read(text).unwrap_err().to_string();
        assert!(error.starts_with(refusal), "{text}: {error}");
    }
    let error = TAGGED.read(r#"{"a":[{"b":{"$ayepi":"Map","value":[[1,{"$ayepi":"?"}]]}}]}"#).unwrap_err();
    assert!(error.to_string().starts_with("a[0].b.1: the tag \"?\" is unknown"), "{error}");
}

proptest! {
    #[test]
    fn reads_every_value_that_it_writes(value in any_value()) {
        if let Ok(text) = TAGGED.write(&value) {
            prop_assert_eq!(format!("{:?}", TAGGED.read(&text).unwrap()), format!("{value:?}"));
            // Other programs can read it as JSON.
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        }
    }

    #[test]
    fn reads_every_type_that_it_writes(shape in shape()) {
        if let Ok(text) = TAGGED.encode(&shape) {
            let back: Shape = TAGGED.decode(&text).unwrap();
            prop_assert_eq!(format!("{back:?}"), format!("{shape:?}"));
        }
    }

    #[test]
    fn round_trips_every_integer_and_every_map(integers: BTreeMap<(i128, u128), Option<u64>>) {
        round_trip(TAGGED, &integers);
    }
}
