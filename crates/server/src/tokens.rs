//! Tokens in a store that no server serves, or that servers share: how the first one comes to be.

use crate::auth::records::{self, Place};
use crate::backend::Backend;
use crate::config::Settings;
use crate::server::ServerError;
use std::sync::Arc;
use towline_api::{NewToken, Secret, TokenCreated, TokenShown};
use towline_broker::{SteadyClock, entropy};
use towline_domain::Refusal;
use towline_store::{Clock, StoreError};

const PAGE: usize = 1000;

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Open(#[from] ServerError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("there is no token {0:?}; see `towline token list`")]
    NotFound(String),
}

/// The tokens of a store, without a server.
#[derive(Debug)]
pub struct Tokens {
    backend: Backend,
    clock: Arc<SteadyClock>,
}

impl Tokens {
    /// An embedded store is made if it is not there, and must not be in use.
    pub async fn open(settings: &Settings) -> Result<Tokens, TokenError> {
        let clock = Arc::new(SteadyClock::new());
        Ok(Tokens { backend: Backend::open(settings, clock.clone()).await?, clock })
    }

    pub async fn create(&self, new: NewToken) -> Result<TokenCreated, TokenError> {
        let store = self.backend.store();
        let made = records::create(Place::Alone(&*store), new, entropy::token_seed().0, self.clock.now());
        let (text, record) = made.await??;
        Ok(TokenCreated { token: Secret(text), shown: record.shown(None) })
    }

    pub async fn list(&self) -> Result<Vec<TokenShown>, TokenError> {
        let store = self.backend.store();
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let (tokens, next) = records::list(Place::Alone(&*store), after, PAGE).await?;
            all.extend(tokens);
            let Some(next) = next else { return Ok(all) };
            after = next;
        }
    }

    pub async fn revoke(&self, id: &str) -> Result<TokenShown, TokenError> {
        let store = self.backend.store();
        let absent = || TokenError::NotFound(id.chars().take(64).collect());
        let number = crate::auth::secret::parse_id(id).ok_or_else(absent)?;
        let record = records::revoke(Place::Alone(&*store), number, self.clock.now()).await?;
        Ok(record.ok_or_else(absent)?.shown(None))
    }

    /// Syncs and closes the store, which may block.
    pub fn close(self) {
        self.backend.close();
    }
}
