//! A backup as a tar archive: a running server sends it, `towline backup` unpacks it.
//!
//! The first entry is the header and the last one the totals, so that a cut archive is detected. If the server cannot continue, the
//! last entry says why.

use super::copy::copy_to;
use super::directory::Directory;
use super::{
    BackupError, BackupHeader, BackupSummary, BackupTotals, Hashing, LIST_FILE, Sink, Tally, VERSION,
    cut_short,
};
use bytes::Bytes;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use tar::{Archive, Builder, Header};
use tokio::sync::mpsc;
use towline_buffers::Location;
use towline_embedded::Embedded;

/// The last entry: the totals.
const END: &str = "towline.backup.end";
/// The last entry of an archive that the server could not complete: the reason.
const FAILED: &str = "towline.backup.failed";
/// The largest header, totals or reason.
const TEXT_BYTES_MAX: u64 = 64 << 10;
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that wait to be sent.
const PIECES: usize = 2;

/// What is backed up.
pub(crate) struct Place {
    pub(crate) store: Arc<Embedded>,
    pub(crate) buffers: Location,
}

/// Starts a backup. `guard` is held until it ends: while it exists, no object may be deleted.
pub(crate) fn send(place: Place, guard: impl Send + 'static) -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut builder = Builder::new(Pieces { sender, piece: Vec::with_capacity(PIECE_BYTES) });
        if let Err(error) = archive(&place, &mut builder) {
            tracing::warn!("a backup stopped: {error}");
            // Fails if the client has gone.
            let _ = entry(&mut builder, FAILED, error.to_string().as_bytes());
        }
        if let Ok(mut pieces) = builder.into_inner() {
            let _ = pieces.flush();
        }
        drop(guard);
    });
    receiver
}

fn archive(place: &Place, builder: &mut Builder<Pieces>) -> Result<(), BackupError> {
    let header = BackupHeader::of(&place.buffers);
    entry(builder, LIST_FILE, &serde_json::to_vec(&header).unwrap_or_default()).map_err(unsent)?;
    let snapshot = place.store.snapshot()?;
    let mut archive = ArchiveWriter { builder, tally: Tally::default() };
    copy_to(&mut archive, &snapshot, &place.buffers)?;
    let totals = archive.tally.totals();
    entry(builder, END, &serde_json::to_vec(&totals).unwrap_or_default()).map_err(unsent)
}

fn unsent(error: io::Error) -> BackupError {
    BackupError::Archive(error.to_string())
}

fn entry(builder: &mut Builder<Pieces>, path: &str, bytes: &[u8]) -> io::Result<()> {
    append(builder, path, bytes.len() as u64, bytes)
}

fn append(builder: &mut Builder<Pieces>, path: &str, bytes: u64, content: impl Read) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o600);
    builder.append_data(&mut header, path, content)
}

struct ArchiveWriter<'a> {
    builder: &'a mut Builder<Pieces>,
    tally: Tally,
}

impl Sink for ArchiveWriter<'_> {
    fn file(&mut self, path: &str, bytes: u64, content: &mut dyn Read) -> Result<(), BackupError> {
        let mut content = Hashing::new(content.take(bytes));
        append(self.builder, path, bytes, &mut content)
            .map_err(|error| BackupError::file("send", Path::new(path), error))?;
        if content.bytes != bytes {
            return Err(cut_short(path, content.bytes, bytes));
        }
        self.tally.add(path, bytes, &content.hasher.finalize());
        Ok(())
    }
}

/// Sends what is written to it in pieces, and blocks while the client reads too slowly.
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let sent = self.sender.blocking_send(Ok(piece.into()));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client has disconnected"))
    }
}

/// Unpacks the archive of a server into a directory that is empty or does not exist. Blocks.
pub fn unpack(
    archive: impl Read,
    target: &Path,
    copied: &mut dyn FnMut(u64),
) -> Result<BackupSummary, BackupError> {
    let broken = |error: io::Error| BackupError::Archive(error.to_string());
    let mut archive = Archive::new(archive);
    let mut entries = archive.entries().map_err(broken)?;
    let mut next = || {
        let entry =
            entries.next().unwrap_or_else(|| Err(io::Error::other("it is cut short"))).map_err(broken)?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        Ok::<_, BackupError>((path, entry))
    };
    let header: BackupHeader = match next()? {
        (path, mut entry) if path == LIST_FILE => parse(&mut entry)?,
        _ => return Err(BackupError::Archive("it has no header".to_owned())),
    };
    if header.version > VERSION {
        let problem = format!("its format {} is newer than {VERSION}; use a newer towline", header.version);
        return Err(BackupError::Archive(problem));
    }
    let mut directory = Directory::begin(target, Some(header.clone()), copied)?;
    loop {
        let (path, mut entry) = next()?;
        match path.as_str() {
            END => {
                let sent: BackupTotals = parse(&mut entry)?;
                if sent != directory.totals() {
                    return Err(BackupError::Archive(
                        "what arrived differs from what the server read".to_owned(),
                    ));
                }
                return Ok(BackupSummary { header, totals: directory.finish()? });
            }
            FAILED => return Err(BackupError::Archive(text(&mut entry).map_err(broken)?)),
            _ => directory.file(&path, entry.size(), &mut entry)?,
        }
    }
}

fn text(entry: &mut impl Read) -> io::Result<String> {
    let mut text = Vec::new();
    entry.take(TEXT_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn parse<T: serde::de::DeserializeOwned>(entry: &mut impl Read) -> Result<T, BackupError> {
    let read = text(entry).and_then(|text| serde_json::from_str(&text).map_err(io::Error::from));
    read.map_err(|error| BackupError::Archive(error.to_string()))
}
