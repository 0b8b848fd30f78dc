//! The payload of an item: a piece of work with everything that was decided when it was submitted.

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
    /// The input as the codec wrote it.
    pub(crate) input: String,
    pub(crate) group: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    pub(crate) submitted_at: Time,
    /// The work does not start before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) priority: i16,
    /// Not written if it is [`Retry::default`]. A change of that default therefore changes items that are in queues.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) retry: Retry,
    /// The prefix of the system that submitted it: several systems may share a queue.
    #[serde(default = "default_prefix", skip_serializing_if = "is_default_prefix")]
    pub(crate) prefix: Cow<'static, str>,
    /// The trace of the submitter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<Box<Trace>>,
    /// The id is made of an idempotency key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keyed: bool,
    /// How often the work has failed and was redriven. A result record belongs to one round.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) round: u32,
}

/// The default prefix of a system.
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

/// The usual size of an envelope without its input.
const TEXT_BYTES: usize = 200;

/// Ids are part of store keys, which backends limit.
const ID_BYTES_MAX: usize = 200;

/// The id of work that comes of `parent`. It is the same each time the parent runs. A long id is replaced by its digest,
/// so a chain of work may have any length.
pub(crate) fn child_id(parent: &Envelope, what: &str) -> String {
    let id = format!("{}.{}.{what}", parent.id, parent.round);
    if id.len() <= ID_BYTES_MAX {
        return id;
    }
    format!("{:016x}{:016x}", digest::tag("child, first half", &id), digest::tag("child, second half", &id))
}

/// Begins the name of a group that has a root; the id of the root follows.
const ROOT: &str = "of:";

/// The group of work that was submitted without one: the work itself and everything that comes of it.
pub(crate) fn group_of(id: &str) -> String {
    [ROOT, id].concat()
}

/// The id of the group's root, if the group has one.
pub(crate) fn root_of(group: &str) -> Option<&str> {
    group.strip_prefix(ROOT)
}

impl Envelope {
    pub(crate) fn is_root(&self) -> bool {
        root_of(&self.group) == Some(&self.id)
    }

    pub(crate) fn read(payload: &str) -> Result<Envelope, String> {
        serde_json::from_str(payload).map_err(|error| format!("the payload is not a piece of work: {error}"))
    }

    pub(crate) fn text(&self) -> String {
        let mut text = Vec::with_capacity(TEXT_BYTES + self.input.len());
        // An envelope of strings and numbers can always be written.
        let written = serde_json::to_writer(&mut text, self);
        written.ok().and_then(|()| String::from_utf8(text).ok()).unwrap_or_default()
    }

    /// The envelope of the dead letter. It has no deadline: redriven work must not fail at once again.
    pub(crate) fn dead_letter(&self) -> Envelope {
        Envelope { round: self.round + 1, deadline: None, start_at: None, ..self.clone() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_without_the_optional_fields_equals_one_with_their_defaults() {
        let short = r#"{"id":"7","kind":"k","input":"1","group":"of:7","submitted_at":5}"#;
        let long = r#"{"id":"7","kind":"k","input":"1","group":"of:7","submitted_at":5,"priority":0,"retry":{"attempts":3,
            "base":{"secs":1,"nanos":0},"factor":2.0,"max":{"secs":30,"nanos":0},"jitter":0.5},"prefix":"work:","round":0}"#;
        let read = Envelope::read(short).unwrap();
        assert_eq!(Envelope::read(long).unwrap(), read);
        assert_eq!(read.text(), short);
        let changed =
            Envelope { retry: Retry::attempts(5), priority: -1, round: 2, prefix: "mail:".into(), ..read };
        assert_eq!(Envelope::read(&changed.text()).unwrap(), changed);
    }

    #[test]
    fn a_stored_envelope_stays_readable() {
        let golden = r#"{"id":"7","kind":"k","input":"1","group":"g","parent":"6","submitted_at":5,"start_at":8,"deadline":9,"timeout":{"secs":10,"nanos":0},"priority":-1,"retry":{"attempts":5,"base":{"secs":1,"nanos":0},"factor":2.0,"max":{"secs":30,"nanos":0},"jitter":0.5},"prefix":"mail:","trace":{"parent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","state":"a=b"},"keyed":true,"round":2}"#;
        let envelope = Envelope {
            id: "7".to_owned(),
            kind: "k".to_owned(),
            input: "1".to_owned(),
            group: "g".to_owned(),
            parent: Some("6".to_owned()),
            submitted_at: Time(5),
            start_at: Some(Time(8)),
            deadline: Some(Time(9)),
            timeout: Some(Duration::from_secs(10)),
            priority: -1,
            retry: Retry::attempts(5),
            prefix: "mail:".into(),
            trace: Some(Box::new(Trace {
                parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap(),
                state: Some("a=b".parse().unwrap()),
            })),
            keyed: true,
            round: 2,
        };
        assert_eq!(envelope.text(), golden);
        assert_eq!(Envelope::read(golden).unwrap(), envelope);
        let later = golden.replacen('{', r#"{"added_later":[1],"#, 1);
        assert_eq!(Envelope::read(&later).unwrap(), envelope);
    }
}
