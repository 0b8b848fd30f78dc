//! The directory of one launch: its pipes, its private files and its working directory.

use super::input::Opener;
use super::removal::remove_tree;
use super::{InputPipe, Launch, OutputPipe, StartError};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions, Permissions, set_permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::sync::oneshot;

/// Who may use the entries of a launch directory. The directory above is always private to the node's user.
#[derive(Debug, Clone, Copy)]
pub(super) struct Modes {
    directory: u32,
    pipe: u32,
    file: u32,
    has_work: bool,
}

impl Modes {
    /// The command runs as the node's user.
    pub(super) const PRIVATE: Modes = Modes { directory: 0o700, pipe: 0o600, file: 0o600, has_work: true };
    /// The command may run as any user, in a container that has its own working directory.
    pub(super) const SHARED: Modes = Modes { directory: 0o755, pipe: 0o666, file: 0o444, has_work: false };

    /// Sets a mode that the node's `umask` may have cut.
    fn restore(self, path: &Path, mode: u32) -> io::Result<()> {
        if mode & 0o077 == 0 { Ok(()) } else { set_permissions(path, Permissions::from_mode(mode)) }
    }
}

/// Removes itself when dropped, after the threads that wait to open an input have ended. Drop it where blocking is allowed.
#[derive(Debug)]
pub(super) struct LaunchDirectory {
    path: PathBuf,
    openers: Vec<Opener>,
    /// One for each pipe: the command has ended, so no bytes come or go any more.
    ended: Vec<oneshot::Sender<()>>,
}

/// The node's ends of the pipes of a launch.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    pub(super) inputs: BTreeMap<String, InputPipe>,
    pub(super) outputs: BTreeMap<String, OutputPipe>,
}

impl LaunchDirectory {
    /// Makes the directory in that of the instance. Blocks for the time of a few calls to the file system.
    pub(super) fn create(
        instance: &Path,
        launch: &Launch,
        modes: Modes,
    ) -> Result<(LaunchDirectory, Pipes), StartError> {
        let path = instance.join(&launch.id);
        make_directory(&path, modes.directory).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => StartError::taken(&launch.id),
            _ => StartError::from_io("make the directory", &path, &error),
        })?;
        let mut directory = LaunchDirectory { path, openers: Vec::new(), ended: Vec::new() };
        modes
            .restore(&directory.path, modes.directory)
            .map_err(|error| StartError::from_io("open to containers", &directory.path, &error))?;
        if modes.has_work {
            let work = directory.work();
            make_directory(&work, modes.directory)
                .map_err(|error| StartError::from_io("make the directory", &work, &error))?;
        }
        for file in &launch.files {
            let path = directory.path.join(&file.name);
            write_file(&path, &file.contents, modes.file)
                .and_then(|()| modes.restore(&path, modes.file))
                .map_err(|error| StartError::from_io("write the file", &path, &error))?;
        }
        let mut pipes = Pipes::default();
        for name in &launch.inputs {
            let input = directory.make_pipe(name, modes, Opener::start).map(|(opener, input)| {
                directory.openers.push(opener);
                input
            })?;
            pipes.inputs.insert(name.clone(), input);
        }
        for name in &launch.outputs {
            let output = directory.make_pipe(name, modes, OutputPipe::open)?;
            pipes.outputs.insert(name.clone(), output);
        }
        Ok((directory, pipes))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// A signal that the command has ended.
    pub(super) fn ended(&mut self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.ended.push(sender);
        receiver
    }

    /// Tells the pipes that the command has ended: readers take what is left, writers get a broken pipe.
    pub(super) fn end_pipes(&mut self) {
        self.ended.clear();
    }

    fn make_pipe<P>(
        &mut self,
        name: &str,
        modes: Modes,
        open: impl FnOnce(&Path, oneshot::Receiver<()>) -> io::Result<P>,
    ) -> Result<P, StartError> {
        let path = self.path.join(format!("{name}.pipe"));
        mkfifoat(CWD, &path, Mode::from_raw_mode(modes.pipe))
            .map_err(io::Error::from)
            .and_then(|()| modes.restore(&path, modes.pipe))
            .and_then(|()| open(&path, self.ended()))
            .map_err(|error| StartError::from_io("make the pipe", &path, &error))
    }
}

impl Drop for LaunchDirectory {
    fn drop(&mut self) {
        self.end_pipes();
        self.openers.clear();
        if let Err(error) = remove_tree(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the directory of a launch");
        }
    }
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)
}

fn write_file(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(contents)
}
