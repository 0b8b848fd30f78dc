//! PostgreSQL servers for tests: one that all tests share, and servers of single tests, which may be killed.

#![allow(dead_code, reason = "each test binary uses what it needs")]

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, NoTls};

/// The port in the name of the socket.
pub const PORT: u16 = 5432;

/// The runtime of the stores of a test process.
pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

/// The server that all tests share, each in its own schema. This process holds a lock on it as long as it lives.
pub static SHARED: LazyLock<Shared> = LazyLock::new(Shared::join);

#[derive(Debug)]
pub struct Shared {
    directory: PathBuf,
    _user: File,
}

impl Shared {
    fn join() -> Shared {
        // The lock files are in the build directory. The server's user may not enter it, so the server has a temporary directory.
        let build = env!("CARGO_TARGET_TMPDIR");
        let mut hash = DefaultHasher::new();
        build.hash(&mut hash);
        let directory = std::env::temp_dir().join(format!("towline-postgres-{:x}", hash.finish()));
        let lock = |name: &str| {
            OpenOptions::new().create(true).append(true).open(Path::new(build).join(name)).unwrap()
        };
        let user = lock("postgres-users");
        user.lock_shared().unwrap();
        // Test processes that start at the same time take turns here: the first one starts the server.
        let starter = lock("postgres-start");
        starter.lock().unwrap();
        if !is_up(&config(&directory)) {
            let data = directory.join("data");
            fs::remove_dir_all(&directory).ok();
            fs::create_dir(&directory).unwrap();
            own(&directory);
            initialise(&data);
            let mut supervise = Command::new("setsid");
            supervise
                .arg("--fork")
                .args(["sh", "-c", include_str!("supervise.sh"), "supervise"])
                .arg(Path::new(build).join("postgres-users"))
                .arg(&directory);
            supervise.args(server_command(&data, &directory, false));
            assert!(silently(&mut supervise).status().unwrap().success());
            wait_until_up(&directory);
        }
        Shared { directory, _user: user }
    }

    pub fn config(&self) -> Config {
        config(&self.directory)
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join(".s.PGSQL.5432")
    }
}

/// A name for a schema or a role that no other test uses, in this process or in another one. It does not contain the
/// process id: tests that run as threads share it, and the system reuses it.
pub fn new_schema() -> String {
    format!("test_{:016x}", RandomState::new().hash_one("schema"))
}

/// A durable server of one test, which can be killed and started again.
#[derive(Debug)]
pub struct Own {
    directory: tempfile::TempDir,
    settings: Vec<String>,
    port: u16,
    process: Option<Child>,
}

impl Own {
    pub fn start() -> Own {
        Own::start_tcp(&[], &[], PORT)
    }

    /// Starts a server with settings, files in its data directory, and its own port.
    pub fn start_tcp(settings: &[String], files: &[(&str, &str)], port: u16) -> Own {
        Own::start_in(&std::env::temp_dir(), settings, files, port)
    }

    /// Starts a server in a directory below this one.
    pub fn start_in(place: &Path, settings: &[String], files: &[(&str, &str)], port: u16) -> Own {
        let directory = tempfile::tempdir_in(place).unwrap();
        own(directory.path());
        let data = directory.path().join("data");
        initialise(&data);
        for (name, content) in files {
            let path = data.join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            own(&path);
        }
        let mut server = Own { directory, settings: settings.to_vec(), port, process: None };
        server.start_again();
        server
    }

    /// Starts a replica with this name.
    pub fn replica(&self, name: &str) -> Own {
        let directory = tempfile::tempdir().unwrap();
        own(directory.path());
        let primary = self.directory.path().display();
        let place = format!("host={primary} port={} user=towline application_name={name}", self.port);
        let data = directory.path().join("data").display().to_string();
        let how = ["--checkpoint=fast", "--write-recovery-conf", "--no-sync"];
        run_tool("pg_basebackup", &[&how[..], &["--dbname", &place, "--pgdata", &data]].concat());
        let mut replica = Own { directory, settings: self.settings.clone(), port: self.port, process: None };
        replica.start_again();
        replica
    }

