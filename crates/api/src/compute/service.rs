//! Wire types of services: a program that runs in replicas until it is stopped.

use super::codespec::CodespecBody;
use super::reference::CodespecRef;
use crate::invalid::invalid;
use crate::text::Text;
use crate::time::Time;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use towline_domain::{ItemId, Refusal};
use utoipa::ToSchema;

/// Maximum number of replicas of a service.
const REPLICAS_MAX: u32 = 1000;

/// How many replicas: a number, or a range that follows the number of ready items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Replicas {
    #[schema(maximum = 1000)]
    pub min: u32,
    #[schema(maximum = 1000)]
    pub max: u32,
    /// Ready items of the bound queues for each replica. Required if `max` is above `min`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_replica: Option<u64>,
}

impl Default for Replicas {
    fn default() -> Replicas {
        Replicas::fixed(1)
    }
}

impl Replicas {
    #[must_use]
    pub fn fixed(count: u32) -> Replicas {
        Replicas { min: count, max: count, per_replica: None }
    }

    pub fn checked(self) -> Result<Replicas, Refusal> {
        let Replicas { min, max, per_replica } = self;
        if max > REPLICAS_MAX {
            return Err(invalid("replicas", format!("{max} is out of range; use 0 to {REPLICAS_MAX}")));
        }
        if min > max {
            return Err(invalid("replicas", format!("min {min} is above max {max}")));
        }
        match per_replica {
            None if min < max => {
                Err(invalid("replicas", "a range needs per_replica, the ready items for each replica"))
            }
            Some(0) => Err(invalid("replicas", "per_replica is 0; use at least 1")),
            Some(_) if min == max => Ok(Replicas::fixed(min)),
            _ => Ok(self),
        }
    }

    /// How many replicas this many ready items want.
    #[must_use]
    pub fn wanted(self, ready: u64) -> u32 {
        let Some(per_replica) = self.per_replica else { return self.max };
        let wanted = u32::try_from(ready.div_ceil(per_replica)).unwrap_or(u32::MAX);
        wanted.clamp(self.min, self.max)
    }
}

impl<'de> Deserialize<'de> for Replicas {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Replicas, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Range {
            min: u32,
            max: u32,
            #[serde(default)]
            per_replica: Option<u64>,
        }
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Replicas;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of replicas, or an object with min, max and per_replica")
            }
            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Replicas, E> {
                let count =
                    u32::try_from(count).map_err(|_| E::custom(format!("{count} replicas are too many")))?;
                Ok(Replicas::fixed(count))
            }
            fn visit_i64<E: de::Error>(self, count: i64) -> Result<Replicas, E> {
                let count = u64::try_from(count)
                    .map_err(|_| E::custom(format!("{count} is not a number of replicas")))?;
                self.visit_u64(count)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Replicas, A::Error> {
                let Range { min, max, per_replica } =
                    Range::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(Replicas { min, max, per_replica })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A service to create.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewService {
    /// The code: `NAME`, `NAME@VERSION`, or a codespec. Without a version, `restart` takes up the newest one.
    pub codespec: CodespecRef,
    /// Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Replicas>,
    /// Queues by the keys that the codespec declares.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, String>,
    /// The pool of nodes that may run replicas. Default: the pool of the codespec, or `default`.
    #[serde(alias = "nodePool", alias = "node_pool", skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// A change of the number of replicas.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScaleService {
    pub replicas: Replicas,
}

/// What a node needs to know of a replica. It is the payload of the replica's item.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaSpec {
    pub service: String,
    pub index: u32,
    pub generation: u64,
    pub codespec: String,
    pub spec: CodespecBody,
    pub queues: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    /// It waits for a node.
    #[default]
    Pending,
    Running,
    /// It exited, and its node starts it again after a pause.
    Restarting,
    Stopping,
    /// It exited with 0 because a bound queue is completed.
    Completed,
    Failed,
}

impl ReplicaState {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReplicaState::Pending => "pending",
            ReplicaState::Running => "running",
            ReplicaState::Restarting => "restarting",
            ReplicaState::Stopping => "stopping",
            ReplicaState::Completed => "completed",
            ReplicaState::Failed => "failed",
        }
    }
}

/// What the node reports of a replica. It is the `state_blob` of the replica's item.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub state: ReplicaState,
    pub restarts: u32,
    /// Crashes since it last was healthy for ten minutes.
    pub crashes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// How it last exited, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
    pub logged: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaShown {
    pub index: u32,
    #[schema(value_type = String, format = Uuid)]
    pub id: Text<ItemId>,
    pub state: ReplicaState,
    /// `NAME@VERSION` of its codespec.
    pub codespec: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub restarts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Time>,
    /// The buffer with its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    Running,
    /// It has no replicas: it is scaled to zero, or its queues are completed.
    Stopped,
    /// It crashed again and again, and is not started any more.
    Failed,
}

impl ServiceState {
    pub const ALL: [ServiceState; 3] = [ServiceState::Running, ServiceState::Stopped, ServiceState::Failed];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ServiceState::Running => "running",
            ServiceState::Stopped => "stopped",
            ServiceState::Failed => "failed",
        }
    }
}

impl fmt::Display for ServiceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ServiceState {
    type Err = String;
    fn from_str(text: &str) -> Result<ServiceState, String> {
        let found = ServiceState::ALL.into_iter().find(|state| state.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("not one of {}", ServiceState::ALL.map(ServiceState::name).join(", ")))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServiceShown {
    pub name: String,
    pub state: ServiceState,
    /// Why it is stopped or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `NAME@VERSION`.
    pub codespec: String,
    pub replicas: Replicas,
    /// How many replicas there should be now.
    pub wanted: u32,
    pub running: u32,
    pub queues: BTreeMap<String, String>,
    pub pool: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    #[schema(value_type = String, format = DateTime)]
    pub changed_at: Time,
    /// In order of index. Not in lists.
    #[serde(default, rename = "replica_list", skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<ReplicaShown>,
    /// What the operator may not expect, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServicePage {
    pub services: Vec<ServiceShown>,
    /// Pass this as `cursor` to get the next page. `null`: this is the last page.
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    fn replicas(json: &str) -> Result<Replicas, String> {
        let given: ScaleService = Format::Json
            .decode(format!("{{\"replicas\": {json}}}").as_bytes())
            .map_err(|error| error.to_string())?;
        given.replicas.checked().map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn replicas_are_a_number_or_a_range() {
        assert_eq!(replicas("3"), Ok(Replicas::fixed(3)));
        let range = replicas(r#"{"min": 1, "max": 8, "per_replica": 100}"#).unwrap();
        assert_eq!([0, 1, 100, 101, 799, 10_000].map(|ready| range.wanted(ready)), [1, 1, 1, 2, 8, 8]);
        assert_eq!(Replicas::fixed(0).wanted(5), 0);
        for (json, part) in [
            ("-1", "-1"),
            ("1001", "out of range"),
            (r#"{"min": 2, "max": 1}"#, "above max"),
            (r#"{"min": 1, "max": 2}"#, "per_replica"),
            (r#"{"min": 1, "max": 2, "per_replica": 0}"#, "at least 1"),
            (r#"{"min": 1}"#, "max"),
            (r#""two""#, "number of replicas"),
        ] {
            let error = replicas(json).unwrap_err();
            assert!(error.contains(part), "{json}: {error}");
        }
    }
}
