//! A log record: one change, as an after-image of the parts that the change touched.
//!
//! ```text
//!  0 length   u32   of the whole record
//!  4 check    u32   CRC32C of the store's salt and of every byte after this field, up to the payload fields
//!  8 kind     u8    a RecordKind
//!  9 event    u8    the EventKind of the change; 0 for none
//! 10 parts    u16   one bit for each part that follows
//! 12 subject  u64   the item's sequence number, or the queue's id; 0 for key-value records
//! 20 the parts in the order of [`PARTS`], each a u32 length and its bytes. The payload fields come last, and a u32 follows
//!    them: the CRC32C above continued over them
//! ```
//! Each record has its own check, so that a reader can verify one record without its frame, and a summary without the payload.
//!
//! **Invariant:** the layout belongs to format [`crate::log::meta::FORMAT`]. A change to it needs a new format number, and
//! the decoder for the old number stays.

mod decode;
mod encode;

pub use decode::*;
pub use encode::*;

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use towline_domain::item::Settle;
use towline_domain::{
    Body, Extras, Field, FieldSet, GroupTag, Head, Hour, ItemId, KeyHold, KeyTag, QueueId, State, TallyTag,
    Timestamp, digest,
};

pub const HEADER_BYTES: usize = 20;

/// Where a record is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordPlace {
    pub segment: u32,
    pub offset: u32,
    pub length: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    Item = 1,
    ItemRemoved = 2,
    Queue = 3,
    QueueDeleted = 4,
    Kv = 5,
    KvDeleted = 6,
    Tally = 7,
}

impl RecordKind {
    pub fn from_code(code: u8) -> Result<RecordKind, RecordError> {
        Ok(match code {
            1 => RecordKind::Item,
            2 => RecordKind::ItemRemoved,
            3 => RecordKind::Queue,
            4 => RecordKind::QueueDeleted,
            5 => RecordKind::Kv,
            6 => RecordKind::KvDeleted,
            7 => RecordKind::Tally,
            _ => return Err(RecordError::Kind),
        })
    }
}

/// A set of parts, as bits.
pub type Parts = u16;
pub const HEAD: Parts = 1;
pub const BODY: Parts = 1 << 1;
/// The four payload fields use bits 2 to 5. The part of a field that was unset has the length [`UNSET`].
pub const FIELDS: Parts = 0b1111 << 2;
pub const OUTCOME: Parts = 1 << 6;
pub const ERROR: Parts = 1 << 7;
pub const INDEXED: Parts = 1 << 8;
/// The id that the submitter chose. Every record of such an item repeats it, because an event reader reads each record alone.
pub const CHOSEN_ID: Parts = 1 << 9;
/// The parts whose current record the index knows.
pub const INDEXED_PARTS: Parts = CHOSEN_ID - 1;
/// All parts, in the order in which a record stores them.
const PARTS: [Parts; 10] = [HEAD, BODY, OUTCOME, ERROR, INDEXED, CHOSEN_ID, 1 << 2, 1 << 3, 1 << 4, 1 << 5];
const CHECK_BYTES: usize = 4;
const UNSET: u32 = u32::MAX;

pub fn field_part(field: Field) -> Parts {
    1 << (2 + field as u16)
}

/// The parts to read for these fields.
pub fn parts_of(fields: FieldSet) -> Parts {
    let summary = if fields == FieldSet::HEADS { 0 } else { BODY | OUTCOME | ERROR };
    let wanted = Field::ALL.into_iter().filter(|&field| fields.contains(field));
    wanted.fold(summary, |parts, field| parts | field_part(field))
}

/// What the index needs of a body. Opening reads this part and skips the body.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Indexed {
    /// The id that the submitter chose. All other ids are derived from creation time and sequence number.
    pub id: Option<ItemId>,
    pub key: Option<KeyClaim>,
    /// Hashes of the tags and the group.
    pub labels: Vec<u64>,
}

