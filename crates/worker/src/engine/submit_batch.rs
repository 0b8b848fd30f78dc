//! Batches of submits: cuts many submits into calls of a size that a queue accepts.

use super::submit::PreparedWork;
use crate::ports::SubmitRequest;

/// The most items of one call.
pub(super) const BATCH_MAX: usize = 500;
/// The most payload bytes of one call. A single payload may be larger.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Work that is submitted in one call.
#[derive(Default)]
pub(super) struct SubmitBatch {
    pub(super) prepared: Vec<PreparedWork>,
    pub(super) requests: Vec<SubmitRequest>,
}

/// Fills one batch after the other.
pub(super) struct SubmitBatches {
    current: SubmitBatch,
    bytes: usize,
    batch_max: usize,
}

impl SubmitBatches {
    pub(super) fn new(batch_max: usize) -> SubmitBatches {
        SubmitBatches { current: SubmitBatch::default(), bytes: 0, batch_max }
    }

    /// Returns the current batch if it has no room for this work, which then begins the next batch.
    pub(super) fn add(&mut self, prepared: PreparedWork, request: SubmitRequest) -> Option<SubmitBatch> {
        let bytes = request.payload.len();
        let is_full = self.current.requests.len() >= self.batch_max
            || (self.bytes + bytes > BATCH_BYTES_MAX && !self.current.requests.is_empty());
        let full = is_full.then(|| self.take());
        self.bytes += bytes;
        self.current.prepared.push(prepared);
        self.current.requests.push(request);
        full
    }

    pub(super) fn take(&mut self) -> SubmitBatch {
        self.bytes = 0;
        std::mem::take(&mut self.current)
    }
}
