//! The socket that a server listens on: a TCP port, or a Unix socket.

use super::client_address::Peer;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl ListenAddress {
    /// Whether only processes on this machine can connect.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self {
            ListenAddress::Tcp(address) => address.ip().is_loopback(),
            ListenAddress::Unix(_) => true,
        }
    }
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ListenAddress::Tcp(address) => address.fmt(f),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        crate::config::parse_listen(text)
    }
}

#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

/// A Unix socket that only its owner can connect to. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Another server may have replaced the file.
    inode: u64,
}

/// An accepted connection.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    pub(crate) async fn bind(address: &ListenAddress) -> io::Result<Listener> {
        match address {
            ListenAddress::Tcp(address) => TcpListener::bind(address).await.map(Listener::Tcp),
            ListenAddress::Unix(path) => UnixSocket::bind(path).await.map(Listener::Unix),
        }
    }

    /// The address with the port that the system chose, if it was 0.
    pub(crate) fn address(&self) -> io::Result<ListenAddress> {
        Ok(match self {
            Listener::Tcp(listener) => ListenAddress::Tcp(listener.local_addr()?),
            Listener::Unix(socket) => ListenAddress::Unix(socket.path.clone()),
        })
    }

    pub(super) async fn accept(&self) -> io::Result<(Socket, Peer)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Each write is a whole response, so waiting to fill a packet would only delay it.
                let _ = stream.set_nodelay(true);
                Ok((Socket::Tcp(stream), Peer::Tcp(address)))
            }
            Listener::Unix(socket) => Ok((Socket::Unix(socket.listener.accept().await?.0), Peer::Unix)),
        }
    }
}

impl UnixSocket {
    async fn bind(path: &Path) -> io::Result<UnixSocket> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(io::Error::new(ErrorKind::AlreadyExists, "the file exists and is not a socket"));
            }
            // A server that was killed leaves its socket behind. Nothing listens on it.
            Ok(_) => match UnixStream::connect(path).await {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
                Ok(_) => return Err(io::Error::new(ErrorKind::AddrInUse, "a program listens on it")),
            },
        }
        // In a directory that only the owner can enter, until only the owner may connect. The rename replaces an old socket in one step.
        let mut private = path.as_os_str().to_owned();
        private.push(format!(".{}", std::process::id()));
        let private = PathBuf::from(private);
        let new = private.join("s");
        // A server with the same process id may have been killed here.
        drop((fs::remove_file(&new), fs::remove_dir(&private)));
        fs::DirBuilder::new().mode(0o700).create(&private)?;
        let bound = bind_private(&new).and_then(|(listener, inode)| {
            fs::rename(&new, path)?;
            Ok(UnixSocket { listener, path: path.to_owned(), inode })
        });
        drop((fs::remove_file(&new), fs::remove_dir(&private)));
        bound
    }
}

fn bind_private(path: &Path) -> io::Result<(UnixListener, u64)> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok((listener, fs::symlink_metadata(path)?.ino()))
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test]
    async fn a_unix_socket_is_private_and_replaces_only_one_that_no_program_listens_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let address = ListenAddress::Unix(path.clone());
        let first = Listener::bind(&address).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let taken = Listener::bind(&address).await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        // What a killed server leaves behind.
        let Listener::Unix(mut killed) = first else { panic!() };
        killed.inode = 0;
        drop(killed);
        assert!(path.exists());
        let second = Listener::bind(&address).await.unwrap();
        UnixStream::connect(&path).await.unwrap();
        drop(second);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "the file is removed at the end");
        fs::write(&path, "data").unwrap();
        assert_eq!(Listener::bind(&address).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"data");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_unix_socket_is_private_from_the_moment_when_it_can_be_reached() {
        let directory = tempfile::tempdir().unwrap();
        let (top, done) = (directory.path().to_owned(), Arc::new(AtomicBool::new(false)));
        let stop = Arc::clone(&done);
        let watcher = std::thread::spawn(move || {
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                for entry in fs::read_dir(&top).unwrap().flatten() {
                    // It may be gone by now.
                    let Ok(found) = entry.metadata() else { continue };
                    assert_eq!(found.permissions().mode() & 0o077, 0, "{entry:?}");
                    seen += 1;
                }
            }
            seen
        });
        let address = ListenAddress::Unix(directory.path().join("socket"));
        for _ in 0..2000 {
            drop(Listener::bind(&address).await.unwrap());
        }
        done.store(true, Ordering::Relaxed);
        assert!(watcher.join().unwrap() > 0);
    }
}
