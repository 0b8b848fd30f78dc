//! What a queue does by default: retries, timeouts, retention, flow control.

use crate::backoff::Backoff;
use crate::flow::{Fairness, Flow, Rate};
use crate::item::FailureKind;
use crate::limits;
use crate::name::QueueName;
use crate::refusal::Refusal;
use crate::score::Order;
use crate::tally;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// How long a lease lasts without a heartbeat.
    pub visibility_timeout: Millis,
    /// 3 means at most 4 attempts.
    pub max_retries: u32,
    pub backoff: Backoff,
    /// How long a completed item is kept. `None`: for ever.
    pub completed_ttl: Option<Millis>,
    pub failed_ttl: Option<Millis>,
    /// How long the buffers that were made for an attempt are kept after its commit. `None`: until a client deletes them.
    pub output_ttl: Option<Millis>,
    /// An item that is not finished this long after its submit fails as `expired`.
    pub expire_after: Option<Millis>,
    /// An item that is not finished this long after its first delivery fails as `expired`.
    pub give_up_after: Option<Millis>,
    /// An item whose leases lapse this many times in a row fails as `poison`.
    pub poison_after: Option<u32>,
    pub order: Order,
    /// Submits are refused while this many items are pending, scheduled or paused.
    pub depth_limit: Option<u64>,
    /// Failed items move to this queue and keep their origin and reason.
    pub dead_letter_queue: Option<QueueName>,
    /// The kinds of failure after which an item moves to the dead-letter queue.
    pub dead_letter: BTreeSet<FailureKind>,
    /// How long an idempotency key belongs to its item.
    pub unique: Unique,
    pub lease: LeaseRule,
    /// Finished items are also tallied by the values of these tags, or of two tags together (`team+type`).
    #[serde(default)]
    pub tally_tags: BTreeSet<String>,
    /// Values of such a tag that are tallied separately in an hour. All further values are tallied together.
    #[serde(default = "tally_values_default", with = "in_text_only")]
    pub tally_values_max: u32,
    #[serde(default)]
    pub flow: Flow,
}

fn tally_values_default() -> u32 {
    limits::TALLY_VALUES_DEFAULT
}

/// A value that encodings without names leave out, so that they read what was written before there was the value. They store
/// it elsewhere.
mod in_text_only {
    use super::tally_values_default;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => serializer.serialize_u32(*value),
            false => serializer.serialize_unit(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        match deserializer.is_human_readable() {
            true => u32::deserialize(deserializer),
            false => <()>::deserialize(deserializer).map(|()| tally_values_default()),
        }
    }
}

/// How long an idempotency key belongs to its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unique {
    /// Until the item is removed.
    #[default]
    WhileExists,
    /// Until the item is terminal for the first time.
    WhileUnfinished,
}

impl Unique {
    pub const ALL: [Unique; 2] = [Unique::WhileExists, Unique::WhileUnfinished];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unique::WhileExists => "while_exists",
            Unique::WhileUnfinished => "while_unfinished",
        }
    }
}

/// How a lease is acknowledged and renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeaseRule {
    /// The first heartbeat of an assigned lease (one the worker did not ask for) must come within this time.
    pub ack_timeout: Option<Millis>,
    /// A heartbeat adds this share of the visibility timeout to `max(deadline, now)`.
    /// `None`: it sets the deadline to a full timeout from now.
    pub renewal_permille: Option<u32>,
    pub renewals_max: Option<u32>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            visibility_timeout: Millis::minutes(5),
            max_retries: 3,
            backoff: Backoff::default(),
            completed_ttl: Some(Millis::days(7)),
            failed_ttl: Some(Millis::days(7)),
            output_ttl: None,
            expire_after: None,
            give_up_after: None,
            poison_after: None,
            order: Order::default(),
            depth_limit: None,
            dead_letter_queue: None,
            // A cancelled item is not a dead letter unless the operator says so.
            dead_letter: BTreeSet::from(FailureKind::ALL)
                .into_iter()
                .filter(|kind| *kind != FailureKind::Cancelled)
                .collect(),
            unique: Unique::default(),
            lease: LeaseRule::default(),
            tally_tags: BTreeSet::new(),
            tally_values_max: tally_values_default(),
            flow: Flow::default(),
        }
    }
}

