//! Reads records back, and decodes their parts.

use super::{
    BODY, CHECK_BYTES, CHOSEN_ID, ERROR, FIELDS, HEAD, HEADER_BYTES, INDEXED, Indexed, OUTCOME, PARTS, Parts,
    RecordKind, StoredHead, StoredRemoval, StoredTimes, TallyKey, UNSET, check,
};
use serde::Deserialize;
use towline_domain::kv::KvRecord;
use towline_domain::{
    AttemptError, Body, GroupTag, Head, ItemId, Outcome, Queue, QueueId, QueueName, Tally, Timestamp,
};

/// A record whose header was read.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    pub kind: RecordKind,
    pub event: u8,
    pub parts: Parts,
    pub subject: u64,
    pub bytes: &'a [u8],
}

/// Why bytes are not a valid record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("the record is cut short")]
    Short,
    #[error("the record's checksum does not match")]
    Check,
    #[error("this version does not know the record's kind")]
    Kind,
    #[error("the record's content does not decode")]
    Content,
    #[error("the record belongs to another item")]
    Foreign,
}

impl<'a> Record<'a> {
    /// Reads the record at the start of `bytes`, and verifies its check.
    pub fn read(bytes: &'a [u8], salt: u64) -> Result<Record<'a>, RecordError> {
        let record = Record::peek(bytes)?;
        if record.is_intact(salt) { Ok(record) } else { Err(RecordError::Check) }
    }

    /// Like [`Record::read`], for bytes whose frame was verified before.
    pub fn peek(bytes: &'a [u8]) -> Result<Record<'a>, RecordError> {
        let (header, length) = header(bytes)?;
        if length > bytes.len() {
            return Err(RecordError::Short);
        }
        Record::with(header, &bytes[..length])
    }

    /// How many bytes of a record its summary takes: all parts but the payload fields. If that is more than `bytes` has, the
    /// caller asks again with that many bytes.
    pub fn summary_bytes(bytes: &[u8]) -> Result<usize, RecordError> {
        let (header, length) = header(bytes)?;
        let needed = match summary_end(u16::from_le_bytes([header[10], header[11]]), bytes) {
            Ok(end) => end,
            Err(needed) => needed,
        };
        if needed <= length { Ok(needed) } else { Err(RecordError::Short) }
    }

    /// The record of which `summary` are the first [`Record::summary_bytes`], as if it had no payload fields. With a salt,
    /// verifies the check.
    pub fn read_summary(summary: &'a [u8], salt: Option<u64>) -> Result<Record<'a>, RecordError> {
        let (header, _) = header(summary)?;
        let record = Record::with(header, summary)?;
        if salt.is_some_and(|salt| check(&summary[8..], salt) != record.stored_check()) {
            return Err(RecordError::Check);
        }
        Ok(Record { parts: record.parts & !FIELDS, ..record })
    }

    fn with(header: &[u8; HEADER_BYTES], bytes: &'a [u8]) -> Result<Record<'a>, RecordError> {
        let kind = RecordKind::from_code(header[8])?;
        let mut subject = [0; 8];
        subject.copy_from_slice(&header[12..20]);
        Ok(Record {
            kind,
            event: header[9],
            parts: u16::from_le_bytes([header[10], header[11]]),
            subject: u64::from_le_bytes(subject),
            bytes,
        })
    }

    /// Like [`Record::read`]; also decodes every part.
    pub fn read_valid(bytes: &'a [u8], salt: u64) -> Result<Record<'a>, RecordError> {
        let record = Record::read(bytes, salt)?;
        match record.kind {
            RecordKind::Item => {
                for part in record.parts() {
                    match part? {
                        (HEAD, Some(bytes)) => drop(decode_head(bytes, record.subject, None, salt)?),
                        (BODY, Some(bytes)) => drop(decode_body(bytes)?),
                        (OUTCOME, Some(bytes)) => drop(decode_outcome(bytes)?),
                        (ERROR, Some(bytes)) => drop(decode_error(bytes)?),
                        (INDEXED, Some(bytes)) => drop(decode_indexed(bytes)?),
                        (CHOSEN_ID, Some(bytes)) => drop(decode_chosen_id(bytes)?),
                        (part, _) if part & FIELDS != 0 => {}
                        _ => return Err(RecordError::Content),
                    }
                }
            }
            RecordKind::Queue => drop(decode_queue(record.need(HEAD)?)?),
            RecordKind::Kv => drop(decode_kv(record.need(HEAD)?)?),
            RecordKind::KvDeleted => drop(decode_kv_key(record.need(HEAD)?)?),
            RecordKind::Tally => drop(decode_tally(record.need(HEAD)?)?),
            RecordKind::ItemRemoved => {
                if let Some(bytes) = record.part(HEAD)? {
                    decode_removal(bytes, record.subject, salt)?;
                }
            }
            RecordKind::QueueDeleted => {
                record.part(HEAD)?.map(decode_queue_name).transpose()?;
            }
        }
        Ok(record)
    }

    /// The records of a frame in order, each with its offset in `bytes`. Ends after the first that does not read.
    pub fn all_in(bytes: &'a [u8]) -> impl Iterator<Item = Result<(usize, Record<'a>), RecordError>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = at;
            let record = Record::peek(bytes.get(at..).filter(|rest| !rest.is_empty())?);
            at = record.map_or(bytes.len(), |record| start + record.bytes.len());
            Some(record.map(|record| (start, record)))
        })
    }

    /// Whether the check matches.
    pub fn is_intact(&self, salt: u64) -> bool {
        let Ok(end) = summary_end(self.parts, self.bytes) else { return false };
        let (summary, payload) = self.bytes.split_at(end);
        let check = check(&summary[8..], salt);
        let payload_is_intact = match payload.split_last_chunk::<CHECK_BYTES>() {
            Some((payload, stored)) if self.parts & FIELDS != 0 => {
                crc32c::crc32c_append(check, payload) == u32::from_le_bytes(*stored)
            }
            _ => self.parts & FIELDS == 0 && payload.is_empty(),
        };
        payload_is_intact && check == self.stored_check()
    }

    fn stored_check(&self) -> u32 {
        self.bytes[4..8].try_into().map_or(0, u32::from_le_bytes)
    }

    /// All parts with their bytes. `None` means an unset field.
    pub fn parts(&self) -> impl Iterator<Item = Result<(Parts, Option<&'a [u8]>), RecordError>> + use<'a> {
        let (bytes, parts) = (self.bytes, self.parts);
        let mut at = HEADER_BYTES;
        PARTS.into_iter().filter(move |part| parts & part != 0).map(move |part| {
            let length = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or(RecordError::Short)?;
            at += 4;
            let length = u32::from_le_bytes(length);
            if length == UNSET {
                return Ok((part, None));
            }
            let part_bytes = bytes.get(at..at + length as usize).ok_or(RecordError::Short)?;
            at += length as usize;
            Ok((part, Some(part_bytes)))
        })
    }

    pub fn part(&self, wanted: Parts) -> Result<Option<&'a [u8]>, RecordError> {
        if self.parts & wanted == 0 {
            return Ok(None);
        }
        for part in self.parts() {
            let (part, bytes) = part?;
            if part == wanted {
                return Ok(bytes);
            }
        }
        Err(RecordError::Short)
    }

    /// A part that every record of this kind has.
    pub fn need(&self, part: Parts) -> Result<&'a [u8], RecordError> {
        self.part(part)?.ok_or(RecordError::Content)
    }
}

/// The header at the start of `bytes`, and the length of the record.
fn header(bytes: &[u8]) -> Result<(&[u8; HEADER_BYTES], usize), RecordError> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(RecordError::Short)?;
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    if length < HEADER_BYTES { Err(RecordError::Short) } else { Ok((header, length)) }
}

