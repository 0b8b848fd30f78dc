//! Tokens: who may call, and what for.

use crate::span::Span;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// A token to be made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewToken {
    /// Who has it, for people: what lists and the audit log say.
    pub name: String,
    /// `admin`, `queue:<pattern>:<submit|receive|read|admin>`, `buffer:<read|write|*>`, `compute:admin`.
    pub scopes: Vec<String>,
    /// How long it is good for; without, until it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
    /// Without, there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
}

/// How many requests each server takes of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    pub per_second: u32,
    /// So many at once after a pause; as many as in a second unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

/// What is known of a token; never the token itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenShown {
    pub id: String,
    pub name: String,
    pub scopes: Vec<String>,
    pub created_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Time>,
    /// To within a minute or so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
}

/// A token that was made. It is told once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// `tow_<id>_<secret>`: to be kept like a password.
    pub token: Secret,
    #[serde(flatten)]
    pub shown: TokenShown,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenPage {
    pub tokens: Vec<TokenShown>,
    /// Where to go on; `null`: there are no more.
    pub next: Option<String>,
}

/// As whom a server takes the caller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    /// Whether this server asks for tokens. If not, everybody may do everything.
    pub tokens_required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenShown>,
}

/// A text that is a secret: sent and stored, but not shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret("tow_1_abc".to_owned())), "(hidden)");
        assert_eq!(serde_json::to_string(&Secret("x".to_owned())).unwrap(), "\"x\"");
    }
}
