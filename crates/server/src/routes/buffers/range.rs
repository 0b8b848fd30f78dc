//! Which bytes are asked for by a `Range` header, and whether they are there.

use crate::refuse::Refused;
use std::ops::Range;
use towline_api::Code;

/// One range of bytes, as it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    From(u64),
    /// Both ends are in it.
    FromTo(u64, u64),
    Last(u64),
}

impl Asked {
    /// `None`: other units, several ranges or no range at all, which HTTP says to answer with everything.
    pub(super) fn parse(header: &str) -> Option<Asked> {
        let (first, last) = header.trim().strip_prefix("bytes=")?.trim().split_once('-')?;
        let number = |text: &str| -> Option<u64> {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
            // More than any buffer has is as good as the most.
            digits.then(|| text.parse().unwrap_or(u64::MAX))
        };
        match (first.trim(), last.trim()) {
            ("", last) => number(last).map(Asked::Last),
            (first, "") => number(first).map(Asked::From),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Asked::FromTo(first, last))
            }
        }
    }

    /// Of a complete buffer. `None`: none of it is there.
    pub(super) fn of_complete(self, bytes: u64) -> Option<Range<u64>> {
        let range = match self {
            Asked::From(first) => first..bytes,
            Asked::FromTo(first, last) => first..last.saturating_add(1).min(bytes),
            Asked::Last(count) => bytes.saturating_sub(count)..bytes,
        };
        (!range.is_empty()).then_some(range)
    }

    /// Of a buffer that is being written: what is there already, or nothing.
    pub(super) fn of_unfinished(self, id: &str, bytes: u64) -> Result<Range<u64>, Refused> {
        match self {
            Asked::FromTo(first, last) if last < bytes => Ok(first..last + 1),
            _ => {
                let detail = format!(
                    "buffer {id:?} is not complete and has {bytes} bytes so far; wait for its writer, or name a range \
                     that is there"
                );
                Err(Refused::new(Code::BufferNotReady, detail))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_read() {
        for (text, asked) in [
            ("bytes=0-", Some(Asked::From(0))),
            ("bytes=5-9", Some(Asked::FromTo(5, 9))),
            ("bytes=-3", Some(Asked::Last(3))),
            (" bytes= 1 - 2 ", Some(Asked::FromTo(1, 2))),
            ("bytes=99999999999999999999999-", Some(Asked::From(u64::MAX))),
            ("bytes=9-5", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
            ("bytes=1-2,4-5", None),
            ("lines=1-2", None),
            ("", None),
        ] {
            assert_eq!(Asked::parse(text), asked, "{text}");
        }
    }

    #[test]
    fn only_what_is_there_is_given() {
        assert_eq!(Asked::From(3).of_complete(10), Some(3..10));
        assert_eq!(Asked::From(10).of_complete(10), None);
        assert_eq!(Asked::FromTo(3, 100).of_complete(10), Some(3..10));
        assert_eq!(Asked::FromTo(3, u64::MAX).of_complete(10), Some(3..10));
        assert_eq!(Asked::Last(4).of_complete(10), Some(6..10));
        assert_eq!(Asked::Last(40).of_complete(10), Some(0..10));
        assert_eq!(Asked::Last(0).of_complete(10), None);
        assert_eq!(Asked::From(0).of_complete(0), None);
        assert_eq!(Asked::FromTo(3, 9).of_unfinished("b", 10).unwrap(), 3..10);
        assert!(Asked::FromTo(3, 10).of_unfinished("b", 10).is_err());
        assert!(Asked::From(3).of_unfinished("b", 10).is_err());
        assert!(Asked::Last(3).of_unfinished("b", 10).is_err());
    }
}
