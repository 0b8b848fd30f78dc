//! Nodes: what they say of themselves, and the buffers for their logs.

use crate::error::ComputeError;
use crate::pools::check_name;
use crate::records::Records;
use crate::{Compute, Result};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use towline_api::compute::{NodeBeat, NodeShown, StopRequests, log_buffer};
use towline_api::{LeaseToken, Text};
use towline_buffers::NewBuffer;
use towline_domain::refusal::LostWhy;
use towline_domain::{FieldSet, ItemId, Millis, Refusal, Timestamp};

const NODES: &str = "towline/node/";
/// How often the record of a node is written if nothing in it has changed: an idle node should not keep the disk busy.
const WRITE_EVERY: Millis = Millis::seconds(30);
/// A node that was silent for this long is not listed.
const SILENT_MAX: Millis = Millis::seconds(75);
/// How long logs are kept.
const LOG_TTL: Millis = Millis::days(7);
const HOLDS_MAX: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Node {
    pool: String,
    runner: String,
    slots: u32,
    used: u32,
    version: String,
    beat_at: Timestamp,
}

impl Compute {
    fn nodes(&self) -> Records<'_, Node> {
        Records::new(self.broker(), NODES)
    }

    /// Records that a node works, and answers what it should stop. Waits for that, at most this long.
    pub async fn beat(&self, name: &str, beat: NodeBeat, at_most: Duration) -> Result<StopRequests> {
        check_name("node", name)?;
        check_name("instance", &beat.instance)?;
        if beat.holds.len() > HOLDS_MAX {
            let message = format!("{} items; a node holds at most {HOLDS_MAX}", beat.holds.len());
            return Err(ComputeError::invalid("holds", message));
        }
        let used = u32::try_from(beat.holds.len()).unwrap_or(u32::MAX);
        let holds = beat.holds.into_iter().map(|id| id.into_domain("holds"));
        let holds: Vec<ItemId> = holds.collect::<std::result::Result<_, _>>()?;
        let node = Node {
            pool: beat.pool,
            runner: beat.runner,
            slots: beat.slots,
            used,
            version: beat.version,
            beat_at: self.broker().now(),
        };
        self.write_node(format!("{name}/{}", beat.instance), node).await?;
        Ok(StopRequests { stop: self.wait_for_stops(&holds, at_most).await? })
    }

    async fn write_node(&self, key: String, node: Node) -> Result<()> {
        let is_written = self.0.nodes_written.lock().get(&key).is_some_and(|written| {
            let age = node.beat_at.0.saturating_sub(written.beat_at.0);
            age < WRITE_EVERY.0 && *written == Node { beat_at: written.beat_at, ..node.clone() }
        });
        if !is_written {
            self.nodes().set(&key, &node, Some(SILENT_MAX)).await?;
            let mut written = self.0.nodes_written.lock();
            written.retain(|_, other| node.beat_at.0.saturating_sub(other.beat_at.0) < SILENT_MAX.0);
            written.insert(key, node);
        }
        Ok(())
    }

    /// A node that ends takes itself off the list.
    pub async fn remove_node(&self, name: &str, instance: &str) -> Result<()> {
        self.0.nodes_written.lock().remove(&format!("{name}/{instance}"));
        self.nodes().delete(&format!("{name}/{instance}")).await
    }

    /// In order of name.
    pub async fn list_nodes(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<NodeShown>, Option<String>)> {
        let (found, next) = self.nodes().page(after, limit).await?;
        let shown = |(name, node): (String, Node)| NodeShown {
            name: name.split('/').next().unwrap_or_default().to_owned(),
            pool: node.pool,
            runner: node.runner,
            slots: node.slots,
            used: node.used,
            version: node.version,
            last_beat_at: node.beat_at.into(),
        };
        Ok((found.into_iter().map(shown).collect(), next))
    }

    /// How many nodes serve a pool.
    pub(crate) async fn nodes_of(&self, pool: &str) -> Result<usize> {
        Ok(self.nodes().all().await?.iter().filter(|(_, node)| node.pool == pool).count())
    }

    /// Creates the buffer for the log of the delivery under this lease, and answers its id.
    pub async fn create_log(&self, id: ItemId, lease: Option<Text<LeaseToken>>) -> Result<String> {
        let found = self.item(id, FieldSet::HEADS).await?;
        let head = found.ok_or_else(|| ComputeError::RunNotFound { id: id.to_string() })?.item.head;
        let held = head
            .lease()
            .is_some_and(|held| matches!(&lease, Some(Text::Good(token)) if *token == held.token));
        if !held {
            return Err(Refusal::LeaseLost { id, why: LostWhy::Superseded }.into());
        }
        let buffer = log_buffer(id, head.deliveries);
        let now = self.broker().now();
        let expires_at_ms = Some(now.after(LOG_TTL).0);
        let tags = [("towline.log-of".to_owned(), id.to_string())].into();
        match self.0.buffers.create(&buffer, NewBuffer { tags, expires_at_ms }, now.0).await {
            // A repeated call.
            Ok(_) | Err(towline_buffers::BufferError::Exists { .. }) => Ok(buffer),
            Err(error) => Err(error.into()),
        }
    }
}
