//! Conversions between domain types and column values.

use towline_domain::{QueueId, Timestamp};

pub(crate) fn timestamp(stored: i64) -> Timestamp {
    Timestamp(stored.cast_unsigned())
}

/// **Invariant:** no time is later than [`Timestamp::MAX`], which fits.
pub(crate) fn millis(time: Timestamp) -> i64 {
    time.0.cast_signed()
}

pub(crate) fn queue_id(stored: i32) -> QueueId {
    QueueId(stored.cast_unsigned())
}

pub(crate) fn queue_number(id: QueueId) -> i32 {
    id.0.cast_signed()
}
