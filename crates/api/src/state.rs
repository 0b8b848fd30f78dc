//! The states of items on the wire: the one place that knows their names.
//!
//! Answers carry a state as text, so that a client can still decode a state that a later server adds.

/// The state of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemState {
    Pending,
    Scheduled,
    Processing,
    Paused,
    Waiting,
    Completed,
    Failed,
}

impl ItemState {
    pub const ALL: [ItemState; 7] = [
        ItemState::Pending,
        ItemState::Scheduled,
        ItemState::Processing,
        ItemState::Paused,
        ItemState::Waiting,
        ItemState::Completed,
        ItemState::Failed,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ItemState::Pending => "pending",
            ItemState::Scheduled => "scheduled",
            ItemState::Processing => "processing",
            ItemState::Paused => "paused",
            ItemState::Waiting => "waiting",
            ItemState::Completed => "completed",
            ItemState::Failed => "failed",
        }
    }

    /// `None` for a state of a later version.
    #[must_use]
    pub fn parse(name: &str) -> Option<ItemState> {
        ItemState::ALL.into_iter().find(|state| state.name() == name)
    }

    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, ItemState::Completed | ItemState::Failed)
    }
}
