//! A full disk: calls report it and acknowledge nothing. Writing continues when there is space again.

use std::process::Command;

use towline_buffers::{BufferError, Buffers, Location, NewBuffer, Options};

use crate::storage::{NOW, WRITER};
use crate::writer::{TestWriter, read_all};

/// A file system of 4 MiB, unmounted on drop.
struct SmallDisk {
    directory: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
            .arg(directory.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self { directory })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because an aborted fetch may still have a file open.
        let unmounted = Command::new("umount").arg("--lazy").arg(self.directory.path()).status();
        assert!(
            unmounted.is_ok_and(|status| status.success()),
            "cannot unmount {}",
            self.directory.path().display()
        );
    }
}

#[tokio::test]
async fn writing_continues_after_a_full_disk() {
    let Some(disk) = SmallDisk::mount() else {
        println!("SKIPPED: a small file system cannot be mounted here (needs root)");
        return;
    };
    let location = Location::Directory(disk.directory.path().join("buffers"));
    let buffers = Buffers::open(&location, Options::default()).unwrap();
    buffers.create("b", NewBuffer::default(), NOW).await.unwrap();
    buffers.begin("b", WRITER, NOW).await.unwrap();
    let ballast = disk.directory.path().join("ballast");
    std::fs::write(&ballast, vec![1; 3 << 20]).unwrap();
    let mut writer = TestWriter::new("b");
    let data = vec![7; 2 << 20];
    let chunk = writer.next(&data);
    let refused = buffers.put_chunk("b", WRITER, chunk.clone(), NOW).await.unwrap_err();
    assert!(matches!(refused, BufferError::Full { .. }) && refused.is_fault(), "{refused}");
    let refused = buffers.put_blob("k", {
        let mut noise = vec![0; 2 << 20];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        noise.into()
    });
    assert!(matches!(refused.await, Err(BufferError::Full { .. })));
    assert_eq!(buffers.position("b").await.unwrap().chunks, 0);

    std::fs::remove_file(ballast).unwrap();
    buffers.put_chunk("b", WRITER, chunk, NOW).await.unwrap();
    writer.finish(&buffers).await.unwrap();
    assert_eq!(read_all(&buffers, "b").await.unwrap(), data);
}
