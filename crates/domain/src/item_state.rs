//! The states of items as clients see them: the one place that knows their names.
//!
//! On the wire a state is text, so that a client can still decode a state that a later server adds.

use crate::item::StateKind;

/// The state of an item as a client sees it. [`crate::StateKind`] is the state that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

impl From<StateKind> for ItemState {
    fn from(kind: StateKind) -> ItemState {
        match kind {
            StateKind::Pending => ItemState::Pending,
            StateKind::Processing => ItemState::Processing,
            StateKind::Paused => ItemState::Paused,
            StateKind::Completed => ItemState::Completed,
            StateKind::Failed => ItemState::Failed,
        }
    }
}

impl std::fmt::Display for ItemState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
