//! Parsers of flag values: durations, times, ids, `name=value`. They report errors before anything is sent.

use crate::exit::Failure;
use crate::source::Source;
use clap::Args;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use towline_api::payload::Form;
use towline_api::{ItemId, Json, Millis, Refusal, Time};

pub fn duration(text: &str) -> Result<Millis, String> {
    Millis::parse(text).map_err(|error| error.to_string())
}

pub fn time(text: &str) -> Result<Time, String> {
    let time = Time::parse(text);
    match time.clone().into_domain("time") {
        Ok(_) => Ok(time),
        Err(Refusal::Invalid { message, .. }) => Err(message),
        Err(refusal) => Err(refusal.to_string()),
    }
}

pub fn item_id(text: &str) -> Result<ItemId, String> {
    text.parse().map_err(|_| "not an item id; give a UUID, as printed by `queue submit`".to_owned())
}

/// The form in which payload fields are printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct PayloadArgs {
    /// Print payload fields as base64 (in `payload`), text (in `payload_text`) or json (in `payload_json`). A field that is not
    /// text or JSON is printed as base64 [default: base64].
    #[arg(long, value_name = "FORM", value_parser = form)]
    payload_as: Option<Form>,
}

impl PayloadArgs {
    pub fn form(self) -> Form {
        self.payload_as.unwrap_or_default()
    }
}

fn form(text: &str) -> Result<Form, String> {
    Form::parse(text).map_err(|_| "use base64, text or json".to_owned())
}

/// A limit, or `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit<T>(pub Option<T>);

pub fn limit<T: FromStr<Err: Display>>(text: &str) -> Result<Limit<T>, String> {
    match text {
        "none" => Ok(Limit(None)),
        _ => text
            .parse()
            .map(|value| Limit(Some(value)))
            .map_err(|error: T::Err| format!("{error}; or `none`")),
    }
}

/// `name=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair<T> {
    pub name: String,
    pub value: T,
}

fn split<'a>(text: &'a str, form: &str) -> Result<(&'a str, &'a str), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        _ => Err(format!("write it as {form}")),
    }
}

pub fn pair(text: &str) -> Result<Pair<String>, String> {
    let (name, value) = split(text, "name=value")?;
    Ok(Pair { name: name.to_owned(), value: value.to_owned() })
}

/// `name=text` is a string, `name:=json` any JSON value.
pub fn param(text: &str) -> Result<Pair<Json>, String> {
    let (name, value) = split(text, "name=text, or name:=json")?;
    Ok(match name.strip_suffix(':') {
        Some("") => return Err("write it as name:=json".to_owned()),
        Some(name) => {
            Pair { name: name.to_owned(), value: Json::parse(value).map_err(|error| error.to_string())? }
        }
        None => Pair { name: name.to_owned(), value: Json::string(value) },
    })
}

/// `field=text`, `field=@path` or `field=@-`.
pub fn field(text: &str) -> Result<Pair<Source>, String> {
    let (name, value) = split(text, "field=text, or field=@path")?;
    let value = match value.strip_prefix('@') {
        Some(path) => Source::path(path),
        None => Source::Text(value.to_owned()),
    };
    Ok(Pair { name: name.to_owned(), value })
}

/// Refuses a name that is given twice.
pub fn map<T>(flag: &str, pairs: Vec<Pair<T>>) -> Result<BTreeMap<String, T>, Failure> {
    let mut map = BTreeMap::new();
    for Pair { name, value } in pairs {
        if map.contains_key(&name) {
            return Err(Failure::Usage(format!("{flag} {name:?} is given twice")));
        }
        map.insert(name, value);
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_without_a_unit_is_refused_with_a_hint() {
        let error = duration("30").unwrap_err();
        assert!(error.contains("30s") && error.contains("30m"), "{error}");
        assert!(limit::<Millis>("30").unwrap_err().contains("30s"));
    }

    #[test]
    fn a_limit_can_be_none() {
        assert_eq!(limit::<Millis>("none"), Ok(Limit(None)));
        assert_eq!(limit::<Millis>("2m"), Ok(Limit(Some(Millis::minutes(2)))));
    }

    #[test]
    fn parameters_are_text_or_json() {
        for (text, name, json) in [
            ("a=1", "a", r#""1""#),
            ("a:=1", "a", "1"),
            ("a=b=c", "a", r#""b=c""#),
            ("a:=[1,2]", "a", "[1,2]"),
            ("a=", "a", r#""""#),
        ] {
            let read = param(text).unwrap();
            assert_eq!((read.name.as_str(), read.value.as_str()), (name, json), "{text}");
        }
        for text in ["a", "=1", ":=1", "a:=", "a:={"] {
            assert!(param(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_field_is_text_or_a_file() {
        assert_eq!(field("payload=x").unwrap().value, Source::Text("x".to_owned()));
        assert_eq!(field("payload=@x").unwrap().value, Source::File("x".into()));
        assert_eq!(field("payload=@-").unwrap().value, Source::Stdin);
    }

    #[test]
    fn a_name_given_twice_is_refused() {
        assert!(map("--input", vec![pair("a=1").unwrap(), pair("a=2").unwrap()]).is_err());
    }
}
