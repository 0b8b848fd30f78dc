//! The keys of the records in the store. Each begins with the prefix of the system, so that systems can share a store.

use crate::envelope::PREFIX;
use std::borrow::Cow;

#[derive(Debug)]
pub(crate) struct StoreKeys(pub(crate) String);

impl StoreKeys {
    /// The prefix as an envelope carries it. The default is borrowed: most envelopes have it.
    pub(crate) fn prefix(&self) -> Cow<'static, str> {
        if self.0 == PREFIX { Cow::Borrowed(PREFIX) } else { Cow::Owned(self.0.clone()) }
    }

    /// Allocates once: the engine makes several keys for each piece of work.
    fn key<const N: usize>(&self, parts: [&str; N]) -> String {
        let mut key =
            String::with_capacity(self.0.len() + parts.iter().map(|part| part.len()).sum::<usize>());
        key.push_str(&self.0);
        key.extend(parts);
        key
    }

    /// The message that wakes waiters: `done` and an id, or `group` and a group.
    pub(crate) fn message(&self, what: &str, of: &str) -> String {
        self.key([what, " ", of])
    }

    /// The result record of a piece of work.
    pub(crate) fn result(&self, id: &str) -> String {
        self.key(["result:", id])
    }

    /// The counter of the unfinished members of a group.
    pub(crate) fn unfinished(&self, group: &str) -> String {
        self.key(["group:", group, ":open"])
    }

    pub(crate) fn group_result(&self, group: &str) -> String {
        self.key(["group:", group, ":result"])
    }

    /// The counter of the values appended to a group.
    pub(crate) fn appended_count(&self, group: &str) -> String {
        self.key(["group:", group, ":appended"])
    }

    pub(crate) fn appended(&self, group: &str, n: i64) -> String {
        format!("{}group:{group}:appended:{n}", self.0)
    }

    /// The state of an unfinished piece of work.
    pub(crate) fn state(&self, id: &str) -> String {
        self.key(["state:", id])
    }

    /// The counter of the members of a group.
    pub(crate) fn member_count(&self, group: &str) -> String {
        self.key(["group:", group, ":members"])
    }

    pub(crate) fn member(&self, group: &str, n: i64) -> String {
        format!("{}group:{group}:members:{n}", self.0)
    }

    /// Present while a waiter waits for the group.
    pub(crate) fn group_waiter(&self, group: &str) -> String {
        format!("{}wait:{group}", self.0)
    }

    /// Present once a system has checked whether the group is an orphan.
    pub(crate) fn orphan_check(&self, group: &str) -> String {
        format!("{}group-handled:{group}", self.0)
    }

    pub(crate) fn claim(&self, key: &str) -> String {
        format!("{}claim:{key}", self.0)
    }

    /// Work that waits for its dependencies.
    pub(crate) fn dependent(&self, id: &str) -> String {
        format!("{}dependent:{id}", self.0)
    }

    /// The counter of the dependencies that ended.
    pub(crate) fn dependencies_ended(&self, id: &str) -> String {
        format!("{}dependent:{id}:ended", self.0)
    }

    /// The counter of the dependencies that completed.
    pub(crate) fn dependencies_completed(&self, id: &str) -> String {
        format!("{}dependent:{id}:completed", self.0)
    }

    /// The counter of the work that depends on this work.
    pub(crate) fn dependent_count(&self, id: &str) -> String {
        self.key(["waiters:", id])
    }

    pub(crate) fn dependent_of(&self, id: &str, n: i64) -> String {
        format!("{}waiters:{id}:{n}", self.0)
    }
}
