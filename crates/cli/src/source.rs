//! Bytes from a flag, a file or standard input.

use crate::exit::Failure;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

/// What a source is for. It sets how much of it is read.
#[derive(Debug, Clone, Copy)]
pub enum Use {
    PayloadField,
    /// A file of items to submit.
    Items,
}

impl Use {
    /// More than the server accepts. The rest of a larger source is not read.
    fn read_max(self) -> u64 {
        match self {
            Use::PayloadField => 5 << 20,
            Use::Items => 32 << 20,
        }
    }

    fn limit(self) -> &'static str {
        match self {
            Use::PayloadField => "a payload field may be (4 MiB)",
            Use::Items => "a file of items may be (32 MiB)",
        }
    }
}

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
        self.read_text_for(Use::PayloadField)
    }

    pub fn read_text_for(&self, purpose: Use) -> Result<String, Failure> {
        String::from_utf8(self.read_for(purpose)?)
            .map_err(|_| Failure::Refused("the input is not UTF-8 text".to_owned()))
    }

    pub fn read(&self) -> Result<Vec<u8>, Failure> {
        self.read_for(Use::PayloadField)
    }

    fn read_for(&self, purpose: Use) -> Result<Vec<u8>, Failure> {
        let max = purpose.read_max();
        let (name, read) = match self {
            Source::Text(text) => return Ok(text.clone().into_bytes()),
            Source::File(path) => {
                (path.display().to_string(), File::open(path).and_then(|file| bounded(file, max)))
            }
            Source::Stdin => ("standard input".to_owned(), bounded(io::stdin().lock(), max)),
        };
        let bytes = read.map_err(|error| Failure::Refused(format!("cannot read {name}: {error}")))?;
        if bytes.len() as u64 > max {
            return Err(Failure::Refused(format!("{name} is larger than {}", purpose.limit())));
        }
        Ok(bytes)
    }
}

fn bounded(from: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses two sources that both read standard input.
pub fn check_stdin<'a>(sources: impl IntoIterator<Item = &'a Source>) -> Result<(), Failure> {
    if sources.into_iter().filter(|source| **source == Source::Stdin).count() > 1 {
        return Err(Failure::Usage("standard input (`-`) can be read only once".to_owned()));
    }
    Ok(())
}
