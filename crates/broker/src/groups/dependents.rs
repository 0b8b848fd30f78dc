//! The dependents that this server knows, by what they wait for.

use std::collections::{HashMap, HashSet};
use towline_domain::{Dependency, DependsOn, GroupTag, ItemId};

#[derive(Debug, Default)]
pub(super) struct Dependents {
    waiting: HashMap<ItemId, Dependency>,
    of_item: HashMap<ItemId, HashSet<ItemId>>,
    of_group: HashMap<GroupTag, HashSet<ItemId>>,
}

impl Dependents {
    pub(super) fn get(&self, id: ItemId) -> Option<&Dependency> {
        self.waiting.get(&id)
    }

    pub(super) fn all(&self) -> Vec<ItemId> {
        self.waiting.keys().copied().collect()
    }

    pub(super) fn of_item(&self, id: ItemId) -> impl Iterator<Item = ItemId> {
        self.of_item.get(&id).into_iter().flatten().copied()
    }

    pub(super) fn of_group(&self, tag: GroupTag) -> impl Iterator<Item = ItemId> {
        self.of_group.get(&tag).into_iter().flatten().copied()
    }

    /// Adds a dependent, or replaces its dependency.
    pub(super) fn put(&mut self, id: ItemId, after: Dependency) {
        self.remove(id);
        match &after.on {
            DependsOn::Group { name, .. } => {
                self.of_group.entry(GroupTag::of(name)).or_default().insert(id);
            }
            DependsOn::Items { ids, .. } => {
                for dependency in ids {
                    self.of_item.entry(*dependency).or_default().insert(id);
                }
            }
        }
        self.waiting.insert(id, after);
    }

    pub(super) fn remove(&mut self, id: ItemId) {
        let Some(after) = self.waiting.remove(&id) else { return };
        match after.on {
            DependsOn::Group { name, .. } => remove_from(&mut self.of_group, GroupTag::of(&name), id),
            DependsOn::Items { ids, .. } => {
                for dependency in ids {
                    remove_from(&mut self.of_item, dependency, id);
                }
            }
        }
    }
}

fn remove_from<K: std::hash::Hash + Eq>(index: &mut HashMap<K, HashSet<ItemId>>, key: K, id: ItemId) {
    if let Some(waiting) = index.get_mut(&key) {
        waiting.remove(&id);
        if waiting.is_empty() {
            index.remove(&key);
        }
    }
}
