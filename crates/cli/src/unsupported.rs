//! Commands that Tyger has and Towline does not support yet.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The error message for one of them.
pub fn explain(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let (what, meanwhile) = match name.as_str() {
        "service" | "services" => {
            ("services", "run the worker yourself, around `queue receive` or `queue watch`")
        }
        "trigger" | "triggers" => {
            ("triggers", "run the worker yourself, around `queue receive` or `queue watch`")
        }
        "codespec" | "codespecs" => ("codespecs", "start your program yourself"),
        "run" | "runs" => ("runs", "start your program yourself"),
        _ => return None,
    };
    Some(format!("`{name}`: this version of Towline has no {what} yet; meanwhile {meanwhile}"))
}
