//! Who waits for whom, as far as this server knows: found by what has ended.

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

    /// This is what it waits for now.
    pub(super) fn put(&mut self, id: ItemId, after: Dependency) {
        self.remove(id);
        match &after.on {
            DependsOn::Group { name, .. } => {
                self.of_group.entry(GroupTag::of(name)).or_default().insert(id);
            }
            DependsOn::Items { ids, .. } => {
                for other in ids {
                    self.of_item.entry(*other).or_default().insert(id);
                }
            }
        }
        self.waiting.insert(id, after);
    }

    pub(super) fn remove(&mut self, id: ItemId) {
        let Some(after) = self.waiting.remove(&id) else { return };
        match after.on {
            DependsOn::Group { name, .. } => forget(&mut self.of_group, GroupTag::of(&name), id),
            DependsOn::Items { ids, .. } => {
                for other in ids {
                    forget(&mut self.of_item, other, id);
                }
            }
        }
    }
}

fn forget<K: std::hash::Hash + Eq>(index: &mut HashMap<K, HashSet<ItemId>>, key: K, id: ItemId) {
    if let Some(waiting) = index.get_mut(&key) {
        waiting.remove(&id);
        if waiting.is_empty() {
            index.remove(&key);
        }
    }
}
