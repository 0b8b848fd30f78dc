//! Properties that few items have, as JSON: a later version can add names, and an earlier one ignores them.

use crate::encoding::code;
use serde::{Deserialize, Serialize};
use towline_domain::{Extras, GroupTag, Head, KeyTag};

/// What the page codec reads.
#[derive(Debug, Deserialize)]
pub(crate) struct StoredExtras {
    extras: Option<Box<Extras>>,
    group: Option<GroupTag>,
    #[serde(default)]
    fairness: KeyTag,
}

impl StoredExtras {
    pub(crate) fn into_parts(self) -> (Option<Box<Extras>>, Option<GroupTag>, KeyTag) {
        (self.extras, self.group, self.fairness)
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
}

pub(crate) fn has_any(head: &Head) -> bool {
    head.extras.is_some() || head.group.is_some() || !head.fairness_key.is_none()
}

/// `None` if the item has none of these properties.
pub(crate) fn to_json(head: &Head) -> Option<String> {
    has_any(head).then(|| {
        let (extras, group, fairness) = (head.extras.as_deref(), head.group, head.fairness_key);
        code::to_json(&BorrowedExtras { extras, group, fairness })
    })
}
