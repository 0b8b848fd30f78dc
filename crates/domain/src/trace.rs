//! The trace of an item: `traceparent` and `tracestate` of W3C Trace Context.
//!
//! **Invariant:** values of these types are well-formed, so they can be propagated as they are.

use crate::limits;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// The submitter's trace, stored with an item and returned to its receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    pub parent: TraceParent,
    pub state: Option<TraceState>,
}

/// A trace and the parent span in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub flags: u8,
}

/// Vendor-specific data of tracing systems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TraceState(String);

/// Why text is not a valid `traceparent` or `tracestate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TraceError(&'static str);

/// The flag that says that the parent span is recorded.
pub const SAMPLED: u8 = 1;

impl TraceParent {
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }
}

const FORM: TraceError = TraceError("use 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, in lower case");

impl FromStr for TraceParent {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<TraceParent, TraceError> {
        const BYTES: usize = 55;
        let bytes = text.as_bytes();
        let (Some(known), Some(version)) = (bytes.get(..BYTES), bytes.get(..2)) else { return Err(FORM) };
        let [version] = hex::<1>(version)?;
        let dashes = [2, 35, 52].iter().all(|&at| known[at] == b'-');
        // A later version may append more after a dash.
        let ends =
            if version == 0 { bytes.len() == BYTES } else { bytes.get(BYTES).is_none_or(|&b| b == b'-') };
        if !dashes || !ends || version == 0xff {
            return Err(FORM);
        }
        let (trace_id, span_id) = (hex::<16>(&known[3..35])?, hex::<8>(&known[36..52])?);
        if trace_id == [0; 16] || span_id == [0; 8] {
            return Err(TraceError("an id of zeros is invalid"));
        }
        let [flags] = hex::<1>(&known[53..])?;
        Ok(TraceParent { trace_id, span_id, flags: if version == 0 { flags } else { flags & SAMPLED } })
    }
}

fn hex<const N: usize>(digits: &[u8]) -> Result<[u8; N], TraceError> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(FORM),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(bytes)
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.span_id));
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", self.flags)
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As text in human-readable formats, as bytes in binary formats.
impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match to.is_human_readable() {
            true => to.collect_str(self),
            false => (self.trace_id, self.span_id, self.flags).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for TraceParent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TraceParent, D::Error> {
        if from.is_human_readable() {
            return String::deserialize(from)?.parse().map_err(de::Error::custom);
        }
        let (trace_id, span_id, flags) = Deserialize::deserialize(from)?;
        Ok(TraceParent { trace_id, span_id, flags })
    }
}

impl TraceState {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TraceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TraceState {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<TraceState, TraceError> {
        if text.len() > limits::TRACESTATE_BYTES_MAX {
            return Err(TraceError("longer than 512 bytes; leave members out"));
        }
        let mut keys = Vec::new();
        for member in text.split(',').map(|member| member.trim_matches([' ', '\t'])) {
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=').ok_or(TraceError("a member is written key=value"))?;
            check_key(key)?;
            check_value(value)?;
            if keys.contains(&key) {
                return Err(TraceError("the same key twice; leave one out"));
            }
            keys.push(key);
        }
        match keys.len() {
            0 => Err(TraceError("no members; leave it out")),
            1..=limits::TRACESTATE_MEMBERS_MAX => Ok(TraceState(text.to_owned())),
            _ => Err(TraceError("more than 32 members; leave members out")),
        }
    }
}

fn check_key(key: &str) -> Result<(), TraceError> {
    let good_start = key.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-*/@".contains(&b);
    match good_start && key.len() <= 256 && key.bytes().all(good) {
        true => Ok(()),
        false => Err(TraceError(
            "a key is 1 to 256 of a-z, 0-9, _, -, *, / and @, and begins with a letter or a digit",
        )),
    }
}

fn check_value(value: &str) -> Result<(), TraceError> {
    let good = |b: u8| (b' '..=b'~').contains(&b) && b != b',' && b != b'=';
    match !value.is_empty() && value.len() <= 256 && value.bytes().all(good) && !value.ends_with(' ') {
        true => Ok(()),
        false => Err(TraceError("a value is 1 to 256 printable characters other than , and =")),
    }
}

impl<'de> Deserialize<'de> for TraceState {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TraceState, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_parent_is_parsed_and_printed() {
        let parent: TraceParent = PARENT.parse().unwrap();
        assert_eq!((parent.trace_id[0], parent.span_id[7], parent.flags), (0x4b, 0xb7, 1));
        assert!(parent.is_sampled());
        assert_eq!(parent.to_string(), PARENT);
    }

    #[test]
    fn a_malformed_parent_is_refused() {
        let with = |at: usize, byte: &str| format!("{}{byte}{}", &PARENT[..at], &PARENT[at + byte.len()..]);
        let bad = [
            String::new(),
            "00".to_owned(),
            PARENT[..54].to_owned(),
            format!("{PARENT}-00"),
            format!("{PARENT}0"),
            PARENT.to_ascii_uppercase(),
            with(0, "ff"),
            with(0, "0g"),
            with(2, "_"),
            with(35, "_"),
            with(52, "_"),
            with(3, &"0".repeat(32)),
            with(36, &"0".repeat(16)),
            with(53, "é"),
            with(20, "é"),
            format!("é{PARENT}"),
        ];
        for bad in bad {
            assert!(bad.parse::<TraceParent>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        for text in [PARENT.replacen("00", "cc", 1), format!("{}-more", PARENT.replacen("00", "cc", 1))] {
            assert_eq!(text.parse::<TraceParent>().unwrap().to_string(), PARENT);
        }
        let flags = format!("{}ff", &PARENT.replacen("00", "01", 1)[..53]);
        assert_eq!(flags.parse::<TraceParent>().unwrap().flags, SAMPLED);
        assert!(format!("{}0", PARENT.replacen("00", "cc", 1)).parse::<TraceParent>().is_err());
    }

    #[test]
    fn a_state_is_a_short_list_of_members() {
        let full = (0..32).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        for good in ["a=1", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "a=1, ,b= x,", "0@t/*_-=~", &full] {
            assert_eq!(good.parse::<TraceState>().map(|state| state.to_string()).as_deref(), Ok(good));
        }
        let many = format!("{full},k32=v");
        let long = format!("a={}", "x".repeat(511));
        for bad in ["", ",", "a", "=1", "a=", "A=1", "_a=1", "a=1,a=2", "a=b=c", "a=é", "a=\n", &many, &long]
        {
            assert!(bad.parse::<TraceState>().is_err(), "{bad}");
        }
    }
}
