//! The codecs through their public interface: they decode what they encode, refuse what they cannot hold, and never panic.
#![allow(clippy::unwrap_used, reason = "tests")]

mod custom;
mod hostile;
mod json;
mod reading;
mod shapes;
mod tagged;

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use towline::codec::{Codec, Json, Tagged};

const JSON: &dyn Codec = &Json;
const TAGGED: &dyn Codec = &Tagged;

/// Checks that the value is decoded unchanged, and returns its text. Compares the debug forms, since -0.0 equals 0.0.
#[track_caller]
fn round_trip<T: Serialize + DeserializeOwned + Debug>(codec: &dyn Codec, value: &T) -> String {
    let text = codec.encode(value).unwrap();
    let back: T = codec.decode(&text).unwrap_or_else(|error| panic!("{error}, reading {text}"));
    assert_eq!(format!("{back:?}"), format!("{value:?}"), "encoded as {text}");
    text
}

#[track_caller]
fn refused<T: Serialize + ?Sized>(codec: &dyn Codec, value: &T) -> String {
    codec.encode(value).unwrap_err().to_string()
}

#[track_caller]
fn unreadable<T: DeserializeOwned + Debug>(codec: &dyn Codec, text: &str) -> String {
    codec.decode::<T>(text).unwrap_err().to_string()
}
