//! Checking and salvaging an embedded store that no server uses, and checking its buffers.

use crate::backend::buffers::open_to_read;
use crate::config::Settings;
use crate::server::ServerError;
use towline_buffers::Location;
pub use towline_buffers::{ObjectFinding, ObjectReport};
pub use towline_embedded::{
    Affected, BackupError, Finding, OpenError, SalvageReport, VerifyReport, salvage_with_progress,
    verify_with_progress,
};

/// The objects in the place for buffers.
#[derive(Debug)]
pub enum BuffersCheck {
    Checked {
        place: String,
        report: ObjectReport,
    },
    /// There is no directory. A store whose server never started has none.
    Nothing,
    /// The place is in S3, and `with_s3` was false.
    NotChecked {
        place: String,
    },
}

/// Reads and checks every object in the configured place for buffers. Calls `read` with the number of bytes after each object.
pub async fn check_buffers(
    settings: &Settings,
    with_s3: bool,
    read: &mut (dyn FnMut(u64) + Send),
) -> Result<BuffersCheck, ServerError> {
    let location = settings.buffers.location(&settings.data);
    let place = location.to_string();
    match &location {
        Location::Directory(directory) if !directory.is_dir() => return Ok(BuffersCheck::Nothing),
        Location::S3 { .. } if !with_s3 => return Ok(BuffersCheck::NotChecked { place }),
        _ => {}
    }
    let verified = open_to_read(settings)?.verify(read).await;
    let report = verified.map_err(|error| ServerError::Buffers { location: place.clone(), error })?;
    Ok(BuffersCheck::Checked { place, report })
}
