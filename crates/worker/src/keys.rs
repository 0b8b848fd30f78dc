//! Names in the store. Everything begins with the prefix, so that systems can share a store.

#[derive(Debug)]
pub(crate) struct Keys(pub(crate) String);

impl Keys {
    /// What is told to who waits.
    pub(crate) fn said(&self, what: &str, of: &str) -> String {
        format!("{}{what} {of}", self.0)
    }

    /// How a piece of work ended.
    pub(crate) fn result(&self, id: &str) -> String {
        format!("{}result:{id}", self.0)
    }

    /// How many of a group have not ended.
    pub(crate) fn open(&self, group: &str) -> String {
        format!("{}group:{group}:open", self.0)
    }

    pub(crate) fn group_result(&self, group: &str) -> String {
        format!("{}group:{group}:result", self.0)
    }

    /// How many were appended.
    pub(crate) fn appended(&self, group: &str) -> String {
        format!("{}group:{group}:appended", self.0)
    }

    pub(crate) fn append(&self, group: &str, n: i64) -> String {
        format!("{}group:{group}:appended:{n}", self.0)
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
        format!("{}waiters:{id}", self.0)
    }

    pub(crate) fn waiter(&self, id: &str, n: i64) -> String {
        format!("{}waiters:{id}:{n}", self.0)
    }
}
