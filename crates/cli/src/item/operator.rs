//! What an operator does without a lease: cancel, redrive, pause, resume, delete.

use super::bulk_action::{ItemsArgs, run_bulk_action};
use super::settle::send;
use crate::connect::Session;
use crate::exit::Failure;
use crate::output;
use crate::value::item_id;
use clap::Args;
use std::future::Future;
use towline_api::client::ItemQuery;
use towline_api::{Action, Client, ClientError, ItemId, Settled, Text, VerbName};

#[derive(Debug, Args)]
pub struct ItemIds {
    /// The items' ids.
    #[arg(value_name = "ITEM", required = true, value_parser = item_id)]
    ids: Vec<ItemId>,
}

#[derive(Debug, Args)]
pub struct CancelArgs {
    #[command(flatten)]
    items: ItemsArgs,
    /// The reason, stored with the item.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    under: UnderLeaseArgs,
}

#[derive(Debug, Args)]
pub struct PauseArgs {
    #[command(flatten)]
    items: ItemsArgs,
    #[command(flatten)]
    under: UnderLeaseArgs,
}

#[derive(Debug, Args)]
pub struct UnderLeaseArgs {
    /// The lease on the item, for the worker that holds it: refused unless it is valid. Needs no admin scope.
    #[arg(long, value_name = "TOKEN", conflicts_with = "queue")]
    lease: Option<String>,
}

impl UnderLeaseArgs {
    /// The call of the lease holder, if a lease is given.
    fn action(self, verb: VerbName, ids: &[ItemId]) -> Result<Option<Action>, Failure> {
        match (self.lease, ids) {
            (None, _) => Ok(None),
            (Some(lease), [id]) => Ok(Some(Action {
                verb: Some(verb.into()),
                id: Some((*id).into()),
                lease: Some(Text::parse(&lease)),
                ..Action::default()
            })),
            (Some(_), _) => Err(Failure::Usage("--lease goes with one item".to_owned())),
        }
    }
}

#[derive(Debug, Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    items: ItemIds,
    /// Also delete items that a worker holds. The worker's next call is refused.
    #[arg(long)]
    force: bool,
}

pub async fn cancel(session: &Session, args: CancelArgs) -> Result<(), Failure> {
    let CancelArgs { items, reason, under } = args;
    if let Some(action) = under.action(VerbName::Cancel, &items.ids)? {
        return send(session, Action { reason, ..action }).await;
    }
    if let Some(queue) = items.queue()?.map(str::to_owned) {
        return run_bulk_action(session, &queue, "cancel", ItemQuery { reason, ..items.all.query() }).await;
    }
    each(session, items.ids, |client, id| client.cancel(id, reason.clone())).await
}

pub async fn redrive(session: &Session, items: ItemsArgs) -> Result<(), Failure> {
    by_id_or_filter(session, items, "redrive", Client::redrive).await
}

pub async fn pause(session: &Session, args: PauseArgs) -> Result<(), Failure> {
    let PauseArgs { items, under } = args;
    if let Some(action) = under.action(VerbName::Pause, &items.ids)? {
        return send(session, action).await;
    }
    by_id_or_filter(session, items, "pause", Client::pause_item).await
}

pub async fn resume(session: &Session, items: ItemsArgs) -> Result<(), Failure> {
    by_id_or_filter(session, items, "resume", Client::resume_item).await
}

async fn by_id_or_filter<'a, F>(
    session: &'a Session,
    items: ItemsArgs,
    action: &str,
    call: impl Fn(&'a Client, ItemId) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<Settled, ClientError>>,
{
    match items.queue()?.map(str::to_owned) {
        Some(queue) => run_bulk_action(session, &queue, action, items.all.query()).await,
        None => each(session, items.ids, call).await,
    }
}

pub async fn delete(session: &Session, args: DeleteArgs) -> Result<(), Failure> {
    let gone = |id: ItemId| Settled { id: Some(id.into()), ..Settled::default() };
    each(session, args.items.ids, async |client, id| {
        client.delete_item(id, args.force).await.map(|()| gone(id))
    })
    .await
}

/// Makes one call per id. A refusal does not stop the rest.
async fn each<'a, F>(
    session: &'a Session,
    ids: Vec<ItemId>,
    call: impl Fn(&'a Client, ItemId) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<Settled, ClientError>>,
{
    let mut refused = false;
    for id in ids {
        match call(&session.client, id).await {
            Ok(Settled { error: Some(error), .. }) => {
                output::say(&error.message);
                refused = true;
            }
            Ok(settled) => session.output.json_only(&settled)?,
            Err(error @ ClientError::Refused(_)) => {
                output::say(&error);
                refused = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if refused { Err(Failure::AlreadyReported) } else { Ok(()) }
}
