//! What lies in the queue: a piece of work with everything that was decided about it when it was queued.

use crate::clock::Time;
use crate::options::Retry;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;
use towline_domain::{Trace, digest};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) id: String,
    pub(crate) kind: String,
    /// As its codec wrote it.
    pub(crate) input: String,
    pub(crate) group: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    pub(crate) queued_at: Time,
    /// Not before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) priority: i32,
    /// What is not written is what [`Retry::default`] was when it was queued: to change that is to change what is in queues.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) retry: Retry,
    /// What its system calls itself: a queue may be shared by several.
    #[serde(default = "default_prefix", skip_serializing_if = "is_default_prefix")]
    pub(crate) prefix: Cow<'static, str>,
    /// What whoever queued it was at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<Box<Trace>>,
    /// It has its name from a key that it was queued with.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keyed: bool,
    /// How often it has ended as a dead letter: what is known of an earlier end is not this one's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) round: u32,
}

/// What a system calls itself that was not told otherwise.
pub(crate) const PREFIX: &str = "work:";

fn default_prefix() -> Cow<'static, str> {
    Cow::Borrowed(PREFIX)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_default_prefix(prefix: &str) -> bool {
    prefix == PREFIX
}

/// About what an envelope takes besides its input.
const TEXT_BYTES: usize = 200;

/// Names get no longer than this: they are part of keys, which backends limit.
const ID_BYTES_MAX: usize = 200;

/// The name of something that comes of this piece of work, the same whenever it comes of it. A chain of any length has
/// short names.
pub(crate) fn child_id(parent: &Envelope, what: &str) -> String {
    let id = format!("{}.{}.{what}", parent.id, parent.round);
    if id.len() <= ID_BYTES_MAX {
        return id;
    }
    format!("{:016x}{:016x}", digest::tag("child, first half", &id), digest::tag("child, second half", &id))
}

/// What comes before the id of a piece of work in the name of the group that it is the root of.
const ROOT: &str = "of:";

/// The group of a piece of work that was put into none: itself, and everything that comes of it.
pub(crate) fn group_of(id: &str) -> String {
    [ROOT, id].concat()
}

/// Whose group it is, if it is somebody's.
pub(crate) fn root_of(group: &str) -> Option<&str> {
    group.strip_prefix(ROOT)
}

impl Envelope {
    pub(crate) fn is_root(&self) -> bool {
        root_of(&self.group) == Some(&self.id)
    }

    pub(crate) fn read(body: &str) -> Result<Envelope, String> {
        serde_json::from_str(body).map_err(|error| format!("it is no piece of work: {error}"))
    }

    pub(crate) fn text(&self) -> String {
        let mut text = Vec::with_capacity(TEXT_BYTES + self.input.len());
        // Only strings and numbers: it can always be written, and is text.
        let written = serde_json::to_writer(&mut text, self);
        written.ok().and_then(|()| String::from_utf8(text).ok()).unwrap_or_default()
    }

    /// As it is kept for who looks at it, and for another try, which must not end at once.
    pub(crate) fn given_up(&self) -> Envelope {
        Envelope { round: self.round + 1, deadline: None, start_at: None, ..self.clone() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_written_is_as_it_was_when_everything_was() {
        let short = r#"{"id":"7","kind":"k","input":"1","group":"of:7","queued_at":5}"#;
        let long = r#"{"id":"7","kind":"k","input":"1","group":"of:7","queued_at":5,"priority":0,"retry":{"attempts":3,
            "base":{"secs":1,"nanos":0},"factor":2.0,"max":{"secs":30,"nanos":0},"jitter":0.5},"prefix":"work:","round":0}"#;
        let read = Envelope::read(short).unwrap();
        assert_eq!(Envelope::read(long).unwrap(), read);
        assert_eq!(read.text(), short);
        let said =
            Envelope { retry: Retry::attempts(5), priority: -1, round: 2, prefix: "mail:".into(), ..read };
        assert_eq!(Envelope::read(&said.text()).unwrap(), said);
    }
}
