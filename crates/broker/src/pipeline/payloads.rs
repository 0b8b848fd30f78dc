//! Payload fields in object storage without a running broker: for export and import.

use super::attachments::{Attachments, OffloadRule};
use towline_buffers::Buffers;
use towline_domain::command::When;
use towline_domain::{Item, Timestamp};
use towline_store::OperationResult;

#[derive(Debug)]
pub struct Payloads(Attachments);

impl Payloads {
    #[must_use]
    pub fn new(buffers: Buffers, offload: OffloadRule) -> Payloads {
        Payloads(Attachments { buffers, offload })
    }

    /// Replaces references by the payload that they stand for.
    pub async fn fetch(&self, item: &mut Item) -> OperationResult<()> {
        self.0.fetch(&mut item.fields).await
    }

    /// Stores large fields, and puts references in their place.
    pub async fn offload(&self, item: &mut Item, now: Timestamp) -> OperationResult<()> {
        let threshold = self.0.offload.threshold(When::At(item.head.ready_at), now);
        self.0.offload_fields(item.head.id, &mut item.fields, threshold, &mut Vec::new()).await
    }
}
