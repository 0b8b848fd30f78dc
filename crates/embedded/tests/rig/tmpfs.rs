//! A small file system in memory, for tests of a full or read-only disk.
#![allow(clippy::print_stdout, reason = "a skipped test says why")]
#![allow(dead_code, reason = "each test binary uses what it needs")]

use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A small file system. `None` from [`Tmpfs::mount`]: this process may not mount one.
pub struct Tmpfs(TempDir);

impl Tmpfs {
    pub fn mount(size: &str) -> Option<Tmpfs> {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(directory.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Tmpfs(directory)),
            other => {
                println!("skipped: this process cannot mount a tmpfs: {other:?}");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn remount(&self, mode: &str) -> bool {
        let options = format!("remount,{mode}");
        let done = Command::new("mount").args(["-o", &options]).arg(self.path()).output();
        done.is_ok_and(|output| output.status.success())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}
