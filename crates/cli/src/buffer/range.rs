//! `--range`: a part of a buffer.

use std::ops::Range;
use towline_api::buffer::BufferShown;

/// As in HTTP: both ends are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    From(u64),
    FromTo(u64, u64),
    Last(u64),
}

pub fn parse(text: &str) -> Result<ByteRange, String> {
    let form = || "write it as FIRST-LAST, FIRST- or -COUNT".to_owned();
    let (first, last) = text.split_once('-').ok_or_else(form)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| form());
    match (first, last) {
        ("", "0") => Err("no bytes at all".to_owned()),
        ("", count) => number(count).map(ByteRange::Last),
        (first, "") => number(first).map(ByteRange::From),
        (first, last) => match (number(first)?, number(last)?) {
            (first, last) if first <= last => Ok(ByteRange::FromTo(first, last)),
            (first, last) => Err(format!("{last} comes before {first}")),
        },
    }
}

impl ByteRange {
    /// The range without an end if the buffer is not complete. The server decides what to answer then.
    pub fn of(self, buffer: &BufferShown) -> Range<u64> {
        let end = if buffer.is_complete() { buffer.bytes } else { u64::MAX };
        match self {
            // Keep a range behind the end: the server reports it.
            ByteRange::From(first) => first..end.max(first.saturating_add(1)),
            ByteRange::FromTo(first, last) => {
                first..last.saturating_add(1).min(end).max(first.saturating_add(1))
            }
            ByteRange::Last(count) => end.saturating_sub(count)..end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_parse_as_in_http() {
        assert_eq!(parse("5-9"), Ok(ByteRange::FromTo(5, 9)));
        assert_eq!(parse("5-"), Ok(ByteRange::From(5)));
        assert_eq!(parse("-5"), Ok(ByteRange::Last(5)));
        for text in ["", "5", "-", "9-5", "a-b", "1-2-3", "-0"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
