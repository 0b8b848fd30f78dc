//! What the index learns from one record: the same from a change just decided, a frame replayed or a sidecar.

use crate::record::{self, Indexed, Kind, Parts, Record, RecordError, TallyKey};
use towline_domain::kv::KvRecord;
use towline_domain::{Head, Queue, QueueId, QueueName, Tally};

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    pub segment: u32,
    pub offset: u32,
    pub length: u32,
}

#[derive(Debug)]
pub enum Entry {
    Item(ItemEntry),
    ItemRemoved { sequence: u64 },
    Queue { queue: Box<Queue>, place: Place },
    QueueDeleted { id: QueueId, name: Option<QueueName> },
    Kv { key: String, record: KvRecord, place: Place },
    KvDeleted { key: String },
    Tally { queue: QueueId, key: TallyKey, tally: Tally, place: Place },
}

#[derive(Debug)]
pub struct ItemEntry {
    pub sequence: u64,
    pub place: Place,
    /// The parts that are current as of this record.
    pub parts: Parts,
    pub head: Option<Head>,
    pub indexed: Option<Box<Indexed>>,
    /// Of the error in this record, if it has one.
    pub error_ordinal: u32,
}

impl Entry {
    pub fn from_record(record: &Record<'_>, place: Place, salt: u64) -> Result<Entry, RecordError> {
        let sequence = record.subject;
        Ok(match record.kind {
            Kind::Item => {
                let mut entry = ItemEntry {
                    sequence,
                    place,
                    parts: record.parts & record::TRACKED,
                    head: None,
                    indexed: None,
                    error_ordinal: 0,
                };
                for part in record.parts() {
                    match part? {
                        (record::HEAD, Some(bytes)) => {
                            // An id its submitter chose is put in by the index, which knows it.
                            entry.head = Some(record::decode_head(bytes, sequence, None, salt)?);
                        }
                        (record::ERROR, Some(bytes)) => entry.error_ordinal = record::decode_error(bytes)?.0,
                        (record::INDEXED, Some(bytes)) => {
                            entry.indexed = Some(Box::new(record::decode_indexed(bytes)?));
                        }
                        _ => {}
                    }
                }
                Entry::Item(entry)
            }
            Kind::ItemRemoved => Entry::ItemRemoved { sequence },
            Kind::Queue => {
                let queue = Box::new(record::decode_queue(record.need(record::HEAD)?)?);
                Entry::Queue { queue, place }
            }
            Kind::QueueDeleted => {
                let id = u32::try_from(record.subject).map_err(|_| RecordError::Content)?;
                let name = record.part(record::HEAD)?.map(record::decode_queue_name).transpose()?;
                Entry::QueueDeleted { id: QueueId(id), name }
            }
            Kind::Kv => {
                let (key, record) = record::decode_kv(record.need(record::HEAD)?)?;
                Entry::Kv { key, record, place }
            }
            Kind::KvDeleted => Entry::KvDeleted { key: record::decode_kv_key(record.need(record::HEAD)?)? },
            Kind::Tally => Entry::tally(record.subject, record.need(record::HEAD)?, place)?,
        })
    }

    /// What a record of a count says.
    pub fn tally(subject: u64, bytes: &[u8], place: Place) -> Result<Entry, RecordError> {
        let queue = QueueId(u32::try_from(subject).map_err(|_| RecordError::Content)?);
        let (key, tally) = record::decode_tally(bytes)?;
        Ok(Entry::Tally { queue, key, tally, place })
    }
}
