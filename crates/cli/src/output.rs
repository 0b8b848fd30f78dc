//! Everything that is printed: results to stdout, messages to stderr.

use crate::exit::Failure;
use crate::table::Listing;
use anstream::ColorChoice;
use clap::ValueEnum;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON value.
    Json,
    /// A table for people.
    Table,
    /// One JSON object per line.
    Ndjson,
}

/// How to print results: the requested format, or the one that fits a terminal or a pipe.
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

    /// Prints only a name or an id, for `$(...)`. Prints the whole answer if JSON was requested.
    pub fn name_or_json<T: Serialize>(self, name: impl Display, whole: &T) -> Result<(), Failure> {
        match self.requested {
            Some(Format::Json | Format::Ndjson) => self.object(whole),
            Some(Format::Table) | None => text(&format!("{name}\n")),
        }
    }

    /// Prints the answer only if JSON was requested. Otherwise the exit code is enough.
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

    /// Prints one line in a pipe, and several on a terminal.
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

/// Prints one JSON object on its own line, and flushes.
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

/// For everything that this process prints from now on.
pub fn set_color(color: clap::ColorChoice) {
    let choice = match color {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::Always,
        clap::ColorChoice::Never => ColorChoice::Never,
    };
    choice.write_global();
}

/// Prints why the command failed to stderr, and ignores a closed stderr.
pub fn complain(words: impl Display) {
    let words = printable(&words.to_string());
    let _ = writeln!(anstream::stderr().lock(), "\u{1b}[1;31mtowline:\u{1b}[0m {words}");
}

/// Prints a message to stderr. Ignores a closed stderr.
pub fn say(words: impl Display) {
    let words = printable(&words.to_string());
    let _ = writeln!(io::stderr().lock(), "towline: {words}");
}

/// Prints the notes of an answer to stderr.
pub fn say_all(notes: &[String]) {
    notes.iter().for_each(say);
}

/// Removes control characters, so that foreign text cannot control the terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\nc");
    }
}
