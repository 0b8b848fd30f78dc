//! What to start.

use super::StartError;
use super::environment::pipe_variable;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The smallest memory limit in which a program can start. Container engines have the same minimum.
const MEMORY_MIN_BYTES: u64 = 6 << 20;
const NAME_LENGTH_MAX: usize = 128;

/// One command to start.
#[derive(Clone)]
pub struct Launch {
    /// Unique on this node. Names the working directory and the container. Letters, digits, `.`, `_` and `-`.
    pub id: String,
    /// The container's image, by name or digest. The process runner ignores it.
    pub image: Option<String>,
    /// The program and its first arguments. Empty means the entry point of the image.
    pub command: Vec<String>,
    /// More arguments.
    pub args: Vec<String>,
    /// The whole environment. The runner adds `PATH`, `HOME` and `TMPDIR` if they are missing, one `<NAME>_PIPE` for each pipe, the
    /// variables of the private files, and two variables by which it finds the processes of a launch.
    pub environment: BTreeMap<String, String>,
    /// Parameters that the command reads: each is a named pipe.
    pub inputs: Vec<String>,
    /// Parameters that the command writes: each is a named pipe.
    pub outputs: Vec<String>,
    /// Files that only the command may read.
    pub files: Vec<PrivateFile>,
    pub limits: Limits,
    pub pull: PullPolicy,
    /// The time from SIGTERM to SIGKILL when the launch is stopped.
    pub stop_grace: Duration,
}

/// A file with a secret.
#[derive(Clone)]
pub struct PrivateFile {
    pub name: String,
    pub contents: Vec<u8>,
    /// The environment variable that holds the path of the file.
    pub variable: String,
}

/// What a launch may use. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// A container may use this much in total. A process, and each of its children by itself, may allocate this much
    /// (`RLIMIT_DATA`).
    pub memory_bytes: Option<u64>,
    /// Only containers have this limit.
    pub cpus: Option<f64>,
    /// A container may have this many processes. The process runner sets `RLIMIT_NPROC`, which counts all processes of the
    /// node's user, and which Linux does not apply to root.
    pub processes: Option<u64>,
    /// Open files of one process.
    pub open_files: Option<u64>,
}

/// When a container runner fetches the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PullPolicy {
    Always,
    #[default]
    IfMissing,
    Never,
}

impl Launch {
    /// Refuses what no runner can start.
    pub(super) fn check(&self) -> Result<(), StartError> {
        check_name("launch id", &self.id)?;
        for name in self.inputs.iter().chain(&self.outputs) {
            check_name("parameter", name)?;
        }
        for file in &self.files {
            check_name("file", &file.name)?;
            // The directory has these names already.
            if file.name == "work" || file.name.ends_with(".pipe") {
                return Err(StartError::Invalid(format!(
                    "the private file {:?} has a name of the runner's own; choose another",
                    file.name
                )));
            }
        }
        self.check_variables()?;
        self.check_nul()?;
        match self.limits.memory_bytes {
            Some(bytes) if bytes < MEMORY_MIN_BYTES => Err(StartError::Invalid(format!(
                "the memory limit of {bytes} bytes is too small to start a program; give it at least {MEMORY_MIN_BYTES} bytes"
            ))),
            _ => Ok(()),
        }
    }

    fn check_variables(&self) -> Result<(), StartError> {
        let names = self.environment.keys().chain(self.files.iter().map(|file| &file.variable));
        if let Some(name) = names.into_iter().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(StartError::Invalid(format!(
                "the environment variable {name:?} has no valid name; use letters, digits and `_`"
            )));
        }
        let pipes = self.inputs.iter().chain(&self.outputs).map(|name| pipe_variable(name));
        let mut taken = BTreeSet::new();
        match pipes
            .chain(self.files.iter().map(|file| file.variable.clone()))
            .find(|name| !taken.insert(name.clone()))
        {
            Some(name) => Err(StartError::Invalid(format!(
                "two parameters or files need the environment variable {name}; rename one of them"
            ))),
            None => Ok(()),
        }
    }

    /// The system's calls end a text at its first NUL byte.
    fn check_nul(&self) -> Result<(), StartError> {
        let words = self.command.iter().chain(&self.args);
        let variables = self.environment.iter().flat_map(|(name, value)| [name, value]);
        match words.chain(variables).find(|text| text.contains('\0')) {
            Some(text) => {
                let shown: String = text.chars().take_while(|&c| c != '\0').take(40).collect();
                Err(StartError::Invalid(format!(
                    "the command or its environment has a NUL byte after {shown:?}; remove it"
                )))
            }
            None => Ok(()),
        }
    }
}

fn check_name(what: &str, name: &str) -> Result<(), StartError> {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty()
        || name.len() > NAME_LENGTH_MAX
        || !name.chars().all(known)
        || name.chars().all(|c| c == '.')
    {
        return Err(StartError::Invalid(format!(
            "the {what} {name:?} is not a valid name; use 1 to {NAME_LENGTH_MAX} letters, digits, `.`, `_` and `-`"
        )));
    }
    Ok(())
}

impl fmt::Debug for Launch {
    /// Leaves out the values of the environment and the files: they may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("id", &self.id)
            .field("image", &self.image)
            .field("command", &self.command)
            .field("environment", &self.environment.keys())
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PrivateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateFile").field("name", &self.name).finish_non_exhaustive()
    }
}
