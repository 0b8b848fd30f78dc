//! `towline man`.

use crate::cli::Cli;
use crate::exit::Failure;
use clap::{Args, CommandFactory};
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write the pages of all commands to this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn write(args: &ManArgs) -> Result<(), Failure> {
    if let Some(directory) = &args.out {
        let put = std::fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
        return put.map_err(|error| {
            Failure::Refused(format!("cannot write the manual to {}: {error}", directory.display()))
        });
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    Ok(std::io::stdout().lock().write_all(&page)?)
}
