//! Logs on standard error.

use crate::config::{LogFormat, Settings};
use tracing_subscriber::EnvFilter;

/// Starts logging, and logs the warnings about the settings. Only the first call in a process has an effect.
pub fn start(settings: &Settings) {
    // The filter was checked when the settings were read.
    let filter = EnvFilter::try_new(&settings.log).unwrap_or_default();
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let logs =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    // Fails if the program that embeds the server has already started logging.
    let _ = match settings.log_format {
        LogFormat::Pretty => logs.with_target(false).try_init(),
        LogFormat::Json => logs.json().try_init(),
    };
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
}
