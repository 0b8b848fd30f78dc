//! Managing the tokens of a store without a server. This is how an operator creates the first token.

use crate::auth::audit::AuditLog;
use crate::auth::token_store::TokenStore;
use crate::backend::Backend;
use crate::config::Settings;
use crate::server::{ServerError, open_audit_log};
use std::sync::Arc;
use towline_api::{NewToken, Secret, TokenCreated, TokenShown};
use towline_broker::{SteadyClock, entropy};
use towline_store::{Clock, OperationError, StoreError};

const PAGE: usize = 1000;

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Open(#[from] ServerError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error("there is no token {0:?}; run `towline token list`")]
    NotFound(String),
}

/// The tokens of a store.
#[derive(Debug)]
pub struct Tokens {
    backend: Backend,
    clock: Arc<SteadyClock>,
    audit: AuditLog,
}

impl Tokens {
    /// Opens the store. An embedded store is created if it does not exist, and no server may use it.
    pub async fn open(settings: &Settings) -> Result<Tokens, TokenError> {
        let clock = Arc::new(SteadyClock::new());
        let audit = open_audit_log(settings)?;
        Ok(Tokens { backend: Backend::open(settings, clock.clone()).await?, clock, audit })
    }

    pub async fn create(&self, new: NewToken) -> Result<TokenCreated, TokenError> {
        let store = self.backend.store();
        let seed = entropy::token_seed().0;
        let (text, record) = TokenStore::Store(&*store).create(new, seed, self.clock.now()).await?;
        self.audit.write_by_operator(self.clock.now().into(), "create_token", &record.audit_subject());
        Ok(TokenCreated { token: Secret(text), shown: record.describe(None) })
    }

    pub async fn list(&self) -> Result<Vec<TokenShown>, TokenError> {
        let store = self.backend.store();
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let (tokens, next) = TokenStore::Store(&*store).list(after, PAGE).await?;
            all.extend(tokens);
            let Some(next) = next else { return Ok(all) };
            after = next;
        }
    }

    pub async fn revoke(&self, id: &str) -> Result<TokenShown, TokenError> {
        let store = self.backend.store();
        let not_found = || TokenError::NotFound(id.chars().take(64).collect());
        let number = crate::auth::secret::parse_id(id).ok_or_else(not_found)?;
        let record = TokenStore::Store(&*store).revoke(number, self.clock.now()).await?;
        let record = record.ok_or_else(not_found)?;
        self.audit.write_by_operator(self.clock.now().into(), "revoke_token", &record.audit_subject());
        Ok(record.describe(None))
    }

    /// Syncs and closes the store. This may block.
    pub fn close(self) {
        self.backend.close();
    }
}
