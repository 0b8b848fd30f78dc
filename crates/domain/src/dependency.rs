//! Dependencies: an item that is not delivered before a group, or items by their ids, have ended.

use crate::digest;
use crate::id::ItemId;
use crate::limits;
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

/// A hash of a group's name. Every head and every event of a member carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupTag(pub NonZeroU64);

impl GroupTag {
    #[must_use]
    pub fn of(name: &str) -> GroupTag {
        GroupTag(NonZeroU64::new(digest::group(name)).unwrap_or(NonZeroU64::MIN))
    }
}

/// The members of a group by how they ended. A member that was removed unfinished counts as `removed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupCounts {
    pub members: u64,
    pub completed: u64,
    pub failed: u64,
    pub removed: u64,
}

impl GroupCounts {
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.members.saturating_sub(self.completed).saturating_sub(self.badly())
    }

    fn badly(&self) -> u64 {
        self.failed.saturating_add(self.removed)
    }

    /// Whether the group has the expected number of members, at least one, and all have ended.
    #[must_use]
    pub fn is_done(&self, expect: u64) -> bool {
        self.members >= expect.max(1) && self.unfinished() == 0
    }
}

/// What an item waits for. Stored with the item while it waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    pub on: DependsOn,
    pub when: Condition,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependsOn {
    /// The group is not done before it has `expect` members.
    Group { name: String, expect: u64 },
    /// `ids` are the items that are not known to have ended. `well` and `badly` count the items that completed, and the
    /// items that ended otherwise.
    Items { ids: Vec<ItemId>, well: u32, badly: u32 },
}

impl DependsOn {
    #[must_use]
    pub fn items(mut ids: Vec<ItemId>) -> DependsOn {
        ids.sort_unstable();
        ids.dedup();
        DependsOn::Items { ids, well: 0, badly: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// All have completed. One that ends otherwise makes this impossible.
    AllSuccess,
    /// All have ended, completed or not.
    AllDone,
    /// This many have completed.
    CountOf(u32),
}

/// What the broker has seen of an item's dependency.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DependencyState {
    pub group: Option<GroupCounts>,
    /// Items that have ended, and whether they completed.
    pub ended: Vec<(ItemId, bool)>,
}

/// What to do with the dependent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DependencyVerdict {
    Waiting,
    Met,
    /// The condition can no longer be met, with the reason.
    Impossible(String),
}

impl Dependency {
    pub(crate) fn check(&self, own_id: Option<ItemId>, own_group: Option<&str>) -> Result<(), Refusal> {
        let invalid = |message: String| Err(Refusal::invalid("after", message));
        let of = match &self.on {
            DependsOn::Group { name, .. } if name.is_empty() || name.len() > limits::LABEL_BYTES_MAX => {
                return invalid(format!(
                    "the group's name has {} bytes; use 1 to {}",
                    name.len(),
                    limits::LABEL_BYTES_MAX
                ));
            }
            DependsOn::Group { name, .. } if own_group == Some(name) => {
                return invalid(format!(
                    "the item is in group {name:?} and would wait for itself; use two groups"
                ));
            }
            DependsOn::Group { expect, .. } if *expect > limits::GROUP_EXPECT_MAX => {
                return invalid(format!(
                    "expects {expect} members; use at most {}",
                    limits::GROUP_EXPECT_MAX
                ));
            }
            DependsOn::Group { expect, .. } => Some(*expect).filter(|&expect| expect > 0),
            DependsOn::Items { ids, well, .. }
                if (ids.is_empty() && *well == 0) || ids.len() > limits::AFTER_ITEMS_MAX =>
            {
                return invalid(format!(
                    "{} items; use 1 to {}, or a group",
                    ids.len(),
                    limits::AFTER_ITEMS_MAX
                ));
            }
            DependsOn::Items { ids, well, badly } => {
                if let Some(id) = own_id.filter(|id| ids.contains(id)) {
                    return invalid(format!("item {id} would wait for itself"));
                }
                Some(ids.len() as u64 + u64::from(*well) + u64::from(*badly))
            }
        };
        match (self.when, of) {
            (Condition::CountOf(0), _) => invalid("a count of 0; use at least 1".to_owned()),
            (Condition::CountOf(n), Some(of)) if u64::from(n) > of => invalid(format!(
                "a count of {n} cannot be reached with {of} items; use a count of at most {of}"
            )),
            _ => Ok(()),
        }
    }

