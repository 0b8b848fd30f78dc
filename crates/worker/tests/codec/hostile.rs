//! Malicious text and types: each causes an error, none a panic.

use crate::{JSON, TAGGED, refused, unreadable};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towline::codec::{Codec, DEPTH_MAX, Value};

const CODECS: [&dyn Codec; 2] = [JSON, TAGGED];

#[test]
fn deeply_nested_text_is_refused() {
    for codec in CODECS {
        let deepest = "[".repeat(DEPTH_MAX) + &"]".repeat(DEPTH_MAX);
        let value = codec.read(&deepest).unwrap();
        assert_eq!(codec.write(&value).unwrap(), deepest);
        let deeper = format!("[{deepest}]");
        assert!(codec.read(&deeper).unwrap_err().to_string().contains("nested more than 100 deep"));
        assert!(
            codec
                .write(&Value::List(vec![value]))
                .unwrap_err()
                .to_string()
                .contains("nested more than 100 deep")
        );
        for opening in ["[", r#"{"a":"#, r#"{"$ayepi":"Set","value":["#, r#"[{"a":"#] {
            let error = codec.read(&opening.repeat(100_000)).unwrap_err().to_string();
            assert!(error.contains("nested more than 100 deep"), "{error}");
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Chain {
    next: Option<Box<Chain>>,
}

/// Its nesting does not appear in the text.
#[derive(Debug, Serialize, Deserialize)]
struct Endless(Option<Box<Endless>>);

#[test]
fn deeply_nested_types_are_refused() {
    let chain = |count| (0..count).fold(Chain { next: None }, |next, _| Chain { next: Some(next.into()) });
    for codec in CODECS {
        let text = codec.encode(&chain(DEPTH_MAX - 1)).unwrap();
        codec.decode::<Chain>(&text).unwrap();
        for count in [DEPTH_MAX, 5000] {
            let refusal = refused(codec, &chain(count));
            assert!(refusal.contains("deep; make it flatter"), "{refusal}");
        }
        let endless = (0..5000).fold(Endless(None), |inner, _| Endless(Some(inner.into())));
        assert!(refused(codec, &endless).contains("nested more than 256 deep"));
        assert!(unreadable::<Endless>(codec, "5").contains("nested more than 256 deep"));
        assert!(
            unreadable::<BTreeMap<Endless2, u8>>(codec, r#"{"k":5}"#).contains("nested more than 256 deep")
        );
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Endless2(Option<Box<Endless2>>);

#[test]
fn tags_count_towards_the_depth() {
    let set = (0..60).fold(Value::Null, |inner, _| Value::Set(vec![inner]));
    assert!(TAGGED.write(&set).unwrap_err().to_string().contains("nested more than 100 deep"));
    let set = (0..50).fold(Value::Null, |inner, _| Value::Set(vec![inner]));
    assert_eq!(TAGGED.read(&TAGGED.write(&set).unwrap()), Ok(set));
}

#[test]
fn malformed_text_is_refused() {
    let broken = [
        "",
        " ",
        "nul",
        "[1,]",
        "{",
        "}",
        r#"{"a"}"#,
        r#"{"a":1,}"#,
        "{1:2}",
        "'a'",
        "NaN",
        "Infinity",
        "-",
        "+1",
        "01",
        "1.",
        ".5",
        "1e",
        "0x1",
        "[1] 2",
        "1 1",
        "null,",
        "\u{feff}1",
        "\"a",
        "\"\\x\"",
        "\"\n\"",
    ];
    for codec in CODECS {
        for text in broken {
            let error = codec.read(text).unwrap_err().to_string();
            assert!(error.starts_with("the text cannot be read as JSON: "), "{text}: {error}");
        }
    }
}

#[test]
fn duplicate_keys_lone_surrogates_and_huge_numbers_are_refused() {
    for codec in CODECS {
        let error = codec.read(r#"[{"a":1,"b":2,"\u0061":3}]"#).unwrap_err().to_string();
        assert!(error.contains(r#"the key "a" occurs twice at line 1 column"#), "{error}");
        for lone in [r#""\ud800""#, r#""\udc00""#, r#"{"\ud800":1}"#, r#""\ud800\ud800""#] {
            assert!(codec.read(lone).is_err(), "{lone}");
        }
        assert_eq!(codec.decode(r#""\ud83d\ude00""#), Ok("😀".to_owned()));
        for huge in ["1e400", "-1e400"] {
            assert!(codec.read(huge).is_err(), "{huge}");
        }
        assert!(codec.read(&"9".repeat(1000)).is_err());
        assert_eq!(codec.decode::<f64>(&"9".repeat(300)), Ok(1e300));
        assert!(codec.decode::<i128>(&"9".repeat(300)).is_err());
        assert!(unreadable::<u8>(codec, &format!("\"{}\"", "x".repeat(1 << 20))).len() < 2100);
    }
}

#[test]
fn a_wide_number_in_deep_nesting_is_read_in_bounded_time() {
    let text = "[".repeat(DEPTH_MAX) + &"18446744073709551616,".repeat(1000) + "0" + &"]".repeat(DEPTH_MAX);
    let mut value = JSON.read(&text).unwrap();
    while let Value::List(items) = value {
        value = items.into_iter().next().unwrap();
    }
    assert_eq!(value, Value::Integer((1u128 << 64).into()));
}

proptest! {
    #[test]
    fn any_text_is_read_as_serde_json_reads_it(text in "[\\[\\]{}:,\"$a-z0-9eE.+\\\\ -]{0,40}|\\PC{0,40}") {
        for codec in CODECS {
            let _ = codec.decode::<crate::shapes::Shape>(&text);
        }
        // The codec accepts what serde_json accepts, except for duplicate keys.
        if let Err(error) = JSON.read(&text) {
            let twice = error.to_string().contains("occurs twice");
            prop_assert!(twice || serde_json::from_str::<serde_json::Value>(&text).is_err(), "{}", error);
        } else {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        }
    }

    /// One character of valid text is replaced.
    #[test]
    fn damaged_text_does_not_panic(shape in crate::shapes::shape(), at: prop::sample::Index, with: char) {
        for codec in CODECS {
            let Ok(text) = codec.encode(&shape) else { continue };
            let mut chars: Vec<char> = text.chars().collect();
            let at = at.index(chars.len());
            chars[at] = with;
            let _ = codec.decode::<crate::shapes::Shape>(&chars.into_iter().collect::<String>());
        }
    }
}
