//! The `Range` header of a request for a buffer.

use crate::response::ProblemResponse;
use std::ops::Range;
use towline_api::Code;

/// A requested range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteRange {
    From(u64),
    /// Both ends are inclusive.
    FromTo(u64, u64),
    Last(u64),
}

impl ByteRange {
    /// `None` for other units, several ranges or no range: then HTTP asks for the whole content.
    pub(super) fn parse(header: &str) -> Option<ByteRange> {
        let (first, last) = header.trim().strip_prefix("bytes=")?.trim().split_once('-')?;
        let number = |text: &str| -> Option<u64> {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
            // A number that is too large is beyond the end of every buffer.
            digits.then(|| text.parse().unwrap_or(u64::MAX))
        };
        match (first.trim(), last.trim()) {
            ("", last) => number(last).map(ByteRange::Last),
            (first, "") => number(first).map(ByteRange::From),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(ByteRange::FromTo(first, last))
            }
        }
    }

    /// The range in a complete buffer. `None` if it is beyond the end.
    pub(super) fn of_complete(self, bytes: u64) -> Option<Range<u64>> {
        let range = match self {
            ByteRange::From(first) => first..bytes,
            ByteRange::FromTo(first, last) => first..last.saturating_add(1).min(bytes),
            ByteRange::Last(count) => bytes.saturating_sub(count)..bytes,
        };
        (!range.is_empty()).then_some(range)
    }

    /// The range in a buffer that is being written. All of it must be written already.
    pub(super) fn of_unfinished(self, id: &str, bytes: u64) -> Result<Range<u64>, ProblemResponse> {
        match self {
            ByteRange::FromTo(first, last) if last < bytes => Ok(first..last + 1),
            _ => {
                let detail = format!(
                    "buffer {id:?} is not complete and has {bytes} bytes so far; wait for its writer, or request a range \
                     that is already written"
                );
                Err(ProblemResponse::new(Code::BufferNotReady, detail))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_range_of_bytes_is_parsed() {
        for (text, range) in [
            ("bytes=0-", Some(ByteRange::From(0))),
            ("bytes=5-9", Some(ByteRange::FromTo(5, 9))),
            ("bytes=-3", Some(ByteRange::Last(3))),
            (" bytes= 1 - 2 ", Some(ByteRange::FromTo(1, 2))),
            ("bytes=99999999999999999999999-", Some(ByteRange::From(u64::MAX))),
            ("bytes=9-5", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
            ("bytes=1-2,4-5", None),
            ("lines=1-2", None),
            ("", None),
        ] {
            assert_eq!(ByteRange::parse(text), range, "{text}");
        }
    }

    #[test]
    fn ranges_are_limited_to_the_existing_bytes() {
        assert_eq!(ByteRange::From(3).of_complete(10), Some(3..10));
        assert_eq!(ByteRange::From(10).of_complete(10), None);
        assert_eq!(ByteRange::FromTo(3, 100).of_complete(10), Some(3..10));
        assert_eq!(ByteRange::FromTo(3, u64::MAX).of_complete(10), Some(3..10));
        assert_eq!(ByteRange::Last(4).of_complete(10), Some(6..10));
        assert_eq!(ByteRange::Last(40).of_complete(10), Some(0..10));
        assert_eq!(ByteRange::Last(0).of_complete(10), None);
        assert_eq!(ByteRange::From(0).of_complete(0), None);
        assert_eq!(ByteRange::FromTo(3, 9).of_unfinished("b", 10).unwrap(), 3..10);
        assert!(ByteRange::FromTo(3, 10).of_unfinished("b", 10).is_err());
        assert!(ByteRange::From(3).of_unfinished("b", 10).is_err());
        assert!(ByteRange::Last(3).of_unfinished("b", 10).is_err());
    }
}
