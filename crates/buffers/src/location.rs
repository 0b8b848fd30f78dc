//! Where buffers are stored: a directory, or a bucket of an S3-compatible service.

use std::path::PathBuf;
use std::str::FromStr;

use crate::BufferError;

/// Its text form is `s3://bucket/prefix` or the path of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    Directory(PathBuf),
    /// `prefix` has no slash at either end. It may be empty.
    S3 {
        bucket: String,
        prefix: String,
    },
}

impl FromStr for Location {
    type Err = BufferError;

    fn from_str(text: &str) -> Result<Self, BufferError> {
        let bad = |problem| Err(BufferError::BadLocation { text: text.to_owned(), problem });
        let Some((scheme, rest)) = text.split_once("://") else {
            return if text.is_empty() { bad("it is empty") } else { Ok(Self::Directory(text.into())) };
        };
        if scheme != "s3" {
            return bad("the only supported scheme is s3");
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return bad("it names no bucket");
        }
        let prefix = prefix.trim_matches('/');
        if !prefix.is_empty() && prefix.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return bad("a part of the prefix is empty, \".\" or \"..\"");
        }
        Ok(Self::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_parsed_and_formatted() {
        let s3 = |bucket: &str, prefix: &str| Location::S3 { bucket: bucket.into(), prefix: prefix.into() };
        for (text, location, formatted) in [
            ("data/buffers", Location::Directory("data/buffers".into()), "data/buffers"),
            ("s3://b", s3("b", ""), "s3://b"),
            ("s3://b/", s3("b", ""), "s3://b"),
            ("s3://b/x/y/", s3("b", "x/y"), "s3://b/x/y"),
        ] {
            assert_eq!(text.parse::<Location>().unwrap(), location);
            assert_eq!(location.to_string(), formatted);
        }
    }

    #[test]
    fn invalid_locations_are_refused() {
        for text in ["", "s3://", "s3:///x", "gs://b", "s3://b/../x", "s3://b/x//y", "s3://b/./x"] {
            assert!(matches!(text.parse::<Location>(), Err(BufferError::BadLocation { .. })), "{text}");
        }
    }
}
