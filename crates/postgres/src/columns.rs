//! Items as columns: one array a column, for statements that write many rows at once.

use crate::code;
use crate::image::{Standing, millis, queue_number};
use tokio_postgres::types::ToSql;
use towline_domain::{Head, State};
use uuid::Uuid;

macro_rules! columns {
    ($($column:ident: $kind:ty,)*) => {
        /// In the order of `queries/insert_items.sql`.
        #[derive(Debug, Default)]
        pub(crate) struct Columns<'a> {
            $($column: Vec<$kind>,)*
        }
    };
}

columns! {
    seq: i64,
    id: Uuid,
    queue: i32,
    state: i16,
    priority: i16,
    created_at: i64,
    ready_at: i64,
    retries: i64,
    deliveries: i64,
    revision: i64,
    transitions: i64,
    bytes: i64,
    expires_at: Option<i64>,
    rank: Option<i64>,
    place: Option<i64>,
    due: Option<i64>,
    wake: Option<i64>,
    lease_token: Option<Uuid>,
    lease_deadline: Option<i64>,
    lease_visibility: Option<i64>,
    lease_renewals: Option<i64>,
    lease_unacknowledged: Option<bool>,
    lease_buffers: Option<String>,
    settle_token: Option<Uuid>,
    settle_verb: Option<i16>,
    settle_left: Option<i16>,
    settle_digest: Option<i64>,
    finished_at: Option<i64>,
    remove_at: Option<i64>,
    failure: Option<i16>,
    extras: Option<String>,
    group: Option<&'a [u8]>,
}

impl<'a> Columns<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.seq.is_empty()
    }

    pub(crate) fn push(
        &mut self,
        seq: u64,
        head: &Head,
        bytes: u64,
        standing: Standing,
        group: Option<&'a [u8]>,
    ) {
        let (state, finished_at, remove_at, failure) = match &head.state {
            State::Pending => (code::PENDING, None, None, None),
            State::Processing(_) => (code::PROCESSING, None, None, None),
            State::Paused => (code::PAUSED, None, None, None),
            State::Completed { at, remove_at } => (code::COMPLETED, Some(*at), *remove_at, None),
            State::Failed { at, remove_at, kind } => {
                (code::FAILED, Some(*at), *remove_at, Some(code::of_failure(*kind)))
            }
        };
        let (lease, settle) = (head.lease(), head.last_settle.as_ref());
        self.seq.push(seq.cast_signed());
        self.id.push(head.id.0);
        self.queue.push(queue_number(head.queue));
        self.state.push(state);
        self.priority.push(head.priority);
        self.created_at.push(millis(head.created_at));
        self.ready_at.push(millis(head.ready_at));
        self.retries.push(head.retries.into());
        self.deliveries.push(head.deliveries.into());
        self.revision.push(head.revision.into());
        self.transitions.push(head.transitions.into());
        self.bytes.push(bytes.cast_signed());
        self.expires_at.push(head.expires_at.map(millis));
        self.rank.push(standing.place.map(|place| place.rank));
        self.place.push(standing.place.map(|place| millis(place.time)));
        self.due.push(standing.due.map(millis));
        self.wake.push(standing.wake.map(millis));
        self.lease_token.push(lease.map(|lease| lease.token.0));
        self.lease_deadline.push(lease.map(|lease| millis(lease.deadline)));
        self.lease_visibility.push(lease.map(|lease| lease.visibility.0.cast_signed()));
        self.lease_renewals.push(lease.map(|lease| lease.renewals.into()));
        self.lease_unacknowledged.push(lease.map(|lease| lease.unacknowledged));
        self.lease_buffers.push(lease.and_then(|lease| lease.buffers.as_ref()).map(code::to_json));
        self.settle_token.push(settle.map(|settle| settle.token.0));
        self.settle_verb.push(settle.map(|settle| code::of_verb(settle.verb)));
        self.settle_left.push(settle.map(|settle| code::of_settled(settle.left)));
        self.settle_digest.push(settle.map(|settle| settle.digest.cast_signed()));
        self.finished_at.push(finished_at.map(millis));
        self.remove_at.push(remove_at.map(millis));
        self.failure.push(failure);
        self.extras.push(head.extras.as_ref().map(code::to_json));
        self.group.push(group);
    }

    /// What `queries/insert_items.sql` takes.
    pub(crate) fn all(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut all = self.changing();
        all.insert(1, &self.id);
        all.insert(5, &self.created_at);
        all.push(&self.group);
        all
    }

    /// What `queries/update_items.sql` takes: all but what never changes.
    pub(crate) fn changing(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![
            &self.seq,
            &self.queue,
            &self.state,
            &self.priority,
            &self.ready_at,
            &self.retries,
            &self.deliveries,
            &self.revision,
            &self.transitions,
            &self.bytes,
            &self.expires_at,
            &self.rank,
            &self.place,
            &self.due,
            &self.wake,
            &self.lease_token,
            &self.lease_deadline,
            &self.lease_visibility,
            &self.lease_renewals,
            &self.lease_unacknowledged,
            &self.lease_buffers,
            &self.settle_token,
            &self.settle_verb,
            &self.settle_left,
            &self.settle_digest,
            &self.finished_at,
            &self.remove_at,
            &self.failure,
            &self.extras,
        ]
    }
}
