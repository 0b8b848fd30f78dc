//! The parameters of a path, parsed once.

use super::excerpt;
use crate::response::ProblemResponse;
use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use towline_api::{Code, VerbName};
use towline_domain::name::NameError;
use towline_domain::{ItemId, QueueName, ScheduleName, limits};

/// Declares an extractor for one parameter: its type, its name in the path, and its parser.
macro_rules! path_parameters {
    ($($(#[$doc:meta])* $extractor:ident($type:ty), $name:literal, $parse:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $extractor(pub(crate) $type);

        impl<S: Send + Sync> FromRequestParts<S> for $extractor {
            type Rejection = ProblemResponse;
            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
                let params = RawPathParams::from_request_parts(parts, state).await;
                let params = params.map_err(|error| invalid(format!("the path: {error}")))?;
                let text = params.iter().find(|(key, _)| *key == $name).map_or("", |(_, value)| value);
                let parse: fn(&str) -> Result<$type, ProblemResponse> = $parse;
                parse(text).map($extractor)
            }
        }
    )*};
}

path_parameters! {
    QueuePath(QueueName), "queue", name;
    SchedulePath(ScheduleName), "schedule", name;
    /// Topics follow the rules for queue names.
    TopicPath(QueueName), "topic", |text| text.parse().map_err(|error: NameError| invalid(error.about("topic").to_string()));
    /// Any text: the broker checks the key of a record.
    KeyPath(String), "key", |text| Ok(text.to_owned());
    GroupPath(String), "group", group;
    ItemPath(ItemId), "id", |text| text.parse().map_err(|_| {
        invalid(format!("id: {:?} is not an item id; item ids are UUIDs, as submit returns them", excerpt(text)))
    });
    /// Any text that is not too long: the buffer storage checks the id.
    BufferPath(String), "id", buffer_id;
    /// Any text: the store knows which tokens exist.
    TokenPath(String), "id", |text| Ok(text.to_owned());
    /// The number in `/v1/buffers/{id}/chunks/{n}`.
    ChunkPath(u32), "n", |text| text.parse().map_err(|_| {
        invalid(format!("n: {:?} is not a chunk number; chunks count from 0", excerpt(text)))
    });
    /// The last part of `/v1/queues/{queue}/items/{action}`.
    BulkActionPath(&'static str), "action", |text| {
        BULK_ACTIONS.into_iter().find(|action| *action == text).ok_or_else(|| {
            let names = BULK_ACTIONS.join(", ");
            not_found(format!("unknown bulk action {:?}; use one of {names}, or DELETE", excerpt(text)))
        })
    };
    /// The last part of `/v1/items/{id}/{verb}`.
    VerbPath(VerbName), "verb", |text| {
        VerbName::ALL.into_iter().find(|verb| verb.name() == text).ok_or_else(|| {
            let names = VerbName::ALL.map(VerbName::name).join(", ");
            not_found(format!("unknown verb {:?}; use one of {names}, cancel, redrive, pause, resume, wait", excerpt(text)))
        })
    };
}

pub(crate) const BULK_ACTIONS: [&str; 6] = ["cancel", "redrive", "pause", "resume", "set-priority", "move"];

fn invalid(detail: String) -> ProblemResponse {
    ProblemResponse::new(Code::Invalid, detail)
}

fn not_found(detail: String) -> ProblemResponse {
    ProblemResponse::new(Code::RouteNotFound, detail)
}

fn name<T: std::str::FromStr<Err = NameError>>(text: &str) -> Result<T, ProblemResponse> {
    text.parse().map_err(|error: NameError| invalid(error.to_string()))
}

fn group(text: &str) -> Result<String, ProblemResponse> {
    let max = limits::LABEL_BYTES_MAX;
    if text.is_empty() || text.len() > max {
        return Err(invalid(format!("group: {} bytes; use 1 to {max}", text.len())));
    }
    Ok(text.to_owned())
}

fn buffer_id(text: &str) -> Result<String, ProblemResponse> {
    if text.len() > towline_buffers::ID_LEN_MAX {
        return Err(invalid(format!("id: {:?}... is too long for a buffer id", excerpt(text))));
    }
    Ok(text.to_owned())
}
