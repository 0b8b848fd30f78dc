//! Reads NDJSON in a separate thread and gathers lines into batches. The thread is a bounded number of
//! batches ahead.

use crate::exit::Failure;
use crate::source::Source;
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use tokio::sync::mpsc;
use towline_api::{Code, ErrorBody, NewItem, Submission};

const BATCH_LINES_MAX: usize = 1000;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The largest item fits, in base64.
const LINE_BYTES_MAX: usize = 32 << 20;
const BATCHES_AHEAD: usize = 4;
const BUFFER_BYTES: usize = 1 << 18;
/// How much of a refused line an error message repeats.
const SHOWN_CHARS: usize = 200;

/// One line: an item, or why it is not one.
#[derive(Debug)]
pub struct BulkLine {
    /// The first line is 1.
    pub number: u64,
    pub shown: String,
    pub item: Result<NewItem, ErrorBody>,
}

#[derive(Debug, Default)]
pub struct LineBatch {
    pub lines: Vec<BulkLine>,
    bytes: usize,
}

impl LineBatch {
    fn is_full(&self) -> bool {
        self.lines.len() >= BATCH_LINES_MAX || self.bytes >= BATCH_BYTES_MAX
    }
}

type Input = BufReader<Box<dyn Read + Send>>;

/// Batches in the order of their lines. If reading fails, the error comes last.
#[derive(Debug)]
pub struct BulkReader {
    batches: mpsc::Receiver<io::Result<LineBatch>>,
    failed: Option<io::Error>,
}

impl BulkReader {
    /// Returns everything that was read so far, so that small batches of a slow source become one call.
    pub async fn next(&mut self) -> Option<io::Result<LineBatch>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        let mut batch = match self.batches.recv().await? {
            Ok(batch) => batch,
            error => return Some(error),
        };
        while !batch.is_full() {
            match self.batches.try_recv() {
                Ok(Ok(more)) => {
                    batch.lines.extend(more.lines);
                    batch.bytes += more.bytes;
                }
                Ok(Err(error)) => {
                    self.failed = Some(error);
                    break;
                }
                Err(_) => break,
            }
        }
        Some(Ok(batch))
    }
}

/// Opens the source. Also returns its length, if it is known.
pub fn open(source: Source) -> Result<(Input, Option<u64>), Failure> {
    let (from, length): (Box<dyn Read + Send>, _) = match source {
        Source::File(path) => {
            let file = File::open(&path)
                .map_err(|error| Failure::Refused(format!("cannot read {}: {error}", path.display())))?;
            let length = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|about| about.len());
            (Box::new(file), length)
        }
        Source::Text(text) => (Box::new(io::Cursor::new(text.into_bytes())), None),
        Source::Stdin => (Box::new(io::stdin()), None),
    };
    Ok((BufReader::with_capacity(BUFFER_BYTES, from), length))
}

pub fn read(from: Input, bar: ProgressBar) -> io::Result<BulkReader> {
    let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
    std::thread::Builder::new().name("lines".to_owned()).spawn(move || gather(from, &bar, &sender))?;
    Ok(BulkReader { batches, failed: None })
}

fn gather(mut from: Input, bar: &ProgressBar, to: &mpsc::Sender<io::Result<LineBatch>>) {
    let (mut batch, mut number, mut text) = (LineBatch::default(), 0, Vec::new());
    loop {
        let length = match read_line(&mut from, &mut text) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) => {
                let _ = to.blocking_send(Ok(batch)).and_then(|()| to.blocking_send(Err(error)));
                return;
            }
        };
        number += 1;
        bar.inc(length as u64);
        if !text.trim_ascii().is_empty() {
            batch.bytes += text.len();
            batch.lines.push(parse(number, length, &text));
        }
        // Do not hold these lines back: the next one may take long to arrive.
        let ready = batch.is_full() || from.buffer().is_empty();
        if ready && to.blocking_send(Ok(std::mem::take(&mut batch))).is_err() {
            return;
        }
    }
    let _ = to.blocking_send(Ok(batch));
}

