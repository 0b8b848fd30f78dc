//! Bugs on purpose: the simulation must catch each of them, or it proves nothing.
//!
//! Without the `plant` feature none can be chosen and every question answers no at compile time.

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])* $bug,)*
        }

        impl Bug {
            pub const ALL: &[Bug] = &[$(Bug::$bug),*];

            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Bug::$bug => $name,)* }
            }
        }
    };
}

bugs! {
    NoSync = "no-sync",
    AnswerBeforeSync = "answer-before-sync",
    /// Carried out by the simulated disk, which does nothing when the store asks.
    NoDirectorySync = "no-directory-sync",
    /// Frames of an earlier use of a segment are replayed.
    NoGenerationCheck = "no-generation-check",
    NoFrameCheck = "no-frame-check",
    NoRecordCheck = "no-record-check",
    NoLeaseCheck = "no-lease-check",
    /// A lease is honoured at its deadline, not only before it.
    DeadlineOffByOne = "deadline-off-by-one",
    /// The key index is not updated until the batch is over.
    KeyOutsideBatch = "key-outside-batch",
    CountNotRestored = "count-not-restored",
    /// An index sidecar is written before the last frames of its segment.
    SidecarBeforeLog = "sidecar-before-log",
    /// A segment is written over before the log that no longer needs it is durable.
    RecycledTooEarly = "recycled-too-early",
    /// Collection takes the newest sealed segment first, so that a removal is forgotten before what it removed.
    CollectNewestFirst = "collect-newest-first",
    CarryDropsErrors = "carry-drops-errors",
    /// Collection carries a head as it was when it read it, not as it is when it writes it.
    CarryStaleHead = "carry-stale-head",
    IgnoreWriteError = "ignore-write-error",
    RetryFailedSync = "retry-failed-sync",
    /// A damaged frame before the tail is taken for the tail.
    CutAtDamage = "cut-at-damage",
    TimeGoesBack = "time-goes-back",
    SequenceReused = "sequence-reused",
    LapseNotCounted = "lapse-not-counted",
    EditOverwritesAll = "edit-overwrites-all",
}

/// Which bug is in, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Plant {
    #[cfg(feature = "plant")]
    bug: Option<Bug>,
}

impl Plant {
    #[cfg(feature = "plant")]
    #[must_use]
    pub fn bug(bug: Bug) -> Plant {
        Plant { bug: Some(bug) }
    }

    #[inline]
    #[must_use]
    pub(crate) fn has(self, bug: Bug) -> bool {
        #[cfg(feature = "plant")]
        return self.bug == Some(bug);
        #[cfg(not(feature = "plant"))]
        {
            let _ = bug;
            false
        }
    }
}
