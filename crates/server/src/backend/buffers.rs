//! The place for buffers: opens it, tests it, and claims it for the store.

use crate::auth::audit::AuditLog;
use crate::config::{Settings, StoreChoice};
use crate::server::ServerError;
use towline_broker::{Ownership, OwnershipError, TakeOver, claim_buffers, entropy};
use towline_buffers::{BufferError, Buffers, Location};
use towline_domain::Timestamp;
use towline_store::StoreIdentity;

/// Opens the place to read what is there. Creates nothing.
pub(crate) fn open_to_read(settings: &Settings) -> Result<Buffers, ServerError> {
    let location = settings.buffers.location(&settings.data);
    if let Location::Directory(directory) = &location
        && !directory.is_dir()
    {
        return Err(ServerError::NoBuffers { location: location.to_string() });
    }
    open(settings, &location)
}

/// Opens the place and writes a test object, so that a missing bucket is an error at start and not for the first writer. Then
/// makes the store its owner, or refuses the place of another store.
pub(crate) async fn open_and_claim(
    settings: &Settings,
    store: &StoreIdentity,
    audit: &AuditLog,
    now: Timestamp,
) -> Result<Buffers, ServerError> {
    let location = settings.buffers.location(&settings.data);
    let buffers = open(settings, &location)?;
    let refused = |error| ServerError::Buffers { location: location.to_string(), error };
    match buffers.check(entropy::bytes()).await {
        // Clients can still read, and delete what they do not need.
        Err(BufferError::Full { .. }) => {
            tracing::warn!(%location, "the place for buffers is full: it could not be tested, and writes are refused");
        }
        checked => checked.map_err(refused)?,
    }
    // In the data directory, the place was copied with the store: by a restore, or by an operator who moved a saved store.
    let moves_along = settings.store == StoreChoice::Embedded && settings.buffers.location.is_none();
    let take_over = match settings.adopt_buffers {
        true => TakeOver::FromAny,
        false if moves_along => TakeOver::FromOriginal,
        false => TakeOver::Never,
    };
    match claim_buffers(&buffers, store, take_over, now).await {
        Ok(Ownership::Adopted { from }) => {
            tracing::warn!(%location, from, "took the place for buffers over from another store");
            let subject = format!("{location}, from the store {from}");
            audit.write_by_operator(now.into(), "adopt_buffers", &subject);
        }
        Ok(Ownership::Claimed) => {
            tracing::info!(%location, "the place for buffers belongs to this store now")
        }
        Ok(Ownership::Undecided) => tracing::warn!(
            %location,
            "it is not known yet whether the place for buffers belongs to this store: nothing is collected meanwhile"
        ),
        Ok(Ownership::Owned) => {}
        Err(OwnershipError::Storage(error)) => return Err(refused(error)),
        Err(error) => {
            return Err(ServerError::BuffersOwner { location: location.to_string(), error });
        }
    }
    Ok(buffers)
}

fn open(settings: &Settings, location: &Location) -> Result<Buffers, ServerError> {
    let open = || Buffers::open(location, settings.buffers.options());
    tokio::task::block_in_place(open)
        .map_err(|error| ServerError::Buffers { location: location.to_string(), error })
}
