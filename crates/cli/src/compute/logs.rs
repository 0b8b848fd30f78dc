//! Prints logs of runs and replicas. A stored line is `<time> <o|e> <text>`.

use crate::exit::Failure;
use clap::Args;
use std::collections::VecDeque;
use std::io::Write;
use towline_api::chain::Position;
use towline_api::client::Download;
use towline_api::{Client, ClientError, Code};

#[derive(Debug, Clone, Default, Args)]
pub struct LogArgs {
    /// Print new lines as they come, until the end.
    #[arg(short, long)]
    pub follow: bool,
    /// Print only the last lines of what there is.
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
    /// Print the time before each line.
    #[arg(long)]
    pub timestamps: bool,
}

/// Splits bytes into lines, and prints them without what the user did not ask for.
struct Printer<'a> {
    args: &'a LogArgs,
    prefix: Option<&'a str>,
    begun: Vec<u8>,
    /// The last lines, until what there was at the beginning has been read.
    kept: Option<VecDeque<Vec<u8>>>,
    to_stderr: bool,
}

impl Printer<'_> {
    fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.begun.extend_from_slice(bytes);
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let rest = self.begun.split_off(end + 1);
        let whole = std::mem::replace(&mut self.begun, rest);
        for line in whole.split_inclusive(|byte| *byte == b'\n') {
            self.line(line)?;
        }
        self.flush()
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Failure> {
        let (Some(kept), Some(tail)) = (&mut self.kept, self.args.tail) else { return self.print(line) };
        kept.push_back(line.to_vec());
        if kept.len() > tail {
            kept.pop_front();
        }
        Ok(())
    }

    /// Prints the kept lines. From now on, lines are printed as they come.
    fn release(&mut self) -> Result<(), Failure> {
        for line in self.kept.take().unwrap_or_default() {
            self.print(&line)?;
        }
        self.flush()
    }

    fn print(&self, line: &[u8]) -> Result<(), Failure> {
        let mut fields = line.splitn(3, |byte| *byte == b' ');
        let (time, _, text) = (fields.next().unwrap_or_default(), fields.next(), fields.next());
        // A line that is not in this form is printed as it is.
        let text = text.unwrap_or(line);
        let mut out = Vec::with_capacity(line.len() + 32);
        if let Some(prefix) = self.prefix {
            out.extend_from_slice(prefix.as_bytes());
        }
        if self.args.timestamps {
            out.extend_from_slice(time);
            out.push(b' ');
        }
        out.extend_from_slice(text);
        match self.to_stderr {
            true => std::io::stderr().write_all(&out)?,
            false => std::io::stdout().lock().write_all(&out)?,
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(std::io::stdout().lock().flush()?)
    }
}

/// Prints a log to standard output.
pub async fn print_log(
    client: &Client,
    buffer: &str,
    args: &LogArgs,
    prefix: Option<&str>,
) -> Result<(), Failure> {
    print(client, buffer, args, prefix, false).await
}

/// Prints a log to standard error, as it grows.
pub async fn print_log_to_stderr(client: &Client, buffer: &str) -> Result<(), Failure> {
    let args = LogArgs { follow: true, ..LogArgs::default() };
    print(client, buffer, &args, None, true).await
}

async fn print(
    client: &Client,
    buffer: &str,
    args: &LogArgs,
    prefix: Option<&str>,
    to_stderr: bool,
) -> Result<(), Failure> {
    let shown = client.buffer(buffer).await?;
    let known = shown.bytes;
    let kept = args.tail.map(|_| VecDeque::new());
    let mut printer = Printer { args, prefix, begun: Vec::new(), kept, to_stderr };
    let mut download = Download::new(client.clone(), buffer, Position::START);
    if known == 0 {
        printer.release()?;
    }
    while args.follow || download.position().bytes < known {
        match download.next().await {
            Ok(Some(pieces)) => {
                for piece in pieces {
                    printer.push(&piece)?;
                }
            }
            Ok(None) => break,
            // The node was lost while it wrote.
            Err(error) if is_broken_off(&error) => break,
            Err(error) => return Err(error.into()),
        }
        if download.position().bytes >= known {
            printer.release()?;
        }
    }
    printer.release()
}

fn is_broken_off(error: &ClientError) -> bool {
    error.code() == Some(Code::BufferFailed)
}
