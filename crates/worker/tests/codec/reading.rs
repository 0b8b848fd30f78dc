//! Decoding text of other programs: every form of serde's types, and errors that name the place.

use crate::{JSON, TAGGED, round_trip, unreadable};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Integer(i64),
    Float(f64),
    Text(String),
    Fields { a: u8 },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", content = "c")]
enum Adjacent {
    One(u8),
    Many(Vec<Adjacent>),
    None,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outer {
    many_things: Vec<Untagged>,
    adjacent: Adjacent,
    shared: Arc<str>,
    #[serde(flatten)]
    inner: Inner,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Inner {
    #[serde(default)]
    level: Option<u8>,
    marker: std::marker::PhantomData<u8>,
    empty: [u8; 0],
}

#[test]
fn every_serde_form_of_enums_and_structs_is_decoded() {
    let outer = Outer {
        many_things: vec![
            Untagged::Integer(1),
            Untagged::Float(1.0),
            Untagged::Text("1".into()),
            Untagged::Fields { a: 1 },
        ],
        adjacent: Adjacent::Many(vec![Adjacent::One(1), Adjacent::None]),
        shared: "s".into(),
        inner: Inner { level: Some(1), marker: std::marker::PhantomData, empty: [] },
        rest: BTreeMap::from([("x".into(), serde_json::json!([1, null]))]),
    };
    let text = round_trip(JSON, &outer);
    assert_eq!(text, serde_json::to_string(&outer).unwrap());
    assert_eq!(round_trip(TAGGED, &outer), text);
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parcel {
    weight: f64,
    items: Vec<Item>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Item {
    count: u8,
    kind: Kind,
}

#[derive(Debug, PartialEq, Deserialize)]
enum Kind {
    Box,
    Sack(u8),
}

#[test]
fn an_error_names_the_place_of_the_value() {
    for (text, refusal) in [
        (
            r#"{"weight":1,"items":[{"count":256,"kind":"Box"}]}"#,
            "items[0].count: invalid value: integer `256`",
        ),
        (
            r#"{"weight":1,"items":[{"count":1.0,"kind":"Box"}]}"#,
            "items[0].count: invalid type: floating point",
        ),
        (r#"{"weight":"1","items":[]}"#, "weight: invalid type: string \"1\", expected f64"),
        (r#"{"weight":1,"items":[{"count":1,"kind":"Bag"}]}"#, "items[0].kind: unknown variant `Bag`"),
        (
            r#"{"weight":1,"items":[{"count":1,"kind":"Sack"}]}"#,
            "items[0].kind: the variant Sack has no content",
        ),
        (
            r#"{"weight":1,"items":[{"count":1,"kind":{"Sack":"x"}}]}"#,
            "items[0].kind.Sack: invalid type: string",
        ),
        (
            r#"{"weight":1,"items":[{"count":1,"kind":{"Box":1}}]}"#,
            "items[0].kind: the variant Box takes no content",
        ),
        (r#"{"weight":1,"items":[{"count":1,"kind":{}}]}"#, "items[0].kind: an object is not an enum"),
        (r#"{"weight":1,"items":[{"count":1,"kind":3}]}"#, "items[0].kind: an integer is not an enum"),
        (r#"{"weight":1,"items":[{"kind":"Box"}]}"#, "items[0]: missing field `count`"),
        (r#"{"weight":1,"items":[],"colour":1}"#, "unknown field `colour`"),
    ] {
        let error = unreadable::<Parcel>(JSON, text);
        assert!(error.starts_with(refusal), "{text}: {error}");
    }
    assert_eq!(
        JSON.decode(r#" {"items": [{"count": 1, "kind": {"Sack": 2}}], "weight": 1} "#),
        Ok(Parcel { weight: 1.0, items: vec![Item { count: 1, kind: Kind::Sack(2) }] })
    );
}

#[test]
fn decoding_rounds_and_drops_nothing() {
    // serde_json alone would round it to 1e20.
    assert_eq!(JSON.decode::<i128>("100000000000000000001"), Ok(100_000_000_000_000_000_001));
    assert_eq!(
        JSON.decode(r#"{"a":[-170141183460469231731687303715884105728]}"#),
        Ok(BTreeMap::from([("a".to_owned(), vec![i128::MIN])]))
    );
    assert_eq!(JSON.decode::<f64>("100000000000000000000"), Ok(1e20));
    assert!(unreadable::<u64>(JSON, "100000000000000000001").contains("100000000000000000001"));
    assert!(unreadable::<i128>(JSON, "1e20").contains("100000000000000000000 is a float"));
    assert!(unreadable::<f32>(JSON, "1e300").contains("a number that an f32 can hold"));
    assert!(unreadable::<(u8, u8)>(JSON, "[1,2,3]").contains("invalid length 3"));
    assert!(unreadable::<BTreeMap<u8, u8>>(JSON, r#"{"01":1}"#).contains("string \"01\""));
    assert!(unreadable::<BTreeMap<u8, u8>>(JSON, r#"{"256":1}"#).contains("256"));
    assert!(unreadable::<BTreeMap<bool, u8>>(JSON, r#"{"yes":1}"#).contains("string \"yes\""));
}
