//! Reads the lines of an export, from a file or from the body of a request. A line has a maximum length.

use super::{ExportLine, TransferError};
use std::io::{BufRead, Read};
use towline_domain::{Field, limits};

/// The largest payload fields in base64, plus everything else an item can have.
pub(crate) const LINE_BYTES_MAX: usize = (limits::FIELD_BYTES_MAX / 3 + 1) * 4 * Field::ALL.len() + (8 << 20);

/// Where the lines come from.
pub(crate) trait LineSource: Send {
    /// The next line with its end, at most [`LINE_BYTES_MAX`] bytes of it. Empty after the last line.
    fn next(&mut self) -> impl Future<Output = Result<Vec<u8>, TransferError>> + Send;
}

pub(super) struct FromReader<R>(pub(super) R);

impl<R: BufRead + Send> LineSource for FromReader<R> {
    async fn next(&mut self) -> Result<Vec<u8>, TransferError> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.0).take(LINE_BYTES_MAX as u64);
        bounded.read_until(b'\n', &mut line).map_err(TransferError::Input)?;
        Ok(line)
    }
}

pub(super) struct LineReader<S> {
    source: S,
    /// The number of the last line.
    pub(super) line: u64,
}

impl<S: LineSource> LineReader<S> {
    pub(super) fn new(source: S) -> LineReader<S> {
        LineReader { source, line: 0 }
    }

    pub(super) async fn next(&mut self) -> Result<Option<ExportLine>, TransferError> {
        let text = self.source.next().await?;
        if text.is_empty() {
            return Ok(None);
        }
        self.line += 1;
        if text.len() >= LINE_BYTES_MAX {
            return Err(self.wrong(format!("the line is longer than {LINE_BYTES_MAX} bytes")));
        }
        serde_json::from_slice(&text).map(Some).map_err(|error| self.wrong(error.to_string()))
    }

    pub(super) fn wrong(&self, problem: String) -> TransferError {
        TransferError::Line { line: self.line, problem }
    }
}