/// Where the parts before the payload fields end. `Err`: how many bytes of the record are needed to find out, at least.
fn summary_end(parts: Parts, bytes: &[u8]) -> Result<usize, usize> {
    let mut end = HEADER_BYTES;
    for _ in PARTS.into_iter().filter(|part| parts & part & !FIELDS != 0) {
        let length = bytes.get(end..end + 4).and_then(|b| b.try_into().ok()).ok_or(end + 4)?;
        end += 4 + u32::from_le_bytes(length) as usize;
    }
    if end <= bytes.len() { Ok(end) } else { Err(end) }
}

/// Decodes the head of an item. `id` is the id that the submitter chose, if any.
pub fn decode_head(bytes: &[u8], sequence: u64, id: Option<ItemId>, salt: u64) -> Result<Head, RecordError> {
    let (stored, rest) =
        postcard::take_from_bytes::<StoredHead<'static>>(bytes).map_err(|_| RecordError::Content)?;
    let times = if rest.is_empty() { StoredTimes::default() } else { decode(rest)? };
    let after = |span: u64| Timestamp(stored.created_at.0.wrapping_add(span));
    Ok(Head {
        id: id.unwrap_or_else(|| ItemId::derive(salt, stored.created_at, sequence)),
        queue: stored.queue,
        state: stored.state.into_owned(),
        priority: stored.priority,
        created_at: stored.created_at,
        ready_at: after(stored.ready_after),
        retries: stored.retries,
        deliveries: stored.deliveries,
        revision: stored.revision,
        transitions: stored.transitions,
        expires_at: stored.expires_at,
        last_settle: stored.last_settle,
        group: stored.group,
        fairness_key: stored.fairness_key,
        changed_at: times.changed_after.map(after),
        heartbeat_at: times.heartbeat_after.map(after),
        extras: stored.extras.map(|extras| Box::new(extras.into_owned())),
    })
}

