//! Output buffers of a run whose earlier attempt may have written to them: a buffer is written once.

use super::Shared;
use std::collections::BTreeMap;
use towline_api::ClientError;
use towline_api::buffer::NewBuffer;

/// The outputs of this attempt, or why there are none.
pub(super) enum Outputs {
    /// Buffers by parameter, and those of them that are new.
    Ready { all: BTreeMap<String, String>, replaced: BTreeMap<String, String> },
    /// An output that a client gave was written by an earlier attempt.
    Written { name: String, buffer: String },
}

impl Shared {
    /// Replaces outputs that an earlier attempt began to write, if the server created them.
    pub(super) async fn outputs_of_attempt(
        &self,
        mut all: BTreeMap<String, String>,
        created: &[String],
        attempt: u32,
    ) -> Result<Outputs, ClientError> {
        let mut replaced = BTreeMap::new();
        if attempt <= 1 {
            return Ok(Outputs::Ready { all, replaced });
        }
        for (name, buffer) in &mut all {
            if self.client.buffer(buffer).await?.state == "empty" {
                continue;
            }
            if !created.contains(name) {
                return Ok(Outputs::Written { name: name.clone(), buffer: buffer.clone() });
            }
            *buffer = self.client.create_buffer(&NewBuffer::default()).await?.id;
            replaced.insert(name.clone(), buffer.clone());
        }
        Ok(Outputs::Ready { all, replaced })
    }
}
