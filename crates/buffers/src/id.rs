//! The rule for buffer ids and blob keys.
//!
//! A valid id is a plain file name and a plain part of an S3 key, so it cannot lead out of its directory.

use crate::BufferError;

/// The maximum length of an id, in bytes. File names have at most 255 bytes, and temporary files add a suffix.
pub const ID_LEN_MAX: usize = 240;

pub(crate) fn check_id(id: &str) -> Result<(), BufferError> {
    let rest_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let bytes = id.as_bytes();
    let good = bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.len() <= ID_LEN_MAX
        && bytes.iter().all(rest_allowed);
    if good { Ok(()) } else { Err(BufferError::BadId { id: id.chars().take(64).collect() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_valid() {
        for id in ["a", "0", "a.b", "a-b_c.D9", "a..b", "a.", &"x".repeat(ID_LEN_MAX)] {
            assert!(check_id(id).is_ok(), "{id}");
        }
    }

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        let long = "x".repeat(ID_LEN_MAX + 1);
        for id in [
            "", ".", "..", "../a", "a/b", "/a", "a\\b", ".a", "-a", "_a", "a\0", "a#1", "a%2e", "ä", "a b",
            &long,
        ] {
            assert!(matches!(check_id(id), Err(BufferError::BadId { .. })), "{id:?}");
        }
    }
}
