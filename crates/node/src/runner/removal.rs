//! Removing a directory tree that a command has written.

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};
use rustix::path::Arg;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes the directory with all that is in it. A tree that does not exist is fine.
///
/// Never follows a symbolic link. Directories that their owner may not write are made writable first.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    let again = match fs::remove_dir_all(path) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    match again.kind() {
        io::ErrorKind::NotFound => return Ok(()),
        io::ErrorKind::PermissionDenied => make_writable(CWD, path)?,
        // A process that was just killed may have made one last file.
        io::ErrorKind::DirectoryNotEmpty => {}
        _ => return Err(again),
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Gives the owner all rights on every directory of the tree.
fn make_writable(parent: impl AsFd, name: impl Arg) -> io::Result<()> {
    // `O_PATH` opens a directory of any mode. Through the descriptor, the mode of this very directory changes, also if the
    // name has become a symbolic link meanwhile.
    let handle = openat(
        parent,
        name,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    fs::set_permissions(format!("/proc/self/fd/{}", handle.as_raw_fd()), Permissions::from_mode(0o700))?;
    let directory =
        openat(&handle, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() == FileType::Directory && name != c"." && name != c".." {
            make_writable(&directory, name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tree_with_closed_directories_is_removed_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (tree, kept) = (root.path().join("tree"), root.path().join("kept"));
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), b"stays").unwrap();
        symlink(&kept, tree.join("a/link")).unwrap();
        fs::set_permissions(tree.join("a/b"), Permissions::from_mode(0o500)).unwrap();
        fs::set_permissions(tree.join("a"), Permissions::from_mode(0o000)).unwrap();
        // Root may remove it anyway, so the part that needs it is called by itself.
        make_writable(CWD, &tree).unwrap();
        assert_eq!(fs::metadata(tree.join("a/b")).unwrap().permissions().mode() & 0o777, 0o700);
        remove_tree(&tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read(kept.join("file")).unwrap(), b"stays");
    }
}
