//! The state of a buffer, without its data.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BufferStateKind {
    /// No writer has started.
    Empty,
    Writing,
    Complete,
    Failed,
}

impl BufferStateKind {
    pub const ALL: [BufferStateKind; 4] = [
        BufferStateKind::Empty,
        BufferStateKind::Writing,
        BufferStateKind::Complete,
        BufferStateKind::Failed,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            BufferStateKind::Empty => "empty",
            BufferStateKind::Writing => "writing",
            BufferStateKind::Complete => "complete",
            BufferStateKind::Failed => "failed",
        }
    }
}

impl fmt::Display for BufferStateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
