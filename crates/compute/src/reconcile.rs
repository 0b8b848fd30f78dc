//! Keeps services and triggers as they should be, again and again: what a crash left half done, replicas that ended, and
//! services that follow the number of ready items.

use crate::items::{Kind, filter};
use crate::services::Lull;
use crate::{Compute, Result};
use std::collections::HashMap;
use std::time::Duration;
use towline_api::compute::tag;
use towline_domain::StateName;

/// How often the server looks by itself.
const EVERY: Duration = Duration::from_secs(2);

impl Compute {
    /// Runs until it is dropped.
    pub async fn keep(self) {
        let mut lull = Lull::default();
        loop {
            let changed = self.0.changed.notified();
            if let Err(error) = self.reconcile(&mut lull).await {
                tracing::warn!("cannot look after services and triggers, trying again: {error}");
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    async fn reconcile(&self, lull: &mut Lull) -> Result<()> {
        self.tidy_stops().await?;
        let mut failed = None;
        for (name, service) in self.service_records().all().await? {
            // One service that cannot be looked after does not keep the others waiting.
            if let Err(error) = self.keep_service(&name, &service, lull).await {
                failed.get_or_insert(error);
            }
        }
        for (_, trigger) in self.trigger_records().all().await? {
            if let Err(error) = self.reconcile_trigger(&trigger).await {
                failed.get_or_insert(error);
            }
        }
        self.stop_orphans().await?;
        failed.map_or(Ok(()), Err)
    }

    async fn keep_service(
        &self,
        name: &str,
        service: &crate::services::ServiceRecord,
        lull: &mut Lull,
    ) -> Result<()> {
        self.autoscale(service, lull).await?;
        let service = self.service_record(name).await?.value;
        self.reconcile_service(&service).await
    }

    /// Stops the replicas and slots of services and triggers that were deleted, also if they were created again.
    async fn stop_orphans(&self) -> Result<()> {
        let services =
            self.service_records().all().await?.into_iter().map(|(name, at)| (name, at.uid)).collect();
        let triggers =
            self.trigger_records().all().await?.into_iter().map(|(name, at)| (name, at.uid)).collect();
        self.stop_orphans_of(Kind::Replica, tag::SERVICE, &services, "the service was deleted").await?;
        self.stop_orphans_of(Kind::Slot, tag::TRIGGER, &triggers, "the trigger was deleted").await
    }

    async fn stop_orphans_of(
        &self,
        kind: Kind,
        owner: &str,
        uids: &HashMap<String, String>,
        reason: &str,
    ) -> Result<()> {
        let asked = filter(None, Some(StateName::Unfinished), &[(tag::KIND, kind.name())]);
        for stored in self.all_items(asked).await? {
            let body = &stored.item.body;
            let uid = body.tags.get(owner).and_then(|name| uids.get(name));
            let key = body.idempotency_key.as_deref().unwrap_or_default();
            if uid.is_none_or(|uid| !key.starts_with(uid.as_str())) {
                self.stop_item(&stored, reason).await?;
            }
        }
        Ok(())
    }
}
