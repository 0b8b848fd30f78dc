//! The progress bar of a transfer.

use indicatif::{ProgressBar, ProgressStyle};

/// On stderr, and only on a terminal.
pub fn bar(length: Option<u64>) -> ProgressBar {
    let (bar, template) = match length {
        Some(length) => {
            (ProgressBar::new(length), "{bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left")
        }
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}  {bytes_per_sec}"),
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}