/// The queue and the id of a removed item, and the group that it left unfinished.
pub fn decode_removal(
    bytes: &[u8],
    sequence: u64,
    salt: u64,
) -> Result<(QueueId, ItemId, Option<GroupTag>), RecordError> {
    let StoredRemoval { queue, made_at, chosen_id, group } = decode(bytes)?;
    Ok((queue, chosen_id.unwrap_or_else(|| ItemId::derive(salt, Timestamp(made_at), sequence)), group))
}

pub fn decode_indexed(bytes: &[u8]) -> Result<Indexed, RecordError> {
    decode(bytes)
}

pub fn decode_body(bytes: &[u8]) -> Result<Body, RecordError> {
    decode(bytes)
}

pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, RecordError> {
    decode(bytes)
}

/// An error and its ordinal. The ordinal is the item's revision when the error happened; readers sort errors by it.
pub fn decode_error(bytes: &[u8]) -> Result<(u32, AttemptError), RecordError> {
    decode(bytes)
}

pub fn decode_chosen_id(bytes: &[u8]) -> Result<ItemId, RecordError> {
    decode(bytes)
}

pub fn decode_queue(bytes: &[u8]) -> Result<Queue, RecordError> {
    let (mut queue, rest) = postcard::take_from_bytes::<Queue>(bytes).map_err(|_| RecordError::Content)?;
    if !rest.is_empty() {
        queue.policy.tally_values_max = decode(rest)?;
    }
    Ok(queue)
}

pub fn decode_queue_name(bytes: &[u8]) -> Result<QueueName, RecordError> {
    decode(bytes)
}

pub fn decode_kv(bytes: &[u8]) -> Result<(String, KvRecord), RecordError> {
    decode(bytes)
}

pub fn decode_kv_key(bytes: &[u8]) -> Result<String, RecordError> {
    decode(bytes)
}

pub fn decode_tally(bytes: &[u8]) -> Result<(TallyKey, Tally), RecordError> {
    decode(bytes)
}

/// Remaining bytes are damage, too.
fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, RecordError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(RecordError::Content),
    }
}