impl Policy {
    /// The names of the fields in which another policy differs.
    pub fn differences(&self, other: &Policy) -> Vec<&'static str> {
        // Destructured, so that a new field does not compile until it is compared here.
        let Policy {
            visibility_timeout,
            max_retries,
            backoff,
            completed_ttl,
            failed_ttl,
            output_ttl,
            expire_after,
            give_up_after,
            poison_after,
            order,
            depth_limit,
            dead_letter_queue,
            dead_letter,
            unique,
            lease,
            tally_tags,
            tally_values_max,
            flow: Flow { concurrency, rate, fairness, concurrency_per_key },
        } = self;
        let fields = [
            ("policy.visibility_timeout", *visibility_timeout == other.visibility_timeout),
            ("policy.max_retries", *max_retries == other.max_retries),
            ("policy.backoff", *backoff == other.backoff),
            ("policy.completed_ttl", *completed_ttl == other.completed_ttl),
            ("policy.failed_ttl", *failed_ttl == other.failed_ttl),
            ("policy.output_ttl", *output_ttl == other.output_ttl),
            ("policy.expire_after", *expire_after == other.expire_after),
            ("policy.give_up_after", *give_up_after == other.give_up_after),
            ("policy.poison_after", *poison_after == other.poison_after),
            ("policy.order", *order == other.order),
            ("policy.depth_limit", *depth_limit == other.depth_limit),
            ("policy.dead_letter_queue", *dead_letter_queue == other.dead_letter_queue),
            ("policy.dead_letter", *dead_letter == other.dead_letter),
            ("policy.unique", *unique == other.unique),
            ("policy.lease", *lease == other.lease),
            ("policy.tally_tags", *tally_tags == other.tally_tags),
            ("policy.tally_values_max", *tally_values_max == other.tally_values_max),
            ("policy.concurrency", *concurrency == other.flow.concurrency),
            ("policy.rate", *rate == other.flow.rate),
            ("policy.fairness", *fairness == other.flow.fairness),
            ("policy.concurrency_per_key", *concurrency_per_key == other.flow.concurrency_per_key),
        ];
        fields.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }

    pub fn check(&self) -> Result<(), Refusal> {
        check_visibility(self.visibility_timeout)?;
        check_number("max_retries", u64::from(self.max_retries), 0, u64::from(limits::RETRIES_MAX))?;
        for (name, span) in [
            ("completed_ttl", self.completed_ttl),
            ("failed_ttl", self.failed_ttl),
            ("output_ttl", self.output_ttl),
            ("expire_after", self.expire_after),
            ("give_up_after", self.give_up_after),
            ("lease.ack_timeout", self.lease.ack_timeout),
        ] {
            if let Some(span) = span {
                check_span(name, span)?;
            }
        }
        if let Some(count) = self.poison_after {
            check_number("poison_after", u64::from(count), 1, u64::from(limits::RETRIES_MAX))?;
        }
        if let Some(limit) = self.depth_limit {
            check_number("depth_limit", limit, 1, limits::DEPTH_LIMIT_MAX)?;
        }
        if self.dead_letter.is_empty() {
            let message = "no kind of failure is named; name at least one, or remove the `dead_letter_queue`";
            return Err(Refusal::invalid("dead_letter", message));
        }
        self.flow.check()?;
        if let Some(permille) = self.lease.renewal_permille {
            check_number("lease.renewal_permille", u64::from(permille), 1, 1000)?;
        }
        tally::check_entries(&self.tally_tags)?;
        let values_max = (u64::from(self.tally_values_max), u64::from(limits::TALLY_VALUES_MAX));
        check_number("tally_values_max", values_max.0, 1, values_max.1)?;
        if let Order::Score(weights) = &self.order {
            check_number("order.age_unit", weights.age_unit.0, 1000, Millis::MAX.0)?;
            if let Some(tier) =
                weights.tiers_permille.keys().find(|tier| tier.len() > limits::LABEL_BYTES_MAX)
            {
                let message = format!("a name of {} bytes; use 1 to {}", tier.len(), limits::LABEL_BYTES_MAX);
                return Err(Refusal::invalid("order.tiers", message));
            }
            if weights.tiers_permille.len() > limits::SLOTS_MAX {
                return Err(Refusal::invalid(
                    "order.tiers",
                    format!("{} tiers; use at most {}", weights.tiers_permille.len(), limits::SLOTS_MAX),
                ));
            }
        }
        Ok(())
    }
}

