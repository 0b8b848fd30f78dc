//! The names of states in filters, with the synonyms that other queue systems use.

use crate::counts::CountKind;

/// A state in a filter: one state, or a union of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateName {
    /// Pending, ready or scheduled.
    Pending,
    Ready,
    Scheduled,
    Processing,
    Paused,
    Completed,
    Failed,
    /// Everything not finished.
    Unfinished,
}

impl StateName {
    #[must_use]
    pub fn parse(text: &str) -> Option<StateName> {
        Some(match text.to_ascii_lowercase().as_str() {
            "pending" => StateName::Pending,
            "ready" | "queued" | "available" => StateName::Ready,
            "scheduled" | "delayed" => StateName::Scheduled,
            "processing" | "running" | "assigned" | "leased" => StateName::Processing,
            "paused" => StateName::Paused,
            "completed" | "succeeded" => StateName::Completed,
            "failed" | "expired" | "dead" => StateName::Failed,
            "unfinished" => StateName::Unfinished,
            _ => return None,
        })
    }

    #[must_use]
    pub fn matches(self, kind: CountKind) -> bool {
        match self {
            StateName::Pending => matches!(kind, CountKind::Pending | CountKind::Scheduled),
            StateName::Ready => kind == CountKind::Pending,
            StateName::Scheduled => kind == CountKind::Scheduled,
            StateName::Processing => kind == CountKind::Processing,
            StateName::Paused => kind == CountKind::Paused,
            StateName::Completed => kind == CountKind::Completed,
            StateName::Failed => kind == CountKind::Failed,
            StateName::Unfinished => !matches!(kind, CountKind::Completed | CountKind::Failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synonyms_of_other_systems_are_parsed() {
        for (text, name) in [
            ("Queued", StateName::Ready),
            ("RUNNING", StateName::Processing),
            ("available", StateName::Ready),
            ("Succeeded", StateName::Completed),
            ("pending", StateName::Pending),
            ("unfinished", StateName::Unfinished),
        ] {
            assert_eq!(StateName::parse(text), Some(name));
        }
        assert_eq!(StateName::parse("gone"), None);
    }

    #[test]
    fn pending_means_ready_and_scheduled() {
        assert!(StateName::Pending.matches(CountKind::Scheduled));
        assert!(StateName::Pending.matches(CountKind::Pending));
        assert!(!StateName::Pending.matches(CountKind::Processing));
        assert!(StateName::Unfinished.matches(CountKind::Paused));
    }
}
