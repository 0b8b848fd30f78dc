//! Bytes from a flag, a file or standard input.

use crate::exit::Failure;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

/// More than any payload field may hold. The rest of a larger source is not read.
const READ_MAX: u64 = 5 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Text(String),
    File(PathBuf),
    Stdin,
}

impl Source {
    /// A path; `-` is standard input.
    pub fn path(text: &str) -> Source {
        match text {
            "-" => Source::Stdin,
            path => Source::File(path.into()),
        }
    }

    /// The text itself; `-` is standard input.
    pub fn text(text: String) -> Source {
        if text == "-" { Source::Stdin } else { Source::Text(text) }
    }

    pub fn read_text(&self) -> Result<String, Failure> {
        String::from_utf8(self.read()?)
            .map_err(|_| Failure::Refused("the input is not UTF-8 text".to_owned()))
    }

    pub fn read(&self) -> Result<Vec<u8>, Failure> {
        let (name, read) = match self {
            Source::Text(text) => return Ok(text.clone().into_bytes()),
            Source::File(path) => (path.display().to_string(), File::open(path).and_then(bounded)),
            Source::Stdin => ("standard input".to_owned(), bounded(io::stdin().lock())),
        };
        let bytes = read.map_err(|error| Failure::Refused(format!("cannot read {name}: {error}")))?;
        if bytes.len() as u64 > READ_MAX {
            return Err(Failure::Refused(format!("{name} is larger than a payload field may be (4 MiB)")));
        }
        Ok(bytes)
    }
}

fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(READ_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses two sources that both read standard input.
pub fn check_stdin<'a>(sources: impl IntoIterator<Item = &'a Source>) -> Result<(), Failure> {
    if sources.into_iter().filter(|source| **source == Source::Stdin).count() > 1 {
        return Err(Failure::Usage("standard input (`-`) can be read only once".to_owned()));
    }
    Ok(())
}
