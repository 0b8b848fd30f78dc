//! `towline codespec`, `run`, `service`, `trigger` and `node`.

pub mod codespec;
mod file;
mod logs;
pub mod node;
pub mod run;
mod run_exec;
pub mod service;
pub mod trigger;

use crate::exit::Failure;
use towline_api::compute::CodespecRef;

/// The codespec of a flag replaces that of a file.
fn choose_codespec(flag: Option<String>, file: CodespecRef) -> Result<CodespecRef, Failure> {
    match flag {
        Some(name) => Ok(CodespecRef::Named(name)),
        None if file.is_empty() => {
            Err(Failure::Usage("no codespec; name one with --codespec, or give one in the file".to_owned()))
        }
        None => Ok(file),
    }
}

/// The name of the command line, or that of the file.
fn choose_name(what: &str, given: Option<String>, file: Option<String>) -> Result<String, Failure> {
    given
        .or(file)
        .ok_or_else(|| Failure::Usage(format!("no name; give the name of the {what}, or one in the file")))
}
