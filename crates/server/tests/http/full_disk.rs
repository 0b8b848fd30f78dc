//! A place for buffers without space: the server starts, serves reads, and lets clients free space.
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

use crate::test_server::TestServer;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use towline_server::Settings;

/// A file system of 4 MiB, unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
            .arg(directory.path())
            .output();
        mount.is_ok_and(|output| output.status.success()).then_some(SmallDisk(directory))
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.path().join("ballast")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    fn place(&self) -> std::path::PathBuf {
        self.0.path().join("buffers")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).output();
    }
}

fn at(place: &Path) -> impl FnOnce(&mut Settings) {
    let location = place.to_str().unwrap().parse().unwrap();
    |settings| settings.buffers.location = Some(location)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_starts_on_a_full_disk_and_clients_free_space() {
    let Some(disk) = SmallDisk::mount() else {
        println!("SKIPPED: a small file system cannot be mounted here (needs root)");
        return;
    };
    let server = TestServer::start_with(at(&disk.place())).await;
    server.queue("jobs", json!({})).await;
    let payload = "QUJD".repeat(50_000);
    let item = server.submit("jobs", json!([{"payload": payload}])).await.remove(0);
    let buffer = server.buffer().await;
    disk.fill();

    let server = server.restart_with(at(&disk.place())).await;
    assert_eq!(server.item(&item).await["payload"], payload.as_str());
    assert_eq!(server.get(&format!("/v1/buffers/{buffer}/content")).await.body, "data");
    server.post("/v1/buffers", json!({})).await.problem("disk_full");
    server.delete(&format!("/v1/buffers/{buffer}")).await.success();
    let (id, lease) = {
        let received = server.receive("jobs").await;
        (received["id"].as_str().unwrap().to_owned(), received["lease"].as_str().unwrap().to_owned())
    };
    server.act(&id, "commit", json!({"lease": lease})).await.success();
    std::fs::remove_file(disk.0.path().join("ballast")).unwrap();
    server.buffer().await;
}