/// Refuses a visibility timeout out of range.
pub fn check_visibility(span: Millis) -> Result<(), Refusal> {
    if span < limits::VISIBILITY_MIN || span > limits::VISIBILITY_MAX {
        let message = format!(
            "visibility timeout {span} is out of range; use {} to {}",
            limits::VISIBILITY_MIN,
            limits::VISIBILITY_MAX
        );
        return Err(Refusal::invalid("visibility_timeout", message));
    }
    Ok(())
}

pub(crate) fn check_span(name: &'static str, span: Millis) -> Result<(), Refusal> {
    if span > Millis::MAX {
        return Err(Refusal::invalid(name, format!("{span} is longer than 100 years; use a shorter time")));
    }
    Ok(())
}

pub(crate) fn check_number(name: &'static str, value: u64, min: u64, max: u64) -> Result<(), Refusal> {
    if value < min || value > max {
        return Err(Refusal::invalid(name, format!("{value} is out of range; use {min} to {max}")));
    }
    Ok(())
}

/// A change of some fields of a policy. `Some(None)` removes a limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PolicyPatch {
    pub visibility_timeout: Option<Millis>,
    pub max_retries: Option<u32>,
    pub backoff: Option<Backoff>,
    pub completed_ttl: Option<Option<Millis>>,
    pub failed_ttl: Option<Option<Millis>>,
    pub output_ttl: Option<Option<Millis>>,
    pub expire_after: Option<Option<Millis>>,
    pub give_up_after: Option<Option<Millis>>,
    pub poison_after: Option<Option<u32>>,
    pub depth_limit: Option<Option<u64>>,
    pub dead_letter_queue: Option<Option<QueueName>>,
    pub dead_letter: Option<BTreeSet<FailureKind>>,
    pub unique: Option<Unique>,
    pub lease: Option<LeaseRule>,
    pub tally_tags: Option<BTreeSet<String>>,
    pub tally_values_max: Option<u32>,
    pub concurrency: Option<Option<u32>>,
    pub rate: Option<Option<Rate>>,
    pub fairness: Option<Option<Fairness>>,
    pub concurrency_per_key: Option<Option<u32>>,
}

impl PolicyPatch {
    #[must_use]
    pub fn apply(self, policy: &Policy) -> Policy {
        let mut after = policy.clone();
        macro_rules! set {
            ($($field:ident),*) => { $(if let Some(value) = self.$field { after.$field = value; })* };
        }
        set!(
            visibility_timeout,
            max_retries,
            backoff,
            completed_ttl,
            failed_ttl,
            output_ttl,
            expire_after,
            give_up_after,
            poison_after,
            depth_limit,
            dead_letter_queue,
            dead_letter,
            unique,
            lease,
            tally_tags,
            tally_values_max
        );
        if let Some(concurrency) = self.concurrency {
            after.flow.concurrency = concurrency;
        }
        if let Some(rate) = self.rate {
            after.flow.rate = rate;
        }
        if let Some(fairness) = self.fairness {
            after.flow.fairness = fairness;
        }
        if let Some(concurrency) = self.concurrency_per_key {
            after.flow.concurrency_per_key = concurrency;
        }
        after
    }
}

/// What one item has instead of its queue's policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Overrides {
    pub max_retries: Option<u32>,
    pub backoff: Option<Backoff>,
    pub completed_ttl: Option<Millis>,
    pub failed_ttl: Option<Millis>,
    pub expire_after: Option<Millis>,
    pub give_up_after: Option<Millis>,
    pub unique: Option<Unique>,
}

impl Overrides {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Overrides::default()
    }

    pub fn check(&self) -> Result<(), Refusal> {
        if let Some(count) = self.max_retries {
            check_number("max_retries", u64::from(count), 0, u64::from(limits::RETRIES_MAX))?;
        }
        for (name, span) in [
            ("completed_ttl", self.completed_ttl),
            ("failed_ttl", self.failed_ttl),
            ("expire_after", self.expire_after),
            ("give_up_after", self.give_up_after),
        ] {
            if let Some(span) = span {
                check_span(name, span)?;
            }
        }
        Ok(())
    }
}
