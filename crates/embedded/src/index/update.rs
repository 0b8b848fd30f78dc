//! An index update: what the index learns from one record. A decided change, a replayed frame and a sidecar give the same update.

use crate::log::record::{self, Indexed, Parts, Record, RecordError, RecordKind, RecordPlace, TallyKey};
use towline_domain::kv::KvRecord;
use towline_domain::{Head, Queue, QueueId, QueueName, Tally};

#[derive(Debug)]
pub enum IndexUpdate {
    Item(ItemUpdate),
    ItemRemoved { sequence: u64 },
    Queue { queue: Box<Queue>, place: RecordPlace },
    QueueDeleted { id: QueueId, name: Option<QueueName> },
    Kv { key: String, record: KvRecord, place: RecordPlace },
    KvDeleted { key: String },
    Tally { queue: QueueId, key: TallyKey, tally: Tally, place: RecordPlace },
}

#[derive(Debug)]
pub struct ItemUpdate {
    pub sequence: u64,
    pub place: RecordPlace,
    /// The parts of this record.
    pub parts: Parts,
    pub head: Option<Head>,
    pub indexed: Option<Box<Indexed>>,
    /// The ordinal of the error in this record, if there is one.
    pub error_ordinal: u32,
}

impl IndexUpdate {
    pub fn from_record(
        record: &Record<'_>,
        place: RecordPlace,
        salt: u64,
    ) -> Result<IndexUpdate, RecordError> {
        let sequence = record.subject;
        Ok(match record.kind {
            RecordKind::Item => {
                let mut entry = ItemUpdate {
                    sequence,
                    place,
                    parts: record.parts & record::INDEXED_PARTS,
                    head: None,
                    indexed: None,
                    error_ordinal: 0,
                };
                for part in record.parts() {
                    match part? {
                        (record::HEAD, Some(bytes)) => {
                            // The index knows the ids that submitters chose, and sets them itself.
                            entry.head = Some(record::decode_head(bytes, sequence, None, salt)?);
                        }
                        (record::ERROR, Some(bytes)) => entry.error_ordinal = record::decode_error(bytes)?.0,
                        (record::INDEXED, Some(bytes)) => {
                            entry.indexed = Some(Box::new(record::decode_indexed(bytes)?));
                        }
                        _ => {}
                    }
                }
                IndexUpdate::Item(entry)
            }
            RecordKind::ItemRemoved => IndexUpdate::ItemRemoved { sequence },
            RecordKind::Queue => {
                let queue = Box::new(record::decode_queue(record.need(record::HEAD)?)?);
                IndexUpdate::Queue { queue, place }
            }
            RecordKind::QueueDeleted => {
                let id = u32::try_from(record.subject).map_err(|_| RecordError::Content)?;
                let name = record.part(record::HEAD)?.map(record::decode_queue_name).transpose()?;
                IndexUpdate::QueueDeleted { id: QueueId(id), name }
            }
            RecordKind::Kv => {
                let (key, record) = record::decode_kv(record.need(record::HEAD)?)?;
                IndexUpdate::Kv { key, record, place }
            }
            RecordKind::KvDeleted => {
                IndexUpdate::KvDeleted { key: record::decode_kv_key(record.need(record::HEAD)?)? }
            }
            RecordKind::Tally => IndexUpdate::tally(record.subject, record.need(record::HEAD)?, place)?,
        })
    }

    pub fn tally(subject: u64, bytes: &[u8], place: RecordPlace) -> Result<IndexUpdate, RecordError> {
        let queue = QueueId(u32::try_from(subject).map_err(|_| RecordError::Content)?);
        let (key, tally) = record::decode_tally(bytes)?;
        Ok(IndexUpdate::Tally { queue, key, tally, place })
    }
}
