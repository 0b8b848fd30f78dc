//! The requests in progress with one token. Their number is limited, so that the clients of one token cannot take all connections
//! and the memory of all responses.

use super::token_cache::ActiveToken;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A request in progress with a token, until its response was sent or its WebSocket has ended.
#[derive(Debug)]
pub(crate) struct TokenRequest(Arc<ActiveToken>);

impl TokenRequest {
    /// `None` if the token has `max` requests in progress.
    pub(super) fn begin(token: &Arc<ActiveToken>, max: usize) -> Option<Arc<TokenRequest>> {
        let before = token.requests.fetch_add(1, Ordering::Relaxed);
        let request = Arc::new(TokenRequest(Arc::clone(token)));
        (before < max).then_some(request)
    }
}

impl Deref for TokenRequest {
    type Target = ActiveToken;

    fn deref(&self) -> &ActiveToken {
        &self.0
    }
}

impl Drop for TokenRequest {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}
