//! What few items have, as text: with names, so that a later version can add to it, and one before it reads the rest.

use crate::code;
use serde::{Deserialize, Serialize};
use towline_domain::{Extras, GroupTag, Head};

/// As it is read.
#[derive(Debug, Deserialize)]
pub(crate) struct Stored {
    #[serde(flatten)]
    extras: Box<Extras>,
    #[serde(default)]
    group: Option<GroupTag>,
    /// There is nothing but the group.
    #[serde(default)]
    bare: bool,
}

impl Stored {
    pub(crate) fn open(self) -> (Option<Box<Extras>>, Option<GroupTag>) {
        (Some(self.extras).filter(|_| !self.bare), self.group)
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    extras: &'a Extras,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<GroupTag>,
}

/// `None`: it has nothing of the kind.
pub(crate) fn to_json(head: &Head) -> Option<String> {
    match (&head.extras, head.group) {
        (Some(extras), group) => Some(code::to_json(&Whole { extras, group })),
        // Many members of a group have nothing else: the least that servers before there were groups can read.
        (None, Some(group)) => {
            let group = group.0;
            Some(format!(r#"{{"overrides":{{}},"lapses":0,"score":0,"group":{group},"bare":true}}"#))
        }
        (None, None) => None,
    }
}
