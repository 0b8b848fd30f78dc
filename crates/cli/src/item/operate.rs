//! What anybody may do with items, without holding them: cancel, redrive, pause, resume, delete.

use crate::connect::Session;
use crate::exit::Failure;
use crate::output;
use crate::value::item_id;
use clap::Args;
use std::future::Future;
use towline_api::{Client, ClientError, ItemId, Settled};

#[derive(Debug, Args)]
pub struct Ids {
    /// The items' ids.
    #[arg(value_name = "ITEM", required = true, value_parser = item_id)]
    ids: Vec<ItemId>,
}

#[derive(Debug, Args)]
pub struct CancelArgs {
    #[command(flatten)]
    items: Ids,
    /// Why.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    items: Ids,
    /// Also if somebody works on it; the holder's next call is refused.
    #[arg(long)]
    force: bool,
}

pub async fn cancel(session: &Session, args: CancelArgs) -> Result<(), Failure> {
    each(session, args.items, |client, id| client.cancel(id, args.reason.clone())).await
}

pub async fn redrive(session: &Session, args: Ids) -> Result<(), Failure> {
    each(session, args, Client::redrive).await
}

pub async fn pause(session: &Session, args: Ids) -> Result<(), Failure> {
    each(session, args, Client::pause_item).await
}

pub async fn resume(session: &Session, args: Ids) -> Result<(), Failure> {
    each(session, args, Client::resume_item).await
}

pub async fn delete(session: &Session, args: DeleteArgs) -> Result<(), Failure> {
    let gone = |id: ItemId| Settled { id: Some(id.into()), ..Settled::default() };
    each(session, args.items, async |client, id| client.delete_item(id, args.force).await.map(|()| gone(id)))
        .await
}

/// One that is refused does not stop the others.
async fn each<'a, F>(
    session: &'a Session,
    items: Ids,
    call: impl Fn(&'a Client, ItemId) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<Settled, ClientError>>,
{
    let mut refused = false;
    for id in items.ids {
        match call(&session.client, id).await {
            Ok(Settled { error: Some(error), .. }) => {
                output::say(&error.message);
                refused = true;
            }
            Ok(settled) => session.output.silent(&settled)?,
            Err(error @ ClientError::Refused(_)) => {
                output::say(&error);
                refused = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if refused { Err(Failure::Told) } else { Ok(()) }
}
