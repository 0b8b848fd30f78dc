//! Planted bugs. The simulation must find each of them; otherwise it proves nothing.
//!
//! Without the `plant` feature no bug can be chosen, and `Plant::has` is false at compile time.

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
    /// The simulated disk ignores the sync of a directory.
    NoDirectorySync = "no-directory-sync",
    /// A replay accepts frames of an earlier use of the segment.
    NoGenerationCheck = "no-generation-check",
    NoFrameCheck = "no-frame-check",
    NoRecordCheck = "no-record-check",
    NoLeaseCheck = "no-lease-check",
    /// A lease is still valid at its deadline.
    DeadlineOffByOne = "deadline-off-by-one",
    /// The index learns of keys only after the batch.
    KeyOutsideBatch = "key-outside-batch",
    CountNotRestored = "count-not-restored",
    /// A sidecar lacks the last frame of its segment.
    SidecarBeforeLog = "sidecar-before-log",
    /// A segment is reused before the frame with the later tail is durable.
    RecycledTooEarly = "recycled-too-early",
    /// Collection takes the newest sealed segment first, so that a removal is dropped before the item's records.
    CollectNewestFirst = "collect-newest-first",
    CarryDropsErrors = "carry-drops-errors",
    /// Collection carries the head from the time of reading, not of writing.
    CarryStaleHead = "carry-stale-head",
    IgnoreWriteError = "ignore-write-error",
    RetryFailedSync = "retry-failed-sync",
    /// Damage in the middle of the log is treated as a torn tail.
    CutAtDamage = "cut-at-damage",
    TimeGoesBack = "time-goes-back",
    /// A clock that is behind the store's latest time stops the store's time.
    TimeStandsStill = "time-stands-still",
    SequenceReused = "sequence-reused",
    LapseNotCounted = "lapse-not-counted",
    EditOverwritesAll = "edit-overwrites-all",
    /// The items of a hand-off are in a frame before the commit.
    HandOffInTwoFrames = "hand-off-in-two-frames",
}

/// The planted bug, if any.
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