    pub fn start_again(&mut self) {
        let config = self.config();
        let directory = self.directory.path();
        let mut command = server_command(&directory.join("data"), directory, true);
        for setting in &self.settings {
            command.extend(["-c".into(), setting.into()]);
        }
        for _ in 0..600 {
            let log = File::create(directory.join("log")).unwrap();
            let mut server = Command::new(&command[0]);
            let process =
                self.process.insert(silently(server.args(&command[1..])).stderr(log).spawn().unwrap());
            // PostgreSQL refuses to start while processes of the killed server are still running.
            while process.try_wait().unwrap().is_none() {
                if is_up(&config) {
                    return;
                }
                sleep(Duration::from_millis(20));
            }
            sleep(Duration::from_millis(100));
        }
        panic!("PostgreSQL does not start again: {}", fs::read_to_string(directory.join("log")).unwrap());
    }

    /// kill -9 of the server. Its other processes notice and end.
    pub fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Ends the server and all its processes at once, like a crash.
    pub fn abort(&mut self) {
        let mut process = self.process.take().unwrap();
        // The server may have ended already.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&process),
            rustix::process::Signal::QUIT,
        );
        process.wait().unwrap();
    }

    /// The directory of its socket.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn config(&self) -> Config {
        let mut config = config(self.directory.path());
        config.port(self.port);
        config
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Not killed: the server waits for its own processes, which still write into its directory.
            let pid = rustix::process::Pid::from_child(&process);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).ok();
            process.wait().ok();
        }
    }
}

fn config(directory: &Path) -> Config {
    let mut config = Config::new();
    config.host_path(directory).user("towline").dbname("postgres");
    config
}

pub async fn connect(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn is_up(config: &Config) -> bool {
    RUNTIME.block_on(connect(config)).is_ok()
}

fn wait_until_up(directory: &Path) {
    for _ in 0..600 {
        if is_up(&config(directory)) {
            return;
        }
        sleep(Duration::from_millis(100));
    }
    panic!("PostgreSQL does not come up in {}", directory.display());
}

fn silently(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

/// Finds a program where Debian installs it, or on PATH.
fn binary(name: &str) -> PathBuf {
    let on_path = std::env::var_os("PATH");
    let on_path = on_path.iter().flat_map(std::env::split_paths);
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<PathBuf> = installed.map(|version| version.path().join("bin")).collect();
    debian.sort();
    let found =
        debian.into_iter().rev().chain(on_path).map(|place| place.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("no {name} here: run scripts/install-test-tools"))
}

/// PostgreSQL refuses to run as root. This is the user to run as instead.
fn unprivileged() -> Option<&'static str> {
    let is_root = rustix::process::getuid().is_root();
    let exists = |user: &&str| {
        fs::read_to_string("/etc/passwd").unwrap().lines().any(|line| line.starts_with(&format!("{user}:")))
    };
    is_root.then(|| ["postgres", "nobody"].into_iter().find(exists).unwrap())
}

fn as_unprivileged() -> Vec<OsString> {
    let drop_rights = |user: &str| {
        let text = format!("setpriv --reuid={user} --regid=nogroup --clear-groups --pdeathsig=INT");
        text.split(' ').map(OsString::from).collect()
    };
    unprivileged().map_or_else(Vec::new, drop_rights)
}

fn own(directory: &Path) {
    if let Some(user) = unprivileged() {
        let status = Command::new("chown").arg(user).arg(directory).status().unwrap();
        assert!(status.success());
    }
}

fn initialise(data: &Path) {
    let options =
        ["--auth=trust", "--username=towline", "--no-sync", "--encoding=UTF8", "--locale=C", "--pgdata"];
    run_tool("initdb", &[&options[..], &[&data.display().to_string()]].concat());
}

/// Runs a program of PostgreSQL, as the user of the servers.
pub fn run_tool(name: &str, arguments: &[&str]) {
    let mut command = as_unprivileged();
    command.push(binary(name).into());
    let mut tool = Command::new(&command[0]);
    tool.args(&command[1..]).args(arguments).current_dir("/");
    let output = tool.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

fn server_command(data: &Path, sockets: &Path, durable: bool) -> Vec<OsString> {
    let mut command = as_unprivileged();
    command.push(binary("postgres").into());
    command.push("-D".into());
    command.push(data.into());
    let mut settings = vec!["listen_addresses=".to_owned(), "max_connections=1000".to_owned()];
    settings.push(format!("unix_socket_directories={}", sockets.display()));
    settings.push("shared_buffers=64MB".to_owned());
    if !durable {
        // Tests of crashes use their own servers.
        settings.extend(["fsync=off".to_owned(), "full_page_writes=off".to_owned()]);
    }
    for setting in settings {
        command.push("-c".into());
        command.push(setting.into());
    }
    command
}