/// Reads a line and skips what exceeds the limit. Returns the number of consumed bytes, 0 at the end.
fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    line.clear();
    let mut consumed = 0;
    loop {
        let bytes = match from.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let (part, used) = match end {
            Some(at) => (&bytes[..at], at + 1),
            None => (bytes, bytes.len()),
        };
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        from.consume(used);
        consumed += used;
        if end.is_some() || used == 0 {
            return Ok(consumed);
        }
    }
}

fn parse(number: u64, length: usize, text: &[u8]) -> BulkLine {
    let refused = |code: Code, message: String| ErrorBody { code: code.name().to_owned(), message };
    let item = if length > LINE_BYTES_MAX + 1 {
        Err(refused(Code::TooLarge, format!("a line of {length} bytes; at most {LINE_BYTES_MAX} are read")))
    } else {
        match serde_json::from_slice::<NewItem>(text) {
            // Check here: the server's message could not show the value as it was written.
            Ok(item) => match Submission::try_from(item.clone()) {
                Ok(_) => Ok(item),
                Err(refusal) => Err(ErrorBody::from(&refusal)),
            },
            Err(error) => Err(refused(Code::MalformedBody, located(&error))),
        }
    };
    // Keep only the beginning of the line, for an error message.
    let shown: String = String::from_utf8_lossy(&text[..text.len().min(4 * SHOWN_CHARS)])
        .trim()
        .chars()
        .take(SHOWN_CHARS)
        .collect();
    let cut = if shown.len() < text.trim_ascii().len() { "…" } else { "" };
    BulkLine { number, shown: shown + cut, item }
}

/// Removes the line number, which is always 1, from a message of the parser.
fn located(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    format!("{what} at column {}", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(text: String) -> Vec<Vec<BulkLine>> {
        let (sender, mut receiver) = mpsc::channel(100);
        gather(open(Source::Text(text)).unwrap().0, &ProgressBar::hidden(), &sender);
        drop(sender);
        std::iter::from_fn(|| receiver.blocking_recv()).map(|batch| batch.unwrap().lines).collect()
    }

    fn lines(text: &str) -> Vec<BulkLine> {
        batches(text.to_owned()).into_iter().flatten().collect()
    }

    #[test]
    fn blank_lines_are_numbered_but_skipped() {
        let read = lines("{}\n\n  \r\n{\"priority\":3}\r\n{}");
        assert_eq!(read.iter().map(|line| line.number).collect::<Vec<_>>(), [1, 4, 5]);
        assert_eq!(read[1].item.as_ref().unwrap().priority, Some(3));
    }

    #[test]
    fn each_bad_line_has_its_own_error() {
        let read = lines("{}\n{\"delay\":\"5 parsecs\"}\nnot json\n{\"prioritee\":1}\n{}\n");
        let wrong: Vec<(u64, &str)> = read
            .iter()
            .filter_map(|line| Some((line.number, line.item.as_ref().err()?.message.as_str())))
            .collect();
        assert_eq!(wrong.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3, 4]);
        assert!(wrong[0].1.contains("5 parsecs"), "{wrong:?}");
        assert!(wrong[2].1.contains("prioritee"), "{wrong:?}");
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let long = format!("{{\"group\":\"{}\"}}\n{{}}\n", "x".repeat(LINE_BYTES_MAX));
        let read = lines(&long);
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].item.as_ref().unwrap_err().code, "too_large");
        assert!(read[0].shown.chars().count() <= SHOWN_CHARS + 1);
        assert!(read[1].item.is_ok());
    }

    #[test]
    fn batches_are_bounded() {
        let sizes: Vec<usize> = batches("{}\n".repeat(2500)).iter().map(Vec::len).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 2500);
        assert!(sizes.iter().all(|&size| size <= BATCH_LINES_MAX), "{sizes:?}");
    }
}
