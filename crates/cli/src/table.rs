//! Prints lists while they arrive, in bounded memory: as a table, a JSON array, or one object per line.

use crate::exit::Failure;
use crate::output::{Format, printable};
use anstream::{AutoStream, ColorChoice};
use comfy_table::{Attribute, Cell, Color, ColumnConstraint, Table, Width, presets};
use serde::Serialize;
use std::io::{self, BufWriter, Stdout, Write};
use towline_api::{BufferStateKind, ItemState};

/// How many rows are laid out together. Later blocks keep the column widths.
const BLOCK_ROWS: usize = 1000;
/// Longest cell, in characters.
const CELL_MAX: usize = 80;
/// Spaces between two columns.
const GAP: usize = 2;
/// A narrower column shows nothing of use.
const CELL_MIN: usize = 8;
/// Columns that a narrow terminal does without, the least important first.
const LEFT_OUT_FIRST: [&str; 17] = [
    "POISON",
    "CANCELLED",
    "EXPIRED",
    "RETRIES EXHAUSTED",
    "EXPLICIT",
    "EXPIRES",
    "TAGS",
    "ATTEMPT",
    "PRIORITY",
    "SUBMITTED",
    "LAST",
    "CREATED",
    "SCHEDULED",
    "PAUSED",
    "SIZE",
    "ERROR",
    "QUEUE",
];

pub struct Listing {
    format: Format,
    out: BufWriter<Stdout>,
    headers: &'static [&'static str],
    rows: Vec<Vec<String>>,
    widths: Vec<u16>,
    printed: u64,
    /// Of the terminal, in characters. `None`: the output is not a terminal.
    width_max: Option<usize>,
    /// Columns that are printed. Decided with the first block.
    shown: Vec<usize>,
    /// The width of the last printed column. Decided with the first block.
    last_max: usize,
    colored: bool,
}

impl Listing {
    pub fn new(format: Format, headers: &'static [&'static str]) -> Listing {
        let out = BufWriter::new(io::stdout());
        let width_max = Table::new().width().map(usize::from);
        let colored = !matches!(AutoStream::choice(&io::stdout()), ColorChoice::Never);
        let (rows, widths, shown) = (Vec::new(), Vec::new(), Vec::new());
        let last_max = usize::MAX;
        Listing { format, out, headers, rows, widths, printed: 0, width_max, shown, last_max, colored }
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
        let mut rows = std::mem::take(&mut self.rows);
        let mut table = Table::new();
        table.load_style(presets::NOTHING).force_no_tty();
        if self.colored {
            table.enforce_styling();
        }
        if self.widths.is_empty() {
            (self.shown, self.last_max) = fitting(self.headers, &rows, self.width_max);
            let last = self.shown.last().copied();
            let headers = self.shown.iter().map(|at| match Some(*at) == last {
                true => shortened_to(self.headers[*at], self.last_max),
                false => self.headers[*at].to_owned(),
            });
            table.set_header(headers.map(|header| Cell::new(header).add_attribute(Attribute::Bold)));
        }
        let shown = &self.shown;
        if let Some(last) = shown.last() {
            for row in &mut rows {
                row[*last] = shortened_to(&row[*last], self.last_max);
            }
        }
        table.add_rows(rows.iter().map(|row| shown.iter().map(|at| cell(self.headers[*at], &row[*at]))));
        for (at, column) in table.column_iter_mut().enumerate() {
            // Spaces at the end of a coloured line cannot be trimmed, and would not fit.
            let gap = if at + 1 == shown.len() { 0 } else { GAP as u16 };
            column.set_padding((0, gap));
            if let Some(width) = self.widths.get(at) {
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width + gap)));
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

/// The columns for a terminal of this width, and the width of the last one. Leaves columns out, then shortens the cells of the last
/// column, and then leaves out that one, too.
fn fitting(headers: &[&str], rows: &[Vec<String>], width_max: Option<usize>) -> (Vec<usize>, usize) {
    let mut shown: Vec<usize> = (0..headers.len()).collect();
    let Some(width_max) = width_max else { return (shown, usize::MAX) };
    let length = |text: &str| text.chars().count();
    let width = |(at, header): (usize, &&str)| {
        rows.iter().map(|row| length(&row[at])).max().unwrap_or(0).max(length(header))
    };
    let widths: Vec<usize> = headers.iter().enumerate().map(width).collect();
    let total = |shown: &[usize]| shown.iter().map(|at| widths[*at] + GAP).sum::<usize>() - GAP;
    for name in LEFT_OUT_FIRST {
        if total(&shown) <= width_max {
            return (shown, usize::MAX);
        }
        // The first column names the row.
        shown.retain(|at| *at == 0 || headers[*at] != name);
    }
    while let [_, .., last] = shown[..] {
        let room = width_max.saturating_sub(total(&shown) - widths[last]);
        if room >= widths[last].min(CELL_MIN) {
            return (shown, room);
        }
        shown.pop();
    }
    (shown, usize::MAX)
}

fn cell(header: &str, text: &str) -> Cell {
    let cell = Cell::new(text);
    if header != "STATE" {
        return cell;
    }
    let is = |item: ItemState, buffer: BufferStateKind| text == item.name() || text == buffer.name();
    // The state of a failed item is shown with the kind of its failure.
    if text.starts_with(ItemState::Failed.name()) {
        cell.fg(Color::Red)
    } else if is(ItemState::Completed, BufferStateKind::Complete) {
        cell.fg(Color::Green)
    } else if is(ItemState::Processing, BufferStateKind::Writing) {
        cell.fg(Color::Yellow)
    } else {
        cell
    }
}

/// The first line of a cell.
fn shortened(cell: &str) -> String {
    let line = cell.lines().next().unwrap_or_default();
    let mut short: String = printable(line).chars().take(CELL_MAX).collect();
    if line.chars().count() > CELL_MAX || line.len() < cell.trim_end().len() {
        short.push('…');
    }
    short
}

fn shortened_to(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
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

    #[test]
    fn a_narrow_terminal_gets_fewer_columns_and_then_shorter_cells() {
        let headers = ["ID", "STATE", "PRIORITY", "CREATED", "LAST ERROR"];
        let row = || {
            vec![
                ["0123456789", "failed", "0", "2030-01-31T08:00:00Z", "no memory left"]
                    .map(str::to_owned)
                    .to_vec(),
            ]
        };
        let fit = |width| {
            let rows = row();
            let (shown, last_max) = fitting(&headers, &rows, width);
            (shown.iter().map(|at| headers[*at]).collect::<Vec<_>>(), shortened_to(&rows[0][4], last_max))
        };
        assert_eq!(fit(None).0, headers);
        assert_eq!(fit(Some(66)).0, headers);
        assert_eq!(fit(Some(65)).0, ["ID", "STATE", "CREATED", "LAST ERROR"]);
        assert_eq!(fit(Some(40)), (vec!["ID", "STATE", "LAST ERROR"], "no memory left".to_owned()));
        assert_eq!(fit(Some(30)), (vec!["ID", "STATE", "LAST ERROR"], "no memory…".to_owned()));
        assert_eq!(fit(Some(28)), (vec!["ID", "STATE", "LAST ERROR"], "no memo…".to_owned()));
        assert_eq!(fit(Some(27)).0, ["ID", "STATE"]);
        assert_eq!(fit(Some(17)).0, ["ID"]);
        assert_eq!(fit(Some(5)).0, ["ID"], "the name of a row is never cut");
    }
}
