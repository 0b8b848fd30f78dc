//! Services: a program that runs in replicas. Each replica is an item that stays leased by the node that runs it.

mod change;
mod reconcile;
mod show;

use crate::Compute;
use crate::error::ComputeError;
use crate::records::{Records, Seen, TRIES, contended};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towline_api::Time;
use towline_api::compute::{CodespecBody, Replicas, ServiceState};

pub(crate) use reconcile::Lull;

const SERVICES: &str = "towline/service/";

/// A service as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServiceRecord {
    pub(crate) name: String,
    /// A service that is deleted and created again is another one.
    pub(crate) uid: String,
    /// What the operator named: a restart takes up the newest version, unless this has one.
    pub(crate) given: String,
    /// `NAME@VERSION`.
    pub(crate) codespec: String,
    pub(crate) spec: CodespecBody,
    pub(crate) replicas: Replicas,
    /// Within the range of `replicas`.
    pub(crate) wanted: u32,
    pub(crate) queues: BTreeMap<String, String>,
    pub(crate) pool: String,
    /// Rises with each restart. Replicas of earlier generations are replaced.
    pub(crate) generation: u64,
    /// Why it is not started any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
    /// Its queues are completed, and all replicas exited with 0.
    #[serde(default)]
    pub(crate) done: bool,
    pub(crate) created_at: Time,
    pub(crate) changed_at: Time,
}

impl ServiceRecord {
    pub(crate) fn state(&self) -> ServiceState {
        match (&self.failed, self.done || self.wanted == 0) {
            (Some(_), _) => ServiceState::Failed,
            (None, true) => ServiceState::Stopped,
            (None, false) => ServiceState::Running,
        }
    }

    /// How many replicas there should be now.
    pub(crate) fn target(&self) -> u32 {
        if self.state() == ServiceState::Running { self.wanted } else { 0 }
    }
}

impl Compute {
    pub(crate) fn service_records(&self) -> Records<'_, ServiceRecord> {
        Records::new(self.broker(), SERVICES)
    }

    pub(crate) async fn service_record(&self, name: &str) -> crate::Result<Seen<ServiceRecord>> {
        let found = self.service_records().get(name).await?;
        found.ok_or_else(|| ComputeError::ServiceNotFound { name: name.to_owned() })
    }

    /// Changes a service. The change may be made several times, each time on what another client left.
    pub(crate) async fn change_service(
        &self,
        name: &str,
        change: impl Fn(&mut ServiceRecord),
    ) -> crate::Result<ServiceRecord> {
        for _ in 0..TRIES {
            let seen = self.service_record(name).await?;
            let mut after = seen.value.clone();
            change(&mut after);
            if after == seen.value {
                return Ok(after);
            }
            after.changed_at = self.broker().now().into();
            if self.service_records().replace(name, Some(seen.bytes), Some(&after)).await? {
                self.0.changed.notify_waiters();
                return Ok(after);
            }
        }
        Err(contended(&format!("service {name}")).into())
    }
}
