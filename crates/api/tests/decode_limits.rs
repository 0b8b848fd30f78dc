//! Limits hold while a body is decoded, in both formats.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use serde_json::{Value, json};
use std::cell::Cell;
use towline_api::{
    Action, DecodeBudget, DecodeError, Format, NewItem, PatchQueue, SettleRequest, SubmitRequest,
};
use towline_domain::limits::BATCH_MAX;

const FORMATS: [Format; 2] = [Format::Json, Format::MessagePack];

fn submit(items: usize) -> SubmitRequest {
    SubmitRequest { items: vec![NewItem::default(); items], wait: None }
}

#[test]
fn a_list_of_operations_ends_decoding_at_its_limit() {
    let too_long = DecodeError::ListTooLong { max: BATCH_MAX };
    assert!(too_long.to_string().contains("split the call"));
    for format in FORMATS {
        let whole = format.encode(&submit(BATCH_MAX)).unwrap();
        assert_eq!(format.decode::<SubmitRequest>(&whole).unwrap().items.len(), BATCH_MAX);
        let body = format.encode(&submit(BATCH_MAX + 1)).unwrap();
        assert_eq!(format.decode::<SubmitRequest>(&body), Err(too_long.clone()));
        let actions = vec![Action::default(); 5 * BATCH_MAX];
        let body = format.encode(&SettleRequest { actions }).unwrap();
        let budget = DecodeBudget::default();
        assert!(format.decode_within::<SettleRequest>(&body, &budget).is_err());
        assert!(budget.used() < (BATCH_MAX + 1) * (size_of::<Action>() + 100), "{budget:?}");
    }
}

#[test]
fn memory_is_charged_by_what_is_built() {
    for format in FORMATS {
        let body = format.encode(&submit(1000)).unwrap();
        let budget = DecodeBudget::default();
        format.decode_within::<SubmitRequest>(&body, &budget).unwrap();
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
            let decoded = format.decode_within::<SubmitRequest>(&body, &budget);
            assert_eq!(decoded, Err(DecodeError::TooLarge { max: most }), "{format:?}");
            assert!(asked.get() <= most);
            let broke = DecodeBudget::new(most, &|_| false);
            let decoded = format.decode_within::<SubmitRequest>(&body, &broke);
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
fn parameters_are_the_same_in_both_formats() {
    let value = json!({
        "text": "a\"\u{1}\u{1f600}\\", "list": [[], {}, [{}], null, true, false, 0, -1, 1.0, 1e300, u64::MAX, i64::MIN],
        "map": {"": {"a": {"b": [1, {"c": null}]}}},
    });
    let body = json!({"items": [{"params": {"p": value}}]});
    let decoded = FORMATS.map(|format| {
        let body = format.encode(&body).unwrap();
        let mut request: SubmitRequest = format.decode(&body).unwrap();
        request.items.remove(0).params.remove("p").unwrap()
    });
    assert_eq!(decoded[0], decoded[1]);
    assert_eq!(serde_json::from_str::<Value>(decoded[1].as_str()).unwrap(), value);
}
