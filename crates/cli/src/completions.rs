//! `towline completions`.

use crate::cli::Cli;
use crate::exit::Failure;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io::Write;

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

pub fn print(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "towline", &mut script);
    Ok(std::io::stdout().lock().write_all(&script)?)
}
