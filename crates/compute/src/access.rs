//! The token of a replica or a slot: derived from its lease, so it ends with the lease, and nothing has to be stored or
//! revoked.

use crate::items::{Kind, WHOLE, spec};
use crate::{Compute, Result};
use std::collections::BTreeSet;
use towline_api::compute::{LeaseSecret, ReplicaSpec, SlotSpec};

/// What the holder of a lease on a replica or a slot may do, besides reading and writing buffers by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// Who holds the lease, in words.
    pub name: String,
    /// Queues from which it may receive, to which it may submit, and which it may read.
    pub queues: BTreeSet<String>,
}

impl Compute {
    /// The rights of a token. `None`: its lease has ended, or there never was one.
    pub async fn rights(&self, secret: &LeaseSecret) -> Result<Option<Rights>> {
        let Some(stored) = self.item(secret.item, WHOLE).await? else { return Ok(None) };
        let Some(lease) = stored.item.head.lease() else { return Ok(None) };
        if !secret.is_of(lease.token) || lease.deadline <= self.broker().now() {
            return Ok(None);
        }
        Ok(match Kind::of(&stored) {
            Some(Kind::Replica) => {
                let ReplicaSpec { service, index, queues, .. } = spec(&stored)?;
                Some(Rights {
                    name: format!("replica {index} of service {service}"),
                    queues: queues.into_values().collect(),
                })
            }
            Some(Kind::Slot) => {
                let SlotSpec { trigger, index, input_queue, output_queues, .. } = spec(&stored)?;
                let queues =
                    output_queues.into_iter().map(|output| output.queue).chain([input_queue]).collect();
                Some(Rights { name: format!("slot {index} of trigger {trigger}"), queues })
            }
            Some(Kind::Run) | None => None,
        })
    }
}
