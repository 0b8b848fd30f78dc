//! The log of a command: its standard output and standard error, merged into lines.
//!
//! A line is `<time> <stream> <text>`, where the stream is `o` or `e`. The text keeps its bytes, also those that are not UTF-8. A
//! line above 16 KiB is split.

use super::OutputPipe;
use jiff::Timestamp;
use std::fmt;
use std::time::Duration;
use tokio::io::AsyncReadExt;

const LINE_BYTES_MAX: usize = 16 << 10;
/// A chunk of this size is given out at once.
const CHUNK_BYTES: usize = 64 << 10;
/// A smaller chunk is given out after this time.
const CHUNK_AGE: Duration = Duration::from_millis(200);
const READ_BYTES: usize = 16 << 10;

/// The largest size of a log. What a command writes beyond it is read and dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogCap(pub u64);

impl Default for LogCap {
    fn default() -> LogCap {
        LogCap(64 << 20)
    }
}

/// Reads a command's two streams and gives out chunks of whole lines.
pub struct Logs<N> {
    stdout: Option<OutputPipe>,
    stderr: Option<OutputPipe>,
    now: N,
    lines: Lines,
    buffers: [Vec<u8>; 2],
}

impl<N: Fn() -> Timestamp> Logs<N> {
    /// `now` gives the time of a line: the time at which its first byte was read.
    pub fn new(stdout: OutputPipe, stderr: OutputPipe, cap: LogCap, now: N) -> Logs<N> {
        let buffers = [vec![0; READ_BYTES], vec![0; READ_BYTES]];
        Logs { stdout: Some(stdout), stderr: Some(stderr), now, lines: Lines::new(cap), buffers }
    }

    /// The next chunk, or `None` when the command has ended and all was given out.
    ///
    /// Dropping the future loses no bytes.
    pub async fn next_chunk(&mut self) -> Option<Vec<u8>> {
        let age = tokio::time::sleep(CHUNK_AGE);
        tokio::pin!(age);
        let mut waiting = !self.lines.ready.is_empty();
        loop {
            if self.lines.ready.len() >= CHUNK_BYTES {
                return Some(std::mem::take(&mut self.lines.ready));
            }
            if self.stdout.is_none() && self.stderr.is_none() {
                self.lines.finish();
                let rest = std::mem::take(&mut self.lines.ready);
                return (!rest.is_empty()).then_some(rest);
            }
            let [out, err] = &mut self.buffers;
            tokio::select! {
                count = read(&mut self.stdout, out) => self.lines.push(Stream::Out, &out[..count], &self.now),
                count = read(&mut self.stderr, err) => self.lines.push(Stream::Err, &err[..count], &self.now),
                () = &mut age, if waiting => return Some(std::mem::take(&mut self.lines.ready)),
            }
            if !waiting && !self.lines.ready.is_empty() {
                waiting = true;
                age.set(tokio::time::sleep(CHUNK_AGE));
            }
        }
    }
}

/// Reads some bytes. Closes the pipe at its end; an error of a pipe is its end too. Waits for ever on a closed pipe.
async fn read(pipe: &mut Option<OutputPipe>, buffer: &mut [u8]) -> usize {
    let Some(open) = pipe else { return std::future::pending().await };
    let count = open.read(buffer).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the output of a command");
        0
    });
    if count == 0 {
        *pipe = None;
    }
    count
}

impl<N> fmt::Debug for Logs<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs")
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy)]
enum Stream {
    Out,
    Err,
}

/// Merges the two streams into lines.
#[derive(Debug)]
struct Lines {
    /// Whole lines, not given out yet.
    ready: Vec<u8>,
    /// The line that each stream has begun, with its time.
    begun: [Option<(Timestamp, Vec<u8>)>; 2],
    /// Bytes that the log may still take.
    left: u64,
    cap: LogCap,
    cut: bool,
}

impl Lines {
    fn new(cap: LogCap) -> Lines {
        Lines { ready: Vec::new(), begun: [None, None], left: cap.0, cap, cut: false }
    }

    fn push(&mut self, stream: Stream, mut bytes: &[u8], now: impl Fn() -> Timestamp) {
        if self.cut || bytes.is_empty() {
            return;
        }
        let now = now();
        while !bytes.is_empty() && !self.cut {
            let (time, mut text) = self.begun[stream as usize].take().unwrap_or((now, Vec::new()));
            let room = LINE_BYTES_MAX - text.len();
            let (line, ended) = match bytes.iter().take(room + 1).position(|&byte| byte == b'\n') {
                Some(end) => (&bytes[..end], true),
                None => (&bytes[..bytes.len().min(room)], false),
            };
            bytes = &bytes[line.len() + usize::from(ended)..];
            text.extend_from_slice(line);
            if ended {
                self.write(time, stream, &text);
            } else if text.len() == LINE_BYTES_MAX {
                let rest = text.split_off(whole_characters(&text));
                self.write(time, stream, &text);
                self.begun[stream as usize] = (!rest.is_empty()).then_some((now, rest));
            } else {
                self.begun[stream as usize] = Some((time, text));
            }
        }
    }