/// The claim of an item on its idempotency key or replace key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyClaim {
    pub queue: QueueId,
    pub digest: digest::ContentDigest,
    pub content: digest::ContentDigest,
}

impl Indexed {
    pub fn of(head: &Head, body: &Body, id: Option<ItemId>) -> Option<Indexed> {
        let digest = match (&body.idempotency_key, &body.replace_key) {
            (Some(key), _) => Some(digest::key(key)),
            (None, Some(key)) => Some(digest::replace_key(key)),
            (None, None) => None,
        };
        let key = body.claim.zip(digest).map(|(claim, digest)| KeyClaim {
            queue: claim.queue,
            digest,
            content: claim.content,
        });
        let mut labels: Vec<u64> = body.tags.iter().map(|(name, value)| digest::tag(name, value)).collect();
        labels.extend(body.group.as_deref().map(group_label));
        // Several items may have the same key, one after the other.
        let key_of_many = body.idempotency_key.as_deref().filter(|_| head.key_hold() != KeyHold::WhileExists);
        labels.extend(key_of_many.map(digest::key_label));
        let indexed = Indexed { id, key, labels };
        (indexed != Indexed::default()).then_some(indexed)
    }
}

/// Groups share the label index with tags. The digest gives groups a name that no tag can have.
pub fn group_label(group: &str) -> u64 {
    digest::group(group)
}

/// Which tally: an hour, and a tag if the tally counts one tag only.
pub type TallyKey = (Hour, Option<TallyTag>);

/// A head as it is stored. Its id is left out, because the reader derives the id from the record.
#[derive(Serialize, Deserialize)]
struct StoredHead<'a> {
    queue: QueueId,
    state: Cow<'a, State>,
    priority: i16,
    created_at: Timestamp,
    /// Relative to creation, which is 0 and one byte for most items. Wraps around for a time before creation.
    ready_after: u64,
    retries: u32,
    deliveries: u32,
    revision: u32,
    transitions: u32,
    expires_at: Option<Timestamp>,
    last_settle: Option<Settle>,
    group: Option<GroupTag>,
    fairness_key: KeyTag,
    extras: Option<Cow<'a, Extras>>,
}

/// Times behind a stored head, if it has any. Heads of earlier builds have none.
#[derive(Default, Serialize, Deserialize)]
struct StoredTimes {
    /// Both relative to creation, like `ready_after`.
    changed_after: Option<u64>,
    heartbeat_after: Option<u64>,
}

impl StoredTimes {
    fn of(head: &Head) -> StoredTimes {
        let after = |at: Timestamp| at.0.wrapping_sub(head.created_at.0);
        StoredTimes {
            changed_after: head.changed_at.map(after),
            heartbeat_after: head.heartbeat_at.map(after),
        }
    }
}

/// What an event contains of a removed item.
#[derive(Serialize, Deserialize)]
struct StoredRemoval {
    queue: QueueId,
    /// The time in a derived id; 0 if the submitter chose the id.
    made_at: u64,
    chosen_id: Option<ItemId>,
    /// The group that the item left unfinished.
    group: Option<GroupTag>,
}

