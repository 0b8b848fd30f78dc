//! Digests of content. They tell whether two submits or two settles are the same.

use crate::command::{HandOff, Submission, When};
use crate::dependency::{Dependency, DependsOn};
use crate::fields::{Field, FieldEdits, Fields};
use crate::id::LeaseToken;
use crate::item::{Body, Outcome};
use crate::json::Json;
use crate::reference::content_of;
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;

/// A digest of what an idempotency key covers: inputs, parameters and payload fields.
pub type ContentDigest = [u8; 16];

/// Hashes every part with its length, so that different contents never hash the same bytes.
struct Hasher(blake3::Hasher);

impl Hasher {
    fn new(domain: &str) -> Hasher {
        let mut hasher = Hasher(blake3::Hasher::new());
        hasher.part(domain.as_bytes());
        hasher
    }

    fn part(&mut self, bytes: &[u8]) -> &mut Hasher {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    fn option(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.part(b"-"),
            Some(bytes) => self.part(b"+").part(bytes),
        };
    }

    /// Hashes the content of a field, inline or offloaded.
    fn field(&mut self, field: Option<&Bytes>) {
        match field.map(|bytes| content_of(bytes)) {
            None => self.option(None),
            Some((length, hash)) => self.option(Some(&[&length.to_le_bytes()[..], &hash].concat())),
        }
    }

    fn params(&mut self, params: &BTreeMap<String, Json>) {
        self.part(&(params.len() as u64).to_le_bytes());
        for (name, value) in params {
            self.part(name.as_bytes()).part(value.as_str().as_bytes());
        }
    }

    fn slots<K: AsRef<str>, V: AsRef<str>>(&mut self, slots: impl ExactSizeIterator<Item = (K, V)>) {
        self.part(&(slots.len() as u64).to_le_bytes());
        for (slot, buffer) in slots {
            self.part(slot.as_ref().as_bytes()).part(buffer.as_ref().as_bytes());
        }
    }

    /// Hashes a small value of a policy, with the names of its fields.
    fn json(&mut self, value: &impl Serialize) {
        self.part(&serde_json::to_vec(value).unwrap_or_default());
    }

    fn dependency(&mut self, after: &Dependency) {
        match &after.on {
            DependsOn::Group { name, expect } => {
                self.part(b"group").part(name.as_bytes()).part(&expect.to_le_bytes())
            }
            DependsOn::Items { ids, well, badly } => {
                let items = ids.len() as u64 + u64::from(*well) + u64::from(*badly);
                self.part(b"items").part(&items.to_le_bytes())
            }
        };
        self.json(&after.when);
    }

    fn finish(&self) -> ContentDigest {
        let mut digest = [0; 16];
        digest.copy_from_slice(&self.0.finalize().as_bytes()[..16]);
        digest
    }

    fn finish_short(&self) -> u64 {
        let mut short = [0; 8];
        short.copy_from_slice(&self.finish()[..8]);
        u64::from_le_bytes(short)
    }
}

#[must_use]
pub fn content(body: &Body, fields: &Fields) -> ContentDigest {
    let mut hasher = Hasher::new("towline|content");
    hasher.slots(body.inputs.iter().map(|(slot, buffer)| (slot.as_str(), buffer.as_str())));
    hasher.params(&body.params);
    for field in Field::ALL {
        hasher.field(fields.get(field));
    }
    hasher.finish()
}

/// An idempotency key in an index.
#[must_use]
pub fn key(text: &str) -> ContentDigest {
    Hasher::new("towline|key").part(text.as_bytes()).finish()
}

/// An idempotency key that several items have one after the other, in the index that it shares with tags.
#[must_use]
pub fn key_label(text: &str) -> u64 {
    Hasher::new("towline|key label").part(text.as_bytes()).finish_short()
}

/// A replace key, in the index that it shares with idempotency keys.
#[must_use]
pub fn replace_key(text: &str) -> ContentDigest {
    Hasher::new("towline|replace").part(text.as_bytes()).finish()
}

/// What a counter has counted.
#[must_use]
pub fn counted(counter: &str, once: &str) -> ContentDigest {
    Hasher::new("towline|counted").part(counter.as_bytes()).part(once.as_bytes()).finish()
}

/// A tag in an index. A reader compares the tag itself.
#[must_use]
pub fn tag(name: &str, value: &str) -> u64 {
    Hasher::new("towline|tag").part(name.as_bytes()).part(value.as_bytes()).finish_short()
}

