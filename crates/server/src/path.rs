//! The names in a path, parsed once.

use crate::refuse::Refused;
use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use std::str::FromStr;
use towline_api::Code;
use towline_domain::{ItemId, QueueName, ScheduleName};

pub(crate) struct QueuePath(pub(crate) QueueName);
pub(crate) struct SchedulePath(pub(crate) ScheduleName);
/// The rule for names of queues holds for topics, too.
pub(crate) struct TopicPath(pub(crate) QueueName);
/// Whether it can be one is for the broker to say.
pub(crate) struct KeyPath(pub(crate) String);
/// Any text that an item could have as its group.
pub(crate) struct GroupPath(pub(crate) String);
pub(crate) struct ItemPath(pub(crate) ItemId);
/// Whether the id can be one is for the storage to say.
pub(crate) struct BufferPath(pub(crate) String);
/// Whether there is one is for the store to say.
pub(crate) struct TokenPath(pub(crate) String);
/// The number in `/v1/buffers/{id}/chunks/{n}`.
pub(crate) struct ChunkPath(pub(crate) u32);

async fn find<S: Send + Sync, T: FromStr>(
    parts: &mut Parts,
    state: &S,
    name: &str,
    refuse: impl FnOnce(&str, T::Err) -> String,
) -> Result<T, Refused> {
    let malformed = |why: String| Refused::new(Code::Invalid, why);
    let params = RawPathParams::from_request_parts(parts, state).await;
    let params = params.map_err(|error| malformed(format!("the path: {error}")))?;
    let text = params.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value);
    text.parse().map_err(|error| malformed(refuse(text, error)))
}

impl<S: Send + Sync> FromRequestParts<S> for QueuePath {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<QueuePath, Refused> {
        find(parts, state, "queue", |_, error: towline_domain::name::NameError| error.to_string())
            .await
            .map(QueuePath)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for SchedulePath {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<SchedulePath, Refused> {
        find(parts, state, "schedule", |_, error: towline_domain::name::NameError| error.to_string())
            .await
            .map(SchedulePath)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for TopicPath {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<TopicPath, Refused> {
        find(parts, state, "topic", |_, error: towline_domain::name::NameError| error.to_string())
            .await
            .map(TopicPath)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for KeyPath {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<KeyPath, Refused> {
        let key = find(parts, state, "key", |_, never: std::convert::Infallible| match never {}).await?;
        Ok(KeyPath(key))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for GroupPath {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<GroupPath, Refused> {
        let name: String =
            find(parts, state, "group", |_, never: std::convert::Infallible| match never {}).await?;
        let max = towline_domain::limits::LABEL_BYTES_MAX;
        if name.is_empty() || name.len() > max {
            let detail = format!("group: {} bytes; use 1 to {max}", name.len());
            return Err(Refused::new(Code::Invalid, detail));
        }
        Ok(GroupPath(name))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ItemPath {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<ItemPath, Refused> {
        let refuse = |text: &str, _| {
            let shown: String = text.chars().take(64).collect();
            format!("id: {shown:?} is not an item's id; ids are UUIDs, as submit gives them")
        };
        find(parts, state, "id", refuse).await.map(ItemPath)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for TokenPath {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<TokenPath, Refused> {
        let id = find(parts, state, "id", |_, never: std::convert::Infallible| match never {}).await?;
        Ok(TokenPath(id))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for BufferPath {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<BufferPath, Refused> {
        let id: String =
            find(parts, state, "id", |_, never: std::convert::Infallible| match never {}).await?;
        if id.len() > towline_buffers::ID_LEN_MAX {
            let shown: String = id.chars().take(64).collect();
            let detail = format!("id: {shown:?}... is longer than the id of any buffer");
            return Err(Refused::new(Code::Invalid, detail));
        }
        Ok(BufferPath(id))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ChunkPath {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<ChunkPath, Refused> {
        let refuse = |text: &str, _| {
            let shown: String = text.chars().take(64).collect();
            format!("n: {shown:?} is not the number of a chunk; they count from 0")
        };
        find(parts, state, "n", refuse).await.map(ChunkPath)
    }
}

/// What can be done to all items that match: the last word of `/v1/queues/{queue}/items/{act}`.
const ACTS: [&str; 6] = ["cancel", "redrive", "pause", "resume", "set-priority", "move"];

pub(crate) struct ActPath(pub(crate) &'static str);

impl<S: Send + Sync> FromRequestParts<S> for ActPath {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<ActPath, Refused> {
        let params = RawPathParams::from_request_parts(parts, state).await.ok();
        let word = params.iter().flatten().find(|(key, _)| *key == "act").map_or("", |(_, value)| value);
        ACTS.into_iter().find(|act| *act == word).map(ActPath).ok_or_else(|| {
            let shown: String = word.chars().take(64).collect();
            let names = ACTS.join(", ");
            let detail = format!("nothing can be done to items by {shown:?}; there are {names}, and DELETE");
            Refused::new(Code::RouteNotFound, detail)
        })
    }
}

/// The last word of `/v1/items/{id}/{verb}`.
pub(crate) struct VerbPath(pub(crate) towline_api::VerbName);

impl<S: Send + Sync> FromRequestParts<S> for VerbPath {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<VerbPath, Refused> {
        let params = RawPathParams::from_request_parts(parts, state).await.ok();
        let word = params.iter().flatten().find(|(key, _)| *key == "verb").map_or("", |(_, value)| value);
        let verbs = towline_api::VerbName::ALL;
        verbs.into_iter().find(|verb| verb.name() == word).map(VerbPath).ok_or_else(|| {
            let shown: String = word.chars().take(64).collect();
            let names = verbs.map(towline_api::VerbName::name).join(", ");
            Refused::new(Code::RouteNotFound, format!("nothing can be done by {shown:?}; there are {names}, cancel, redrive, pause, resume, wait"))
        })
    }
}