    /// The dependency after these observations, and the verdict. A repeated observation changes nothing.
    #[must_use]
    pub fn observe(&self, seen: &DependencyState) -> (Dependency, DependencyVerdict) {
        match &self.on {
            DependsOn::Group { name, expect } => {
                let verdict = match &seen.group {
                    Some(counts) => of_group(self.when, name, *expect, counts),
                    None => DependencyVerdict::Waiting,
                };
                (self.clone(), verdict)
            }
            DependsOn::Items { ids, well, badly } => {
                let (mut ids, mut well, mut badly) = (ids.clone(), *well, *badly);
                let mut first_bad = None;
                for (id, is_well) in &seen.ended {
                    let Some(at) = ids.iter().position(|waited| waited == id) else { continue };
                    ids.remove(at);
                    if *is_well {
                        well += 1;
                    } else {
                        badly += 1;
                        first_bad.get_or_insert(*id);
                    }
                }
                let verdict = of_items(self.when, ids.len(), well, badly, first_bad);
                (Dependency { on: DependsOn::Items { ids, well, badly }, when: self.when }, verdict)
            }
        }
    }
}

fn of_group(when: Condition, name: &str, expect: u64, counts: &GroupCounts) -> DependencyVerdict {
    let impossible = || {
        let GroupCounts { members, failed, removed, .. } = counts;
        DependencyVerdict::Impossible(format!(
            "the item waited for group {name:?}; of its {members} members, {failed} failed and {removed} were removed"
        ))
    };
    let done = counts.is_done(expect);
    match when {
        Condition::AllDone if done => DependencyVerdict::Met,
        Condition::AllSuccess if counts.badly() > 0 => impossible(),
        Condition::AllSuccess if done => DependencyVerdict::Met,
        Condition::CountOf(n) if counts.completed >= u64::from(n) => DependencyVerdict::Met,
        // A group without an expected size can still grow.
        Condition::CountOf(n)
            if expect > 0 && counts.members.max(expect).saturating_sub(counts.badly()) < u64::from(n) =>
        {
            impossible()
        }
        Condition::AllDone | Condition::AllSuccess | Condition::CountOf(_) => DependencyVerdict::Waiting,
    }
}

