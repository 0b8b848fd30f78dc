//! Wire types of tokens.

use crate::span::Span;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// A token to create.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewToken {
    /// A name for people. Lists and the audit log show it.
    pub name: String,
    /// What the token allows: `admin`, `queue:<pattern>:<submit|receive|read|admin>`,
    /// `group:<pattern>:<read|admin>`, `topic:<pattern>:<publish|subscribe|*>`, `kv:<prefix>:<read|write|*>`,
    /// `buffer:<read|write|delete|*>`, `metrics:read`, `compute:admin`. In a pattern, `*` stands for any text.
    pub scopes: Vec<String>,
    /// How long the token is valid. Default: until it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
    /// Limits the requests with this token. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
}

/// How many requests each server accepts with one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    pub per_second: u32,
    /// How many requests may come at once. Default: `per_second`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

/// A token's properties, without the secret.
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
    /// Accurate to about a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
}

/// A new token. Only this answer contains the secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// The token, `tow_<id>_<secret>`. Keep it like a password.
    pub token: Secret,
    #[serde(flatten)]
    pub shown: TokenShown,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenPage {
    pub tokens: Vec<TokenShown>,
    /// Pass this as `cursor` to get the next page. `null`: this is the last page.
    pub next: Option<String>,
}

/// The identity and scopes of the caller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    /// Whether this server requires tokens. If not, every caller may do everything.
    pub tokens_required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenShown>,
}

/// A secret text. It is sent and stored, but `Debug` hides it.
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
