//! Towline's rules, and nothing else.
//!
//! Queues, items, leases, the commands on them, and [`decide()`]: the one place where state changes.
//! A store finds the item of a command, calls `decide`, and applies the [`Change`] that it returns.
//!
//! **Invariant:** pure. No clock, no randomness, no I/O, no async: time and entropy come in as arguments, so the
//! same inputs give the same change on every store, in every test and in every simulation.

pub mod backoff;
pub mod buffer_state;
pub mod calendar;
pub mod change;
pub mod command;
pub mod counts;
pub mod decide;
pub mod dependency;
pub mod digest;
pub mod effects;
pub mod event;
pub mod fields;
pub mod flow;
pub mod hash_chain;
pub mod id;
pub mod item;
mod item_state;
pub mod json;
pub mod kv;
pub mod limits;
pub mod name;
pub mod policy;
pub mod precondition;
pub mod queue;
pub mod reference;
pub mod refusal;
pub mod round_robin;
pub mod schedule;
pub mod schema;
pub mod score;
pub mod select;
pub mod state_name;
pub mod tally;
pub mod time;
pub mod trace;

pub use backoff::{Backoff, Jitter};
pub use buffer_state::BufferStateKind;
pub use change::{Change, Errors, HandedOff};
pub use command::{Adjust, Command, HandOff, LeaseCall, OutputSet, RecordGuard, Submission};
pub use counts::{CountKind, Counts};
pub use decide::{Context, decide, restore};
pub use dependency::{Condition, Dependency, DependencyState, DependsOn, GroupCounts, GroupTag};
pub use effects::{Effects, EffectsRecorder, QueueEffects};
pub use event::{EventKind, EventPayload, ItemEvent, ItemEventState};
pub use fields::{Field, FieldEdits, FieldSet, Fields};
pub use flow::{Fairness, Flow, FullKeys, Rate, RateState, Throttle};
pub use id::{ItemId, LeaseToken, QueueId, TokenSeed};
pub use item::{
    AttemptError, Body, Claim, Extras, FailureKind, Head, Item, KeyHold, Lease, Offer, Origin, Outcome,
    SettleVerb, State, StateKind,
};
pub use item_state::ItemState;
pub use json::Json;
pub use name::{BufferId, QueueName, ScheduleName, SlotName};
pub use policy::{LeaseRule, Overrides, Policy, PolicyPatch, Unique};
pub use precondition::{FailureSet, HeadFilter, Precondition, StateSet, Traits};
pub use queue::{Queue, QueueState};
pub use reference::Reference;
pub use refusal::Refusal;
pub use round_robin::{KeyTag, RoundRobin, Weights};
pub use schedule::Schedule;
pub use schema::Schema;
pub use score::{Order, OrderKey, ScoreWeights};
pub use select::{Selected, Selection};
pub use state_name::StateName;
pub use tally::{Ending, Finish, Hour, HourTally, Tally, TallyTag, tally_entry, tally_names, tally_values};
pub use time::{Millis, Timestamp};
pub use trace::{Trace, TraceParent, TraceState};