fn of_items(when: Condition, left: usize, well: u32, badly: u32, bad: Option<ItemId>) -> DependencyVerdict {
    let impossible = || {
        let which = bad.map_or_else(String::new, |id| format!(", item {id} among them"));
        DependencyVerdict::Impossible(format!("{badly} of the items it waited for did not complete{which}"))
    };
    match when {
        Condition::AllSuccess if badly > 0 => impossible(),
        Condition::AllDone | Condition::AllSuccess if left == 0 => DependencyVerdict::Met,
        Condition::CountOf(n) if well >= n => DependencyVerdict::Met,
        Condition::CountOf(n) if left as u64 + u64::from(well) < u64::from(n) => impossible(),
        Condition::AllDone | Condition::AllSuccess | Condition::CountOf(_) => DependencyVerdict::Waiting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn id(n: u128) -> ItemId {
        ItemId(Uuid::from_u128(n))
    }

    fn items(n: u128, when: Condition) -> Dependency {
        Dependency { on: DependsOn::items((1..=n).map(id).collect()), when }
    }

    fn group(expect: u64, when: Condition) -> Dependency {
        Dependency { on: DependsOn::Group { name: "g".to_owned(), expect }, when }
    }

    fn ended(ended: &[(u128, bool)]) -> DependencyState {
        DependencyState { group: None, ended: ended.iter().map(|&(n, well)| (id(n), well)).collect() }
    }

    fn counts(members: u64, completed: u64, failed: u64, removed: u64) -> DependencyState {
        let counts = GroupCounts { members, completed, failed, removed };
        DependencyState { group: Some(counts), ended: Vec::new() }
    }

    fn impossible(verdict: &DependencyVerdict) -> bool {
        matches!(verdict, DependencyVerdict::Impossible(_))
    }

    #[test]
    fn an_item_seen_twice_counts_once() {
        let after = items(3, Condition::AllSuccess);
        let (after, verdict) = after.observe(&ended(&[(1, true), (1, true), (9, false)]));
        assert_eq!(verdict, DependencyVerdict::Waiting);
        let (again, verdict) = after.observe(&ended(&[(1, true)]));
        assert_eq!((&again, verdict), (&after, DependencyVerdict::Waiting));
        assert_eq!(after.observe(&ended(&[(2, true), (3, true)])).1, DependencyVerdict::Met);
        assert!(impossible(&after.observe(&ended(&[(2, false)])).1));
        // A later observation of the same item does not undo the first.
        assert_eq!(after.observe(&ended(&[(1, false)])).1, DependencyVerdict::Waiting);
    }

    #[test]
    fn all_done_needs_every_item_ended_and_a_count_needs_that_many_completed() {
        let both = ended(&[(1, false), (2, true)]);
        assert_eq!(items(2, Condition::AllDone).observe(&both).1, DependencyVerdict::Met);
        assert_eq!(items(2, Condition::CountOf(1)).observe(&both).1, DependencyVerdict::Met);
        assert!(impossible(&items(2, Condition::CountOf(2)).observe(&both).1));
        assert_eq!(items(3, Condition::CountOf(2)).observe(&both).1, DependencyVerdict::Waiting);
    }

    #[test]
    fn a_group_is_done_when_as_many_as_expected_have_ended() {
        let all_done = |expect, seen: DependencyState| group(expect, Condition::AllDone).observe(&seen).1;
        assert_eq!(all_done(0, counts(0, 0, 0, 0)), DependencyVerdict::Waiting, "a group without members");
        assert_eq!(all_done(0, counts(3, 1, 1, 0)), DependencyVerdict::Waiting);
        assert_eq!(all_done(0, counts(3, 1, 1, 1)), DependencyVerdict::Met);
        assert_eq!(all_done(4, counts(3, 3, 0, 0)), DependencyVerdict::Waiting, "one member is missing");
        assert_eq!(all_done(4, counts(5, 5, 0, 0)), DependencyVerdict::Met);
        assert_eq!(all_done(0, DependencyState::default()), DependencyVerdict::Waiting);
    }

    #[test]
    fn a_group_that_can_no_longer_succeed_says_why() {
        let success = group(0, Condition::AllSuccess);
        assert_eq!(success.observe(&counts(2, 2, 0, 0)).1, DependencyVerdict::Met);
        let DependencyVerdict::Impossible(why) = success.observe(&counts(9, 2, 1, 0)).1 else { panic!() };
        assert!(why.contains("\"g\"") && why.contains("1 failed"), "{why}");
        assert!(impossible(&success.observe(&counts(9, 2, 0, 1)).1));
        let two = |expect| group(expect, Condition::CountOf(2));
        assert_eq!(two(0).observe(&counts(5, 2, 3, 0)).1, DependencyVerdict::Met);
        assert_eq!(
            two(0).observe(&counts(5, 1, 4, 0)).1,
            DependencyVerdict::Waiting,
            "the group can still grow"
        );
        assert_eq!(two(6).observe(&counts(5, 1, 4, 0)).1, DependencyVerdict::Waiting);
        assert!(impossible(&two(5).observe(&counts(5, 1, 4, 0)).1));
    }

    #[test]
    fn a_dependency_that_cannot_be_met_is_refused() {
        let ids = |n: usize| (0..n as u128).map(id).collect();
        let of = |on, when| Dependency { on, when }.check(Some(id(500)), Some("own"));
        let name = |name: &str| DependsOn::Group { name: name.to_owned(), expect: 0 };
        assert!(of(DependsOn::items(ids(limits::AFTER_ITEMS_MAX)), Condition::AllDone).is_ok());
        for (on, when) in [
            (DependsOn::items(ids(limits::AFTER_ITEMS_MAX + 1)), Condition::AllDone),
            (DependsOn::items(ids(0)), Condition::AllDone),
            (DependsOn::items(vec![id(500)]), Condition::AllDone),
            (DependsOn::items(ids(2)), Condition::CountOf(3)),
            (DependsOn::items(vec![id(1), id(1)]), Condition::CountOf(2)),
            (name("g"), Condition::CountOf(0)),
            (name("own"), Condition::AllDone),
            (name(""), Condition::AllDone),
            (name(&"x".repeat(limits::LABEL_BYTES_MAX + 1)), Condition::AllDone),
            (DependsOn::Group { name: "g".to_owned(), expect: u64::MAX }, Condition::AllDone),
            (DependsOn::Group { name: "g".to_owned(), expect: 2 }, Condition::CountOf(3)),
        ] {
            assert!(of(on.clone(), when).is_err(), "{on:?} {when:?}");
        }
    }
}
