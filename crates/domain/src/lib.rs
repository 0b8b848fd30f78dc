//! Towline's rules, and nothing else.
//!
//! A queue, an item, a lease, the verbs that move them, and [`decide()`]: the one place where state changes.
//! Stores select what a command is about, ask `decide`, and apply the [`Change`] it returns.
//!
//! **Invariant:** pure. No clock, no randomness, no I/O, no async: time and entropy come in as arguments, so the
//! same inputs give the same change on every store, in every test and in every simulation.

pub mod after;
pub mod backoff;
pub mod calendar;
pub mod change;
pub mod command;
pub mod counts;
pub mod decide;
pub mod digest;
pub mod event;
pub mod fields;
pub mod flow;
pub mod id;
pub mod item;
pub mod json;
pub mod kv;
pub mod limits;
pub mod name;
pub mod only;
pub mod policy;
pub mod queue;
mod readable;
pub mod reference;
pub mod refusal;
pub mod schedule;
pub mod schema;
pub mod score;
pub mod state_name;
pub mod tally;
pub mod time;
pub mod trace;
pub mod turn;

pub use after::{After, Condition, GroupCounts, GroupTag, Observed, On};
pub use backoff::{Backoff, Jitter};
pub use change::{Change, Errors};
pub use command::{Adjust, Command, LeaseCall, Once, OutputSet, Submission};
pub use counts::{CountKind, Counts};
pub use decide::{Context, decide, restore};
pub use event::{EventKind, ItemAfter, ItemTold, Told};
pub use fields::{Field, FieldEdits, FieldSet, Fields};
pub use flow::{Fairness, Flow, FullKeys, Held, Rate, Spent};
pub use id::{ItemId, LeaseToken, QueueId, TokenSeed};
pub use item::{
    AttemptError, Body, Claim, Extras, FailureKind, Head, Item, Lease, Origin, Outcome, SettleVerb, State,
};
pub use json::Json;
pub use name::{BufferId, QueueName, ScheduleName, SlotName};
pub use only::{HeadFilter, Only, Traits};
pub use policy::{LeaseRule, Overrides, Policy, PolicyPatch};
pub use queue::{Queue, QueueState};
pub use reference::Reference;
pub use refusal::Refusal;
pub use schedule::Schedule;
pub use schema::Schema;
pub use score::{Order, OrderKey, ScoreWeights};
pub use state_name::StateName;
pub use tally::{Ending, Finish, Hour, HourTally, Tally, TallyTag};
pub use time::{Millis, Timestamp};
pub use trace::{Trace, TraceParent, TraceState};
pub use turn::{KeyTag, Turn, Weights};
