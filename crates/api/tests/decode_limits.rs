//! Limits hold while a body is decoded, in both formats.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use serde_json::{Value, json};
use std::cell::Cell;
use towline_api::{
    Action, DecodeBudget, DecodeError, Element, Format, NewItem, OneOrMany, PatchQueue, SettleBody,
    SettleRequest, SubmitBody, SubmitRequest,
};
use towline_domain::limits::BATCH_MAX;

const FORMATS: [Format; 2] = [Format::Json, Format::MessagePack];

fn submit(items: usize) -> SubmitRequest {
    SubmitRequest { items: vec![NewItem::default(); items], wait: None }
}

fn many(body: SubmitBody) -> Vec<Element<NewItem>> {
    match body.items {
        OneOrMany::Many(items) => items,
        OneOrMany::One(item) => panic!("{item:?}"),
    }
}

#[test]
fn a_list_of_operations_ends_decoding_at_its_limit() {
    let too_long = DecodeError::ListTooLong { max: BATCH_MAX };
    assert!(too_long.to_string().contains("split the call"));
    for format in FORMATS {
        let whole = format.encode(&submit(BATCH_MAX)).unwrap();
        assert_eq!(many(format.decode(&whole).unwrap()).len(), BATCH_MAX);
        let body = format.encode(&submit(BATCH_MAX + 1)).unwrap();
        assert_eq!(format.decode::<SubmitBody>(&body), Err(too_long.clone()));
        let actions = vec![Action::default(); 5 * BATCH_MAX];
        let body = format.encode(&SettleRequest { actions }).unwrap();
        let budget = DecodeBudget::default();
        assert!(format.decode_within::<SettleBody>(&body, &budget).is_err());
        assert!(budget.used() < (BATCH_MAX + 1) * (size_of::<Action>() + 100), "{budget:?}");
    }
}

#[test]
fn memory_is_charged_by_what_is_built() {
    for format in FORMATS {
        let body = format.encode(&submit(1000)).unwrap();
        let budget = DecodeBudget::default();
        format.decode_within::<SubmitBody>(&body, &budget).unwrap();
        assert!(budget.used() > 1000 * size_of::<NewItem>(), "{budget:?}");
        assert!(budget.used() < 2000 * size_of::<NewItem>(), "{budget:?}");
    }
}

#[test]
fn decoding_stops_when_the_budget_is_used_up() {
    let tags: Value =
        (0..10_000).map(|n| (format!("{n}"), json!(""))).collect::<serde_json::Map<_, _>>().into();
    let values = json!([{"": 0}, [], null, [[0]], "", 1.5]);
    let many: Vec<&Value> = std::iter::repeat_n(&values, 20_000).collect();
    let (most, asked) = (100_000, Cell::new(0));
    let reserve = |bytes| {
        asked.set(bytes);
        true
    };
    for format in FORMATS {
        for body in [json!({"items": [{"tags": tags}]}), json!({"items": [{"params": {"a": many}}]})] {
            let body = format.encode(&body).unwrap();
            let budget = DecodeBudget::new(most, &reserve);
            let decoded = format.decode_within::<SubmitBody>(&body, &budget);
            assert_eq!(decoded, Err(DecodeError::TooLarge { max: most }), "{format:?}");
            assert!(asked.get() <= most);
            let broke = DecodeBudget::new(most, &|_| false);
            let decoded = format.decode_within::<SubmitBody>(&body, &broke);
            assert_eq!(decoded, Err(DecodeError::NoMemory), "{format:?}");
        }
        // A change of a queue is read into a tree first.
        let body = format.encode(&json!({"policy": {"weights": many}})).unwrap();
        let budget = DecodeBudget::new(most, &reserve);
        assert_eq!(
            format.decode_within::<PatchQueue>(&body, &budget),
            Err(DecodeError::TooLarge { max: most })
        );
    }
}

#[test]
fn a_malformed_element_fails_alone_and_within_the_limits() {
    let bad = [json!({"priority": "high"}), json!({"colour": 1}), json!([]), json!(7), json!(null)];
    for format in FORMATS {
        for bad in &bad {
            let body = format.encode(&json!({"items": [{"fee": 1}, bad, {"fee": 3}]})).unwrap();
            let items = many(format.decode(&body).unwrap());
            let fees: Vec<_> =
                items.iter().map(|item| item.0.as_ref().ok().and_then(|item| item.fee)).collect();
            assert_eq!(fees, [Some(1), None, Some(3)], "{format:?} {bad}");
            assert!(matches!(items[1].0, Err(DecodeError::Malformed(_))), "{format:?} {bad}");
        }
        // Malformed elements count, and what is built for them before the error.
        let body = format.encode(&json!({"items": vec![&bad[0]; BATCH_MAX + 1]})).unwrap();
        assert_eq!(format.decode::<SubmitBody>(&body), Err(DecodeError::ListTooLong { max: BATCH_MAX }));
        let most = 100_000;
        let tags: Value =
            (0..10_000).map(|n| (format!("{n}"), json!(""))).collect::<serde_json::Map<_, _>>().into();
        let body = format.encode(&json!({"items": [&bad[0], {"tags": tags, "zzz": 1}]})).unwrap();
        let budget = DecodeBudget::new(most, &|_| true);
        assert_eq!(
            format.decode_within::<SubmitBody>(&body, &budget),
            Err(DecodeError::TooLarge { max: most })
        );
        // The message is short.
        let body = format.encode(&json!({"items": [{"x".repeat(100_000): 1}]})).unwrap();
        let Err(error) = many(format.decode(&body).unwrap()).remove(0).0 else { panic!() };
        assert!(error.to_string().len() < 1_000);
    }
    // Broken syntax is not an element.
    assert!(Format::Json.decode::<SubmitBody>(br#"{"items":[{},{"fee":]}"#).is_err());
}

#[test]
fn parameters_are_the_same_in_both_formats() {
    let value = json!({
        "text": "a\"\u{1}\u{1f600}\\", "list": [[], {}, [{}], null, true, false, 0, -1, 1.0, 1e300, u64::MAX, i64::MIN],
        "map": {"": {"a": {"b": [1, {"c": null}]}}},
    });
    let body = json!({"items": [{"params": {"p": value}}]});
    let decoded = FORMATS.map(|format| {
        let body = format.encode(&body).unwrap();
        let item = many(format.decode(&body).unwrap()).remove(0);
        item.0.unwrap().params.remove("p").unwrap()
    });
    assert_eq!(decoded[0], decoded[1]);
    assert_eq!(serde_json::from_str::<Value>(decoded[1].as_str()).unwrap(), value);
}
