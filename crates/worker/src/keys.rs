//! Names in the store. Everything begins with the prefix, so that systems can share a store.

use crate::envelope::PREFIX;
use std::borrow::Cow;

#[derive(Debug)]
pub(crate) struct Keys(pub(crate) String);

impl Keys {
    /// As it is written with a piece of work.
    pub(crate) fn prefix(&self) -> Cow<'static, str> {
        if self.0 == PREFIX { Cow::Borrowed(PREFIX) } else { Cow::Owned(self.0.clone()) }
    }

    /// Several are made for each piece of work: at once in their length.
    fn of<const N: usize>(&self, parts: [&str; N]) -> String {
        let mut key =
            String::with_capacity(self.0.len() + parts.iter().map(|part| part.len()).sum::<usize>());
        key.push_str(&self.0);
        key.extend(parts);
        key
    }

    /// What is told to who waits.
    pub(crate) fn said(&self, what: &str, of: &str) -> String {
        self.of([what, " ", of])
    }

    /// How a piece of work ended.
    pub(crate) fn result(&self, id: &str) -> String {
        self.of(["result:", id])
    }

    /// How many of a group have not ended.
    pub(crate) fn open(&self, group: &str) -> String {
        self.of(["group:", group, ":open"])
    }

    pub(crate) fn group_result(&self, group: &str) -> String {
        self.of(["group:", group, ":result"])
    }

    /// How many were appended.
    pub(crate) fn appended(&self, group: &str) -> String {
        self.of(["group:", group, ":appended"])
    }

    pub(crate) fn append(&self, group: &str, n: i64) -> String {
        format!("{}group:{group}:appended:{n}", self.0)
    }

    /// How a piece of work stands that has not ended.
    pub(crate) fn state(&self, id: &str) -> String {
        self.of(["state:", id])
    }

    /// How many belong to a group.
    pub(crate) fn members(&self, group: &str) -> String {
        self.of(["group:", group, ":members"])
    }

    pub(crate) fn member(&self, group: &str, n: i64) -> String {
        format!("{}group:{group}:members:{n}", self.0)
    }

    /// That somebody waits for a group.
    pub(crate) fn waited(&self, group: &str) -> String {
        format!("{}wait:{group}", self.0)
    }

    pub(crate) fn handled(&self, group: &str) -> String {
        format!("{}group-handled:{group}", self.0)
    }

    pub(crate) fn claim(&self, key: &str) -> String {
        format!("{}claim:{key}", self.0)
    }

    /// Work that waits for others.
    pub(crate) fn dependent(&self, id: &str) -> String {
        format!("{}dependent:{id}", self.0)
    }

    /// How many of those it waits for have ended, or have so.
    pub(crate) fn met(&self, id: &str, how: &str) -> String {
        format!("{}dependent:{id}:{how}", self.0)
    }

    /// How many wait for this one.
    pub(crate) fn waiters(&self, id: &str) -> String {
        self.of(["waiters:", id])
    }

    pub(crate) fn waiter(&self, id: &str, n: i64) -> String {
        format!("{}waiters:{id}:{n}", self.0)
    }
}
