//! Podman with an image of its own, as a service on a socket.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Has busybox, and a command of its own.
pub const IMAGE: &str = "localhost/towline-test:1";

/// A machine may have no cgroup in which such limits hold.
const CONTAINERS: &str = r#"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"#;

/// Stops the service and removes its files when dropped.
#[derive(Debug)]
pub struct Podman {
    directory: TempDir,
    service: Child,
    /// The directory of the runner, which is gone when the runner's guardian has cleaned up.
    instance: PathBuf,
}

impl Podman {
    /// The error says what this machine lacks.
    pub fn start(instance: PathBuf) -> Result<Podman, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::write(path.join("containers.conf"), CONTAINERS).unwrap();
        let (graph, run) = (path.join("graph"), path.join("run"));
        let storage = format!("[storage]\ndriver = \"vfs\"\ngraphroot = {graph:?}\nrunroot = {run:?}\n");
        fs::write(path.join("storage.conf"), storage).unwrap();
        make_root(path).map_err(|error| format!("no root for an image: {error}"))?;
        let import = ["import", "--change", "CMD [\"/bin/echo\", \"from\", \"image\"]", "root.tar", IMAGE];
        run_to_end(podman(path).args(import))?;
        // Only what podman itself cannot do here is a reason to skip.
        run_to_end(podman(path).args(["run", "--rm", "--network=host", IMAGE, "/bin/true"]))?;
        let address = format!("unix://{}", path.join("podman.sock").display());
        let mut service = podman(path);
        service.args(["system", "service", "--time=0", &address]).stdout(Stdio::null()).stderr(Stdio::null());
        let service = service.spawn().map_err(|error| format!("cannot start podman: {error}"))?;
        let podman = Podman { directory, service, instance };
        for _ in 0..1000 {
            if UnixStream::connect(podman.path().join("podman.sock")).is_ok() {
                return Ok(podman);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err("podman's service did not answer in 10 s".to_owned())
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn address(&self) -> String {
        format!("unix://{}", self.path().join("podman.sock").display())
    }

    /// What a podman command prints.
    pub fn run(&self, args: &[&str]) -> String {
        run_to_end(podman(self.path()).args(args)).unwrap()
    }

    /// Names of all containers.
    pub fn containers(&self) -> String {
        self.run(&["ps", "--all", "--format", "{{.Names}}"])
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        for _ in 0..500 {
            if !self.instance.exists() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.service.kill();
        let _ = self.service.wait();
    }
}

fn podman(path: &Path) -> Command {
    let mut command = Command::new("podman");
    command
        .env("CONTAINERS_CONF", path.join("containers.conf"))
        .env("CONTAINERS_STORAGE_CONF", path.join("storage.conf"))
        .current_dir(path)
        .stdin(Stdio::null());
    command
}

fn run_to_end(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } =
        command.output().map_err(|error| format!("no podman here: {error}"))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    Err(format!("{command:?}: {status}: {}", String::from_utf8_lossy(&stderr)))
}

/// Makes `root.tar`: a statically linked busybox with all of its commands.
fn make_root(path: &Path) -> io::Result<()> {
    let root = path.join("root");
    for directory in ["bin", "etc", "tmp", "usr/local/bin"] {
        fs::create_dir_all(root.join(directory))?;
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
    let busybox = root.join("bin/busybox");
    fs::copy("/bin/busybox", &busybox)?;
    let list = Command::new(&busybox).arg("--list").output()?;
    for name in String::from_utf8_lossy(&list.stdout).lines().filter(|&name| name != "busybox") {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name))?;
    }
    let tar =
        Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(path.join("root.tar")).arg(".").status()?;
    if tar.success() { Ok(()) } else { Err(io::Error::other("tar failed")) }
}