/// A group, in the index that it shares with tags, under a name that no tag can have.
#[must_use]
pub fn group(name: &str) -> u64 {
    tag("", name)
}

pub(crate) fn fairness(key: &str) -> u64 {
    Hasher::new("towline|fairness").part(key.as_bytes()).finish_short()
}

/// A lease and a slot. The digest does not reveal the lease token.
pub(crate) fn attempt(token: LeaseToken, slot: &str) -> u64 {
    Hasher::new("towline|attempt").part(token.0.as_bytes()).part(slot.as_bytes()).finish_short()
}

pub(crate) fn settle(outcome: &Outcome, reason: &str, edits: &FieldEdits, rest: &[u64]) -> u64 {
    // Most settles have nothing but a verb, so they skip the hash.
    if outcome.is_empty() && reason.is_empty() && edits.is_empty() && rest.iter().all(|&n| n == 0) {
        return 0;
    }
    let mut hasher = Hasher::new("towline|settle");
    hasher.slots(outcome.outputs.iter().map(|(slot, buffer)| (slot.as_str(), buffer.as_str())));
    hasher.params(&outcome.output_params);
    hasher.part(reason.as_bytes());
    for field in Field::ALL {
        match edits.get(field) {
            None => hasher.option(None),
            Some(value) => {
                hasher.part(b"=");
                hasher.field(value.as_ref());
            }
        }
    }
    for number in rest {
        hasher.part(&number.to_le_bytes());
    }
    hasher.finish_short()
}

/// The items that a commit submits; 0 if there are none. Leaves out what may differ when a client repeats the same commit: their
/// traces, their ids (the server chooses them for items with offloaded fields), and which of their dependencies have ended.
pub(crate) fn hand_off(items: &[HandOff]) -> u64 {
    if items.is_empty() {
        return 0;
    }
    let mut hasher = Hasher::new("towline|hand-off");
    for HandOff { queue, submission } in items {
        let Submission { priority, ready, delay_max, overrides, after, body, fields, .. } = submission;
        hasher.part(queue.as_str().as_bytes());
        hasher.part(&priority.to_le_bytes());
        let (kind, time) = match ready {
            When::After(span) => (0, span.0),
            When::At(time) => (1, time.0),
        };
        hasher.part(&[kind]).part(&time.to_le_bytes());
        for text in [
            &body.idempotency_key,
            &body.replace_key,
            &body.fairness_key,
            &body.group,
            &body.source,
            &body.tier,
        ] {
            hasher.option(text.as_ref().map(String::as_bytes));
        }
        hasher.option(body.parent.as_ref().map(|parent| &parent.0.as_bytes()[..]));
        for number in [body.fee, body.size_bytes, delay_max.map(|span| span.0)] {
            hasher.option(number.map(u64::to_le_bytes).as_ref().map(|bytes| &bytes[..]));
        }
        if let Some(after) = after {
            hasher.dependency(after);
        }
        if !overrides.is_empty() {
            hasher.json(overrides);
        }
        hasher.slots(body.tags.iter());
        hasher.part(&content(body, fields));
    }
    hasher.finish_short()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Reference;

    #[test]
    fn content_changes_the_digest_and_tags_do_not() {
        let plain = (Body::default(), Fields::default());
        let base = content(&plain.0, &plain.1);
        let tagged = Body { tags: [("a".to_owned(), "b".to_owned())].into(), ..Body::default() };
        assert_eq!(content(&tagged, &plain.1), base);
        let param = Body { params: [("a".to_owned(), Json::string("b"))].into(), ..Body::default() };
        assert_ne!(content(&param, &plain.1), base);
        let empty = Fields { blob: Some(Bytes::new()), ..Fields::default() };
        assert_ne!(content(&plain.0, &empty), base, "an empty payload is not no payload");
        let other = Fields { metadata: Some(Bytes::new()), ..Fields::default() };
        assert_ne!(content(&plain.0, &empty), content(&plain.0, &other));
    }

    #[test]
    fn an_offloaded_field_has_the_digest_of_the_inline_field() {
        let inline = Fields { blob: Some("work".into()), ..Fields::default() };
        let offloaded = |key: &str| {
            let reference = Reference::to(b"work", key.to_owned());
            Fields { blob: Some(reference.write()), ..Fields::default() }
        };
        assert_eq!(content(&Body::default(), &inline), content(&Body::default(), &offloaded("a")));
        assert_eq!(content(&Body::default(), &inline), content(&Body::default(), &offloaded("b")));
    }
}
