//! Properties that few items have, as JSON: a later version can add names, and an earlier one ignores them.

use crate::encoding::code;
use serde::{Deserialize, Serialize};
use towline_domain::{Extras, GroupTag, Head, KeyTag, Timestamp};

/// What the page codec reads.
#[derive(Debug, Deserialize)]
pub(crate) struct StoredExtras {
    extras: Option<Box<Extras>>,
    group: Option<GroupTag>,
    #[serde(default)]
    fairness: KeyTag,
    changed_at: Option<Timestamp>,
    heartbeat_at: Option<Timestamp>,
}

impl StoredExtras {
    /// Sets the properties of the item.
    pub(crate) fn apply(self, head: &mut Head) {
        let StoredExtras { extras, group, fairness, changed_at, heartbeat_at } = self;
        (head.extras, head.group, head.fairness_key) = (extras, group, fairness);
        (head.changed_at, head.heartbeat_at) = (changed_at, heartbeat_at);
    }
}

/// What the page codec writes.
#[derive(Serialize)]
struct BorrowedExtras<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    extras: Option<&'a Extras>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<GroupTag>,
    #[serde(skip_serializing_if = "KeyTag::is_none")]
    fairness: KeyTag,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat_at: Option<Timestamp>,
}

pub(crate) fn has_any(head: &Head) -> bool {
    head.extras.is_some()
        || head.group.is_some()
        || !head.fairness_key.is_none()
        || head.changed_at.is_some()
        || head.heartbeat_at.is_some()
}

/// `None` if the item has none of these properties.
pub(crate) fn to_json(head: &Head) -> Option<String> {
    has_any(head).then(|| {
        let (extras, group, fairness) = (head.extras.as_deref(), head.group, head.fairness_key);
        let (changed_at, heartbeat_at) = (head.changed_at, head.heartbeat_at);
        code::to_json(&BorrowedExtras { extras, group, fairness, changed_at, heartbeat_at })
    })
}
