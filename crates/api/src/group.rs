//! Wire types of groups, and of an item's dependency.

use crate::invalid::{invalid, not_one_of};
use crate::policy::count;
use crate::text::Text;
use serde::{Deserialize, Serialize};
use towline_domain::{Condition, Dependency, DependsOn, GroupCounts, ItemId, Refusal};
use utoipa::ToSchema;

/// What an item waits for before the server delivers it: a group or items. Give one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DependencyBody {
    /// Wait for the members of this group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How many members the group will have. The group is not done before it has this many, even if all
    /// current members have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub expect: Option<i64>,
    /// Wait for these items, at most 100. In an answer: the items that have not ended yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub items: Option<Vec<Text<ItemId>>>,
    /// `all-success` (default): all must complete; if one fails, this item fails too. `all-done`: all must
    /// end, in any way. `count-of`: `count` of them must complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub count: Option<i64>,
}

const AFTER: &str = "after";

impl TryFrom<DependencyBody> for Dependency {
    type Error = Refusal;

    fn try_from(body: DependencyBody) -> Result<Dependency, Refusal> {
        let on = match (body.group, body.items) {
            (Some(name), None) => DependsOn::Group {
                name,
                expect: body.expect.map_or(Ok(0), |expect| count("after.expect", expect))?,
            },
            (None, Some(_)) if body.expect.is_some() => {
                return Err(invalid(AFTER, "`expect` needs a `group`; it does not apply to `items`"));
            }
            (None, Some(ids)) => {
                let ids: Result<_, _> = ids.into_iter().map(|id| id.into_domain("after.items")).collect();
                DependsOn::items(ids?)
            }
            _ => return Err(invalid(AFTER, "give either a `group` or `items`")),
        };
        let when = match (body.when.as_deref(), body.count) {
            (None | Some("all-success"), None) => Condition::AllSuccess,
            (Some("all-done"), None) => Condition::AllDone,
            (None | Some("count-of"), Some(n)) => Condition::CountOf(count("after.count", n)?),
            (Some("count-of"), None) => return Err(invalid(AFTER, "`count-of` needs a `count`")),
            (Some("all-success" | "all-done"), Some(_)) => {
                return Err(invalid(AFTER, "`count` needs `when` to be count-of"));
            }
            (Some(other), _) => {
                return Err(not_one_of("after.when", other, "all-success, all-done, count-of"));
            }
        };
        Ok(Dependency { on, when })
    }
}

impl From<&Dependency> for DependencyBody {
    fn from(after: &Dependency) -> DependencyBody {
        let (when, count) = match after.when {
            Condition::AllSuccess => ("all-success", None),
            Condition::AllDone => ("all-done", None),
            Condition::CountOf(n) => ("count-of", Some(i64::from(n))),
        };
        let body = DependencyBody { when: Some(when.to_owned()), count, ..DependencyBody::default() };
        match &after.on {
            DependsOn::Group { name, expect } => {
                let expect = Some(*expect).filter(|&expect| expect > 0).and_then(|n| i64::try_from(n).ok());
                DependencyBody { group: Some(name.clone()), expect, ..body }
            }
            DependsOn::Items { ids, .. } => {
                DependencyBody { items: Some(ids.iter().copied().map(Text::from).collect()), ..body }
            }
        }
    }
}

/// The progress of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupShown {
    pub group: String,
    /// Whether the group has as many members as expected, at least one, and all have ended.
    pub done: bool,
    /// Members so far.
    pub members: u64,
    pub unfinished: u64,
    pub completed: u64,
    /// Includes cancelled and expired members.
    pub failed: u64,
    /// Members that were deleted before they ended.
    pub removed: u64,
    /// Notes that are not errors, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl GroupShown {
    #[must_use]
    pub fn new(group: String, counts: &GroupCounts, done: bool) -> GroupShown {
        let empty =
            (counts.members == 0).then(|| format!("group {group:?} has no members yet; is this its name?"));
        GroupShown {
            notes: empty.into_iter().collect(),
            group,
            done,
            members: counts.members,
            unfinished: counts.unfinished(),
            completed: counts.completed,
            failed: counts.failed,
            removed: counts.removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Dependency, Refusal> {
        serde_json::from_str::<DependencyBody>(json).unwrap().try_into()
    }

    #[test]
    fn a_shown_dependency_parses_to_the_same_dependency() {
        let id = "018f4e7e-2b3c-7def-8abc-0123456789ab";
        for json in [
            r#"{"group":"g","when":"all-success"}"#.to_owned(),
            r#"{"group":"g","expect":10,"when":"all-done"}"#.to_owned(),
            r#"{"group":"g","when":"count-of","count":3}"#.to_owned(),
            format!(r#"{{"items":["{id}"],"when":"all-done"}}"#),
        ] {
            let shown = DependencyBody::from(&parse(&json).unwrap());
            assert_eq!(serde_json::to_string(&shown).unwrap(), json);
        }
        assert_eq!(parse(r#"{"group":"g"}"#).unwrap().when, Condition::AllSuccess);
        assert_eq!(parse(r#"{"group":"g","count":2}"#).unwrap().when, Condition::CountOf(2));
    }

    #[test]
    fn an_invalid_dependency_is_refused() {
        for json in [
            "{}",
            r#"{"group":"g","items":[]}"#,
            r#"{"items":["x"]}"#,
            r#"{"items":[],"expect":1}"#,
            r#"{"group":"g","expect":-1}"#,
            r#"{"group":"g","when":"some"}"#,
            r#"{"group":"g","when":"count-of"}"#,
            r#"{"group":"g","when":"count-of","count":-1}"#,
            r#"{"group":"g","when":"all-done","count":1}"#,
        ] {
            assert!(parse(json).is_err(), "{json}");
        }
    }
}