fn check(bytes: &[u8], salt: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use towline_domain::dependency::{Condition, Dependency, DependsOn};
    use towline_domain::{Fairness, Flow, Head, Offer, Policy, Queue, QueueState, Schema, Trace};

    fn assert_queue_is_read_back(policy: Policy) {
        let (id, name, created_at) = (QueueId(7), "jobs".parse().unwrap(), Timestamp(5));
        let (schema, state) = (Schema::default(), QueueState::Open);
        let queue = Queue { id, name, schema, policy, state, paused: false, created_at, revision: 1 };
        let mut buffer = Vec::new();
        encode_queue(&mut buffer, &queue, None, 1);
        let record = Record::read(&buffer, 1).unwrap();
        assert_eq!(decode_queue(record.need(HEAD).unwrap()).unwrap(), queue);
    }

    #[test]
    fn a_queue_is_read_back_with_its_tally_tags_and_flow_control() {
        let tally_tags = || ["team".to_owned()].into();
        let fairness = Some(Fairness { weights: [("gold".to_owned(), 3)].into() });
        let flow = || Flow { concurrency: Some(3), rate: "10/s".parse().ok(), ..Flow::default() };
        let by_key = |fairness| Flow { fairness, concurrency_per_key: Some(2), ..flow() };
        for flow in [
            Flow::default(),
            flow(),
            Flow { fairness: fairness.clone(), ..flow() },
            by_key(None),
            by_key(fairness),
        ] {
            assert_queue_is_read_back(Policy { flow: flow.clone(), ..Policy::default() });
            let policy = Policy { flow, tally_tags: tally_tags(), ..Policy::default() };
            assert_queue_is_read_back(Policy { tally_values_max: 7, ..policy.clone() });
            assert_queue_is_read_back(policy);
        }
    }

    #[test]
    fn a_body_is_read_back_with_its_trace_and_replace_key_and_every_cut_is_damage() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap();
        for state in [None, Some("congo=t61".parse().unwrap())] {
            let body = Body {
                source: Some("elsewhere".to_owned()),
                trace: Some(Box::new(Trace { parent, state })),
                replace_key: Some("latest".to_owned()),
                ..Body::default()
            };
            let bytes = postcard::to_allocvec(&body).unwrap();
            assert_eq!(decode_body(&bytes).unwrap(), body);
            for length in 0..bytes.len() {
                assert!(decode_body(&bytes[..length]).is_err(), "{length} bytes");
            }
            assert!(decode_body(&[&bytes[..], &[0]].concat()).is_err(), "bytes left over");
        }
    }

    #[test]
    fn a_head_is_read_back_with_its_group_fairness_key_and_dependency() {
        let on = DependsOn::Group { name: "parts".to_owned(), expect: 3 };
        let extras = Extras {
            tally_tags: vec![("team".to_owned(), "red".to_owned())],
            after: Some(Box::new(Dependency { on, when: Condition::AllDone })),
            ..Extras::default()
        };
        let head = Head {
            id: ItemId::derive(1, Timestamp(5), 9),
            queue: QueueId(7),
            state: State::Paused,
            priority: -3,
            created_at: Timestamp(5),
            ready_at: Timestamp(8),
            retries: 1,
            deliveries: 2,
            revision: 3,
            transitions: 4,
            expires_at: Some(Timestamp(50)),
            last_settle: None,
            group: Some(GroupTag::of("parts")),
            fairness_key: KeyTag::of("tenant"),
            changed_at: None,
            heartbeat_at: None,
            extras: Some(Box::new(extras)),
        };
        let offer = Offer { fee: 7, size_bytes: 9, tier: Some("PRO".to_owned()) };
        let read_back = |head: &Head| {
            let mut buffer = Vec::new();
            let mut encoder = RecordEncoder::new(&mut buffer, RecordKind::Item, None, 9);
            encode_head(&mut encoder, head);
            encoder.finish(1);
            let record = Record::read(&buffer, 1).unwrap();
            decode_head(record.need(HEAD).unwrap(), 9, None, 1).unwrap()
        };
        let times = [
            (None, None),
            (Some(Timestamp(6)), None),
            (None, Some(Timestamp(0))),
            (Some(Timestamp(9)), Some(Timestamp(10))),
        ];
        for (changed_at, heartbeat_at) in times {
            for (ready_at, offer) in [(8, None), (5, Some(Box::new(offer.clone()))), (2, None)] {
                let mut head =
                    Head { ready_at: Timestamp(ready_at), changed_at, heartbeat_at, ..head.clone() };
                head.extras.as_mut().unwrap().offer = offer;
                assert_eq!(read_back(&head), head);
                head.extras = None;
                assert_eq!(read_back(&head), head);
            }
        }
    }
}
