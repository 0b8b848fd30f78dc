//! Prints lists while they arrive, in bounded memory: as a table, a JSON array, or one object per line.

use crate::exit::Failure;
use crate::output::{Format, printable};
use comfy_table::{ColumnConstraint, Table, Width, presets};
use serde::Serialize;
use std::io::{self, BufWriter, Stdout, Write};

/// How many rows are laid out together. Later blocks keep the column widths.
const BLOCK_ROWS: usize = 1000;
/// Longest cell, in characters.
const CELL_MAX: usize = 80;

pub struct Listing {
    format: Format,
    out: BufWriter<Stdout>,
    headers: &'static [&'static str],
    rows: Vec<Vec<String>>,
    widths: Vec<u16>,
    printed: u64,
}

impl Listing {
    pub fn new(format: Format, headers: &'static [&'static str]) -> Listing {
        let out = BufWriter::new(io::stdout());
        Listing { format, out, headers, rows: Vec::new(), widths: Vec::new(), printed: 0 }
    }

    pub fn push<T: Serialize>(
        &mut self,
        value: &T,
        row: impl FnOnce(&T) -> Vec<String>,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table => {
                self.rows.push(row(value).iter().map(|cell| shortened(cell)).collect());
                if self.rows.len() >= BLOCK_ROWS {
                    self.block()?;
                }
            }
            Format::Json => {
                self.out.write_all(if self.printed == 0 { b"[\n" } else { b",\n" })?;
                serde_json::to_writer(&mut self.out, value)?;
            }
            Format::Ndjson => {
                serde_json::to_writer(&mut self.out, value)?;
                self.out.write_all(b"\n")?;
            }
        }
        self.printed += 1;
        Ok(())
    }

    pub fn finish(mut self) -> Result<(), Failure> {
        match self.format {
            Format::Table => self.block()?,
            Format::Json => self.out.write_all(if self.printed == 0 { b"[]\n" } else { b"\n]\n" })?,
            Format::Ndjson => {}
        }
        Ok(self.out.flush()?)
    }

    fn block(&mut self) -> Result<(), Failure> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        if self.widths.is_empty() {
            table.set_header(self.headers);
        }
        table.add_rows(self.rows.drain(..));
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if let Some(width) = self.widths.get(at) {
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width + 2)));
            }
        }
        self.widths = table
            .column_max_content_widths()
            .iter()
            .enumerate()
            .map(|(at, width)| self.widths.get(at).copied().unwrap_or(0).max(*width))
            .collect();
        for line in table.lines() {
            writeln!(self.out, "{}", line.trim_end())?;
        }
        Ok(self.out.flush()?)
    }
}

fn shortened(cell: &str) -> String {
    let line = cell.lines().next().unwrap_or_default();
    let mut short: String = printable(line).chars().take(CELL_MAX).collect();
    if line.chars().count() > CELL_MAX || line.len() < cell.trim_end().len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_short_line() {
        assert_eq!(shortened("plain"), "plain");
        assert_eq!(shortened("first\nsecond"), "first…");
        assert_eq!(shortened(&"x".repeat(200)).chars().count(), CELL_MAX + 1);
    }
}
