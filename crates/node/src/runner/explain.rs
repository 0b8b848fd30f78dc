//! Why a command could not be executed, in words.

use super::StartError;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Explains the error of an execution. `work` is the directory in which a relative path begins.
pub(super) fn explain_exec(
    command: &str,
    path: &str,
    work: &Path,
    errno: Option<i32>,
    message: &str,
) -> StartError {
    let file = find(command, path, work);
    let not_executable =
        |why: &str| StartError::NotExecutable { command: command.to_owned(), why: why.to_owned() };
    match errno.map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NOTDIR) if file.is_some() => not_executable(
            "the interpreter in its first line, or the loader it was linked with, does not exist; install it on the node",
        ),
        Some(Errno::NOENT | Errno::NOTDIR) if command.contains('/') => {
            StartError::FileNotFound { command: command.to_owned() }
        }
        Some(Errno::NOENT | Errno::NOTDIR) => {
            StartError::CommandNotFound { command: command.to_owned(), path: path.to_owned() }
        }
        Some(Errno::ACCESS | Errno::PERM) => match file.map(fs::metadata) {
            Some(Ok(file)) if file.is_dir() => not_executable("it is a directory; name a program"),
            Some(Ok(file)) if file.permissions().mode() & 0o111 == 0 => {
                not_executable("it has no execute permission; give it one with `chmod +x`")
            }
            _ => StartError::PermissionDenied { command: command.to_owned() },
        },
        Some(Errno::NOEXEC) => not_executable(
            "its format is not known to this machine; build it for this processor, or begin the script with `#!`",
        ),
        Some(Errno::TOOBIG) => StartError::Invalid(format!(
            "the command line and the environment of {command:?} are too large for the system; put large values into a file or \
             an input"
        )),
        _ => StartError::Other(format!("cannot execute {command:?}: {message}")),
    }
}

/// The file that the system would have executed, if there is one.
fn find(command: &str, path: &str, work: &Path) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(work.join(command)).filter(|file| file.exists());
    }
    path.split(':').map(|directory| work.join(directory).join(command)).find(|file| file.exists())
}
