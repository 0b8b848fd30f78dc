//! Types and values for the property tests.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towline::codec::{Date, ErrorValue, Integer, Map, Set, Value};

/// A type with most forms of serde's data model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Shape {
    Unit,
    Small(i8),
    Wide(i128),
    WideUnsigned(u128),
    Float(f64),
    Pair(u64, String),
    Fields { first: Option<f64>, second: char },
    List(Vec<Shape>),
    ByNumber(BTreeMap<i64, Shape>),
    ByFlag(BTreeMap<bool, u8>),
    ByName(BTreeMap<String, Shape>),
    ByPair(BTreeMap<(u8, u8), u8>),
    Maybe(Option<Option<bool>>),
    Wrapped(Wrapped),
    Tagged(Internal),
    When(Date),
    Many(Set<i64>),
    Table(Map<String, u8>),
    Failed(ErrorValue),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wrapped(pub Vec<u8>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Internal {
    Empty,
    Full {
        #[serde(flatten)]
        rest: BTreeMap<String, String>,
    },
}

/// Strings that are hard to write as JSON: quotes, escapes, control characters, and the key of the tags.
pub fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => ".{0,6}", 1 => "[\"\\\\/\u{0}-\u{1f}\u{2028}😀]{0,4}", 1 => Just("$ayepi".to_owned()), 1 => Just("kind".to_owned())]
}

fn date() -> impl Strategy<Value = Date> {
    let nanoseconds =
        prop_oneof![Just(0), Just(7_000_000), Just(1), any::<u32>().prop_map(|n| n % 1_000_000_000)];
    (-377_705_023_201i64..253_402_207_200, nanoseconds).prop_map(|(seconds, nanoseconds)| {
        let whole = jiff::Timestamp::from_second(seconds).unwrap();
        Date(whole + jiff::SignedDuration::from_nanos(nanoseconds.into()))
    })
}

fn error() -> impl Strategy<Value = ErrorValue> {
    (text(), text(), proptest::option::of(text())).prop_map(|(name, message, stack)| ErrorValue {
        name,
        message,
        stack,
    })
}

pub fn shape() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        Just(Shape::Unit),
        any::<i8>().prop_map(Shape::Small),
        prop_oneof![any::<i128>(), any::<i64>().prop_map(i128::from)].prop_map(Shape::Wide),
        prop_oneof![any::<u128>(), any::<u64>().prop_map(u128::from)].prop_map(Shape::WideUnsigned),
        proptest::num::f64::ANY.prop_map(Shape::Float),
        (any::<u64>(), text()).prop_map(|(number, text)| Shape::Pair(number, text)),
        (any::<Option<f64>>(), any::<char>()).prop_map(|(first, second)| Shape::Fields { first, second }),
        btree_map(any::<bool>(), any::<u8>(), 0..3).prop_map(Shape::ByFlag),
        btree_map(any::<(u8, u8)>(), any::<u8>(), 0..3).prop_map(Shape::ByPair),
        any::<Option<Option<bool>>>().prop_map(Shape::Maybe),
        vec(any::<u8>(), 0..4).prop_map(|bytes| Shape::Wrapped(Wrapped(bytes))),
        btree_map(text(), text(), 0..3).prop_map(|rest| Shape::Tagged(Internal::Full { rest })),
        Just(Shape::Tagged(Internal::Empty)),
        date().prop_map(Shape::When),
        vec(any::<i64>(), 0..4).prop_map(|items| Shape::Many(items.into_iter().collect())),
        btree_map(text(), any::<u8>(), 0..3).prop_map(|entries| Shape::Table(Map(entries))),
        error().prop_map(Shape::Failed),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Shape::List),
            btree_map(any::<i64>(), inner.clone(), 0..4).prop_map(Shape::ByNumber),
            btree_map(text(), inner, 0..4).prop_map(Shape::ByName),
        ]
    })
}

/// Values of JSON's types, including numbers that JSON cannot hold.
pub fn plain_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(|n| Value::Integer(n.into())),
        any::<u64>().prop_map(|n| Value::Integer(n.into())),
        any::<i128>().prop_map(|n| Value::Integer(n.into())),
        any::<f64>().prop_map(Value::Float),
        proptest::num::f64::ANY.prop_map(Value::Float),
        text().prop_map(Value::Text),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::List),
            vec((text(), inner), 0..4).prop_map(Value::Object),
        ]
    })
}

/// Values of every type.
pub fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(Value::Undefined),
        any::<bool>().prop_map(Value::Bool),
        any::<i32>().prop_map(|n| Value::Integer(n.into())),
        any::<i128>().prop_map(|n| Value::BigInt(n.into())),
        any::<u128>().prop_map(|n| Value::BigInt(Integer::from(n))),
        proptest::num::f64::ANY.prop_map(Value::Float),
        text().prop_map(Value::Text),
        vec(any::<u8>(), 0..4).prop_map(Value::Bytes),
        date().prop_map(|date| Value::Date(date.0)),
        error().prop_map(Value::Error),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::List),
            vec(inner.clone(), 0..4).prop_map(Value::Set),
            vec((text(), inner.clone()), 0..4).prop_map(Value::Object),
            vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    })
}
