//! Everything that is printed: results to stdout, words to stderr.

use crate::exit::Failure;
use crate::table::Listing;
use clap::ValueEnum;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON value.
    Json,
    /// Columns for people.
    Table,
    /// One JSON object a line.
    Ndjson,
}

/// How results are printed: as requested for, or as fits where they go.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    requested: Option<Format>,
}

impl Output {
    pub fn new(requested: Option<Format>) -> Output {
        Output { requested }
    }

    pub fn requested(self) -> Option<Format> {
        self.requested
    }

    /// A name or an id alone, fit for `$(...)`; the whole answer only if JSON was requested for.
    pub fn name_or_json<T: Serialize>(self, name: impl Display, whole: &T) -> Result<(), Failure> {
        match self.requested {
            Some(Format::Json | Format::Ndjson) => self.object(whole),
            Some(Format::Table) | None => text(&format!("{name}\n")),
        }
    }

    /// What a call answered, if JSON was requested for; scripts need no word of success.
    pub fn json_only<T: Serialize>(self, answer: &T) -> Result<(), Failure> {
        match self.requested {
            Some(Format::Json | Format::Ndjson) => self.object(answer),
            Some(Format::Table) | None => Ok(()),
        }
    }

    pub fn object<T: Serialize>(self, value: &T) -> Result<(), Failure> {
        let json = match self.requested {
            Some(Format::Ndjson) => serde_json::to_string(value)?,
            _ => serde_json::to_string_pretty(value)?,
        };
        text(&format!("{json}\n"))
    }

    /// One line for a script, several for a person.
    pub fn answer<T: Serialize>(self, value: &T) -> Result<(), Failure> {
        match self.requested {
            None if !io::stdout().is_terminal() => json_line(value),
            _ => self.object(value),
        }
    }

    pub fn listing(self, headers: &'static [&'static str]) -> Listing {
        let fitting = if io::stdout().is_terminal() { Format::Table } else { Format::Json };
        Listing::new(self.requested.unwrap_or(fitting), headers)
    }
}

/// One JSON object on its own line, there for the reader at once.
pub fn json_line<T: Serialize>(value: &T) -> Result<(), Failure> {
    let mut json = serde_json::to_vec(value)?;
    json.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&json)?;
    Ok(out.flush()?)
}

pub fn text(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Words for a person. Nobody is left to be told if stderr is closed.
pub fn say(words: impl Display) {
    let words = printable(&words.to_string());
    let _ = writeln!(io::stderr().lock(), "towline: {words}");
}

/// Text that came from elsewhere must not drive the terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_shown_not_obeyed() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\nc");
    }
}
