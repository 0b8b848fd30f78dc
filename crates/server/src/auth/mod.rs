//! Who may call: tokens, what they allow, and the record of what administrators did.

mod admit;
pub(crate) mod audit;
mod needs;
mod rate;
pub(crate) mod records;
mod registry;
mod scope;
pub(crate) mod secret;
mod until;

pub(crate) use admit::admit;
pub(crate) use needs::{SCHEME, Table};
pub(crate) use scope::Right;

use crate::app::App;
use crate::refuse::Refused;
use audit::Audit;
use axum::extract::FromRequestParts;
use http::request::Parts;
use rate::Failures;
use registry::{Holder, Registry};
use secret::TokenId;
use std::sync::Arc;
use towline_api::Code;
use towline_domain::{ItemId, QueueName};

/// What the server knows of callers.
#[derive(Debug)]
pub(crate) struct Auth {
    /// Whether a token is asked for.
    pub(crate) required: bool,
    registry: Registry,
    failures: Failures,
    audit: Arc<Audit>,
}

/// Which words go with a refusal, for clients that know RFC 6750.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    BadToken,
    Scope,
}

impl Auth {
    pub(crate) fn new(required: bool, audit: Arc<Audit>) -> Auth {
        Auth { required, registry: Registry::default(), failures: Failures::new(), audit }
    }

    /// Ends what goes on under a token that was revoked here.
    pub(crate) fn end(&self, id: TokenId) {
        self.registry.end(id);
    }

    /// Asks about tokens in use, again and again.
    pub(crate) async fn keep_checking(app: App) {
        loop {
            tokio::time::sleep(registry::CHECK_EVERY).await;
            if let Err(error) = app.auth.registry.check(&app.broker).await {
                tracing::warn!("cannot ask about tokens: {error}");
            }
        }
    }
}

/// Who calls. Without tokens, somebody who may do everything.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Option<Arc<Holder>>);

impl Caller {
    fn token(holder: Arc<Holder>) -> Caller {
        Caller(Some(holder))
    }

    #[cfg(test)]
    pub(crate) fn anybody() -> Caller {
        Caller(None)
    }

    pub(crate) fn record(&self) -> Option<&records::Record> {
        self.0.as_ref().map(|holder| &holder.record)
    }

    pub(crate) fn may(&self, queue: &QueueName, right: Right) -> bool {
        self.0.as_ref().is_none_or(|holder| holder.record.access.queue(queue, right))
    }

    pub(crate) fn may_all(&self, right: Right) -> bool {
        self.0.as_ref().is_none_or(|holder| holder.record.access.every_queue(right))
    }

    /// Ready when the caller's token is good no longer.
    pub(crate) async fn ended(&self) {
        match &self.0 {
            Some(holder) => holder.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Refuses a queue that the caller may not read.
    pub(crate) fn check_read(&self, queue: &QueueName) -> Result<(), Refused> {
        match &self.0 {
            Some(holder) if !holder.record.access.queue(queue, Right::Read) => {
                Err(admit::forbidden(holder, &format!("queue:{queue}:{}", Right::Read)))
            }
            _ => Ok(()),
        }
    }

    /// Refuses to let items go to a queue that the caller may not submit to.
    pub(crate) fn check_target(&self, queue: Option<&QueueName>) -> Result<(), Refused> {
        match (&self.0, queue) {
            (Some(holder), Some(queue)) if !holder.record.access.queue(queue, Right::Submit) => {
                Err(admit::forbidden(holder, &format!("queue:{queue}:{}", Right::Submit)))
            }
            _ => Ok(()),
        }
    }

    /// Those of the items that the caller has not this right to: to it, they are not there.
    pub(crate) async fn foreign(
        &self,
        app: &App,
        ids: &[ItemId],
        right: Right,
    ) -> Result<Vec<ItemId>, Refused> {
        match &self.0 {
            Some(holder) if !holder.record.access.every_queue(right) => {
                admit::check_items(app, holder, ids, right).await
            }
            _ => Ok(Vec::new()),
        }
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Caller, Refused> {
        match parts.extensions.get::<Caller>() {
            Some(caller) => Ok(caller.clone()),
            None if !app.auth.required => Ok(Caller(None)),
            // Nobody gets here without having been asked.
            None => Err(Refused::new(Code::Internal, "nobody knows who calls")),
        }
    }
}