    /// The streams have ended: a line that was begun is a line.
    fn finish(&mut self) {
        for stream in [Stream::Out, Stream::Err] {
            if let Some((time, text)) = self.begun[stream as usize].take() {
                self.write(time, stream, &text);
            }
        }
    }

    fn write(&mut self, time: Timestamp, stream: Stream, text: &[u8]) {
        if self.cut {
            return;
        }
        let before = self.ready.len();
        let letter = match stream {
            Stream::Out => 'o',
            Stream::Err => 'e',
        };
        self.ready.extend_from_slice(format!("{time:.3} {letter} ").as_bytes());
        self.ready.extend_from_slice(text);
        self.ready.push(b'\n');
        let size = (self.ready.len() - before) as u64;
        if size > self.left {
            self.cut = true;
            self.ready.truncate(before);
            let cap = self.cap.0;
            self.ready.extend_from_slice(
                format!("{time:.3} e towline: the log was cut here, at its limit of {cap} bytes\n")
                    .as_bytes(),
            );
        }
        self.left = self.left.saturating_sub(size);
    }
}

/// How many bytes to take so that a character of up to four bytes is not split.
fn whole_characters(text: &[u8]) -> usize {
    let begins = |&&byte: &&u8| byte & 0b1100_0000 != 0b1000_0000;
    let tail = &text[text.len().saturating_sub(4)..];
    match tail.iter().rposition(|byte| begins(&byte)) {
        // The last character is whole, or what follows is no UTF-8 at all.
        Some(at) if std::str::from_utf8(&tail[at..]).is_ok_and(|last| !last.is_empty()) => text.len(),
        Some(at) if tail[at] >= 0b1100_0000 => text.len() - (tail.len() - at),
        _ => text.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    fn text(lines: &mut Lines) -> String {
        lines.finish();
        String::from_utf8_lossy(&lines.ready).into_owned()
    }

    #[test]
    fn lines_of_two_streams_have_the_time_of_their_first_byte() {
        let mut lines = Lines::new(LogCap::default());
        lines.push(Stream::Out, b"one\ntw", || at(0));
        lines.push(Stream::Err, b"oops\n\n", || at(1));
        lines.push(Stream::Out, b"o\nlast", || at(2500));
        assert_eq!(
            text(&mut lines),
            "1970-01-01T00:00:00.000Z o one\n1970-01-01T00:00:00.001Z e oops\n1970-01-01T00:00:00.001Z e \n\
             1970-01-01T00:00:00.000Z o two\n1970-01-01T00:00:02.500Z o last\n"
        );
    }

    #[test]
    fn a_long_line_is_split_between_characters() {
        let mut lines = Lines::new(LogCap::default());
        let long = format!("{}ä{}", "x".repeat(LINE_BYTES_MAX - 1), "y".repeat(5));
        lines.push(Stream::Out, long.as_bytes(), || at(0));
        lines.push(Stream::Out, b"\n", || at(1));
        let text = text(&mut lines);
        let parts: Vec<&str> = text.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(parts, ["x".repeat(LINE_BYTES_MAX - 1).as_str(), "äyyyyy"]);
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_kept() {
        let mut lines = Lines::new(LogCap::default());
        let bytes = vec![0x80_u8; LINE_BYTES_MAX + 3];
        lines.push(Stream::Out, &bytes, || at(0));
        lines.finish();
        assert_eq!(lines.ready.iter().filter(|&&byte| byte == 0x80).count(), bytes.len());
        assert_eq!(lines.ready.iter().filter(|&&byte| byte == b'\n').count(), 2);
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_one_line() {
        let mut lines = Lines::new(LogCap::default());
        lines.push(Stream::Out, format!("{}\nnext\n", "x".repeat(LINE_BYTES_MAX)).as_bytes(), || at(0));
        assert_eq!(text(&mut lines).lines().count(), 2);
    }

    #[test]
    fn one_line_says_that_the_log_was_cut() {
        let mut lines = Lines::new(LogCap(60));
        lines.push(Stream::Out, b"first\nsecond\nthird\n", || at(0));
        lines.push(Stream::Err, b"fourth\n", || at(1));
        assert_eq!(
            text(&mut lines),
            "1970-01-01T00:00:00.000Z o first\n\
             1970-01-01T00:00:00.000Z e towline: the log was cut here, at its limit of 60 bytes\n"
        );
    }
}
