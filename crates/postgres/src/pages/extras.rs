//! What few items have, as text: with names, so that a later version can add to it, and one before it reads the rest.

use crate::encoding::code;
use serde::{Deserialize, Serialize};
use towline_domain::{Extras, GroupTag, Head, KeyTag};

/// As it is read.
#[derive(Debug, Deserialize)]
pub(crate) struct Stored {
    #[serde(flatten)]
    extras: Box<Extras>,
    #[serde(default)]
    group: Option<GroupTag>,
    #[serde(default)]
    fairness: KeyTag,
    /// There is nothing but the group and the key.
    #[serde(default)]
    bare: bool,
}

impl Stored {
    pub(crate) fn open(self) -> (Option<Box<Extras>>, Option<GroupTag>, KeyTag) {
        (Some(self.extras).filter(|_| !self.bare), self.group, self.fairness)
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    extras: &'a Extras,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<GroupTag>,
    #[serde(skip_serializing_if = "KeyTag::is_none")]
    fairness: KeyTag,
}

pub(crate) fn are_any(head: &Head) -> bool {
    head.extras.is_some() || head.group.is_some() || !head.fairness_key.is_none()
}

/// `None`: it has nothing of the kind.
pub(crate) fn to_json(head: &Head) -> Option<String> {
    let (group, fairness) = (head.group, head.fairness_key);
    match &head.extras {
        Some(extras) => Some(code::to_json(&Whole { extras, group, fairness })),
        None if are_any(head) => {
            // Many have nothing else: the least that servers before there was such a thing can read.
            let mut text = r#"{"overrides":{},"lapses":0,"score":0"#.to_owned();
            if let Some(group) = group {
                text.push_str(&format!(r#","group":{}"#, group.0));
            }
            if !fairness.is_none() {
                text.push_str(&format!(r#","fairness":{}"#, fairness.number()));
            }
            text.push_str(r#","bare":true}"#);
            Some(text)
        }
        None => None,
    }
}
