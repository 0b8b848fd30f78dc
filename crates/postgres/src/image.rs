//! An item's row in `items`, read; and where an item stands.

use crate::code;
use crate::error::damaged;
use tokio_postgres::Row;
use towline_domain::item::Settle;
use towline_domain::{
    CountKind, Head, ItemId, Lease, LeaseToken, Millis, Order, OrderKey, QueueId, State, Timestamp,
};
use towline_store::StoreError;
use uuid::Uuid;

/// An item as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub(crate) seq: u64,
    pub(crate) head: Head,
    /// At most this much payload.
    pub(crate) bytes: u64,
    /// How the counters count it: what became ready unnoticed still counts as scheduled.
    pub(crate) counted: CountKind,
}

/// Where an item stands at a time: what the indexes of `items` are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) counted: CountKind,
    /// Its place among the ready.
    pub(crate) place: Option<OrderKey>,
    pub(crate) due: Option<Timestamp>,
    pub(crate) wake: Option<Timestamp>,
}

impl Standing {
    pub(crate) fn of(head: &Head, order: &Order, now: Timestamp) -> Standing {
        let counted = head.count_kind(now);
        let due = (counted == CountKind::Scheduled).then_some(head.ready_at);
        Standing {
            counted,
            place: (counted == CountKind::Pending).then(|| order.key(head)),
            due,
            wake: [head.timer(), due].into_iter().flatten().min(),
        }
    }
}

/// Reads a row that begins with the columns of `queries/select_items.sql`.
pub(crate) fn read(row: &Row) -> Result<Image, StoreError> {
    let seq: i64 = row.get(0);
    let wrong = |what: &str| damaged(format_args!("{seq} of items"), what);
    let number = |at: usize| -> Result<u32, StoreError> {
        u32::try_from(row.get::<_, i64>(at)).map_err(|_| wrong("a number out of range"))
    };
    let time = |at: usize| -> Option<Timestamp> { row.get::<_, Option<i64>>(at).map(timestamp) };
    let due = time(13);
    let (state, counted) = match row.get::<_, i16>(3) {
        code::PENDING if due.is_some() => (State::Pending, CountKind::Scheduled),
        code::PENDING => (State::Pending, CountKind::Pending),
        code::PAUSED => (State::Paused, CountKind::Paused),
        code::PROCESSING => {
            let (Some(token), Some(deadline)) = (row.get::<_, Option<Uuid>>(14), time(15)) else {
                return Err(wrong("a lease without its token or deadline"));
            };
            let buffers = match row.get::<_, Option<&str>>(19) {
                None => None,
                Some(text) => Some(code::from_json(text).map_err(|error| wrong(&error.to_string()))?),
            };
            let lease = Lease {
                token: LeaseToken(token),
                deadline,
                visibility: Millis(row.get::<_, Option<i64>>(16).map_or(0, i64::cast_unsigned)),
                renewals: row.get::<_, Option<i64>>(17).and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
                unacknowledged: row.get::<_, Option<bool>>(18).unwrap_or(false),
                buffers,
            };
            (State::Processing(lease), CountKind::Processing)
        }
        finished @ (code::COMPLETED | code::FAILED) => {
            let Some(at) = time(24) else {
                return Err(wrong("finished, and not said when"));
            };
            let remove_at = time(25);
            if finished == code::COMPLETED {
                (State::Completed { at, remove_at }, CountKind::Completed)
            } else {
                let kind = row.get::<_, Option<i16>>(26).and_then(code::failure);
                let kind = kind.ok_or_else(|| wrong("an unknown kind of failure"))?;
                (State::Failed { at, remove_at, kind }, CountKind::Failed)
            }
        }
        _ => return Err(wrong("an unknown state")),
    };
    let last_settle = match row.get::<_, Option<Uuid>>(20) {
        None => None,
        Some(token) => Some(Settle {
            token: LeaseToken(token),
            verb: row
                .get::<_, Option<i16>>(21)
                .and_then(code::verb)
                .ok_or_else(|| wrong("an unknown settle"))?,
            left: row
                .get::<_, Option<i16>>(22)
                .and_then(code::settled)
                .ok_or_else(|| wrong("an unknown settle"))?,
            digest: row.get::<_, Option<i64>>(23).map_or(0, i64::cast_unsigned),
        }),
    };
    let extras = match row.get::<_, Option<&str>>(27) {
        None => None,
        Some(text) => Some(code::from_json(text).map_err(|error| wrong(&error.to_string()))?),
    };
    let head = Head {
        id: ItemId(row.get(1)),
        queue: queue_id(row.get(2)),
        state,
        priority: row.get(4),
        created_at: timestamp(row.get(5)),
        ready_at: timestamp(row.get(6)),
        retries: number(7)?,
        deliveries: number(8)?,
        revision: number(9)?,
        transitions: number(10)?,
        expires_at: time(12),
        last_settle,
        extras,
    };
    Ok(Image { seq: seq.cast_unsigned(), head, bytes: row.get::<_, i64>(11).cast_unsigned(), counted })
}

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
