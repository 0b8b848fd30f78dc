//! The policy of a queue.

use crate::backoff::BackoffBody;
use crate::invalid::{invalid, not_one_of};
use crate::object::object_if_any;
use crate::order::OrderBody;
use crate::span::Span;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use towline_domain::flow::RateError;
use towline_domain::name::NameError;
use towline_domain::{
    Backoff, FailureKind, Fairness, LeaseRule, Millis, Order, Policy, PolicyPatch, QueueName, Rate, Refusal,
    Unique, tally_entry,
};
use utoipa::ToSchema;

/// Settings of a queue. In a new queue, an omitted setting has its default. In an update, an omitted setting
/// stays as it is, and `null` removes a limit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyBody {
    /// How long a lease lasts without a heartbeat. Default: 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility_timeout: Option<Span>,
    /// How often a failed attempt is retried. Default: 3, which allows 4 attempts. Maximum: 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 10000)]
    pub max_retries: Option<i64>,
    /// The delay before a retry. Default: 1 s, doubling up to 5 min, each delay shortened at random by up to half.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<BackoffBody>,
    /// Sets `completed_ttl` and `failed_ttl`. Answers never contain it.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Span>)]
    pub item_ttl: Option<Option<Span>>,
    /// How long a completed item is kept. Default: 7d.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Span>)]
    pub completed_ttl: Option<Option<Span>>,
    /// How long a failed item is kept. Default: 7d.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Span>)]
    pub failed_ttl: Option<Option<Span>>,
    /// How long output buffers that the server created for an attempt are kept after its commit. Default: until a client
    /// deletes them.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Span>)]
    pub output_ttl: Option<Option<Span>>,
    /// Fail an item as `expired` if it is not finished this long after its submit.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Span>)]
    pub expire_after: Option<Option<Span>>,
    /// Fail an item as `expired` if it is not finished this long after its first delivery.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Span>)]
    pub give_up_after: Option<Option<Span>>,
    /// Fail an item as `poison` after its lease lapsed this many times in a row.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 10000)]
    pub poison_after: Option<Option<i64>>,
    /// Which item is delivered first. Default: `priority`. Cannot be changed later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderBody>,
    /// Refuse submits while this many items are waiting.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub depth_limit: Option<Option<i64>>,
    /// Move failed items to this queue. It must exist.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub dead_letter_queue: Option<Option<String>>,
    /// Which failed items move to the dead-letter queue: `explicit`, `retries_exhausted`, `expired`, `cancelled`,
    /// `poison`. Default: all but `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1)]
    pub dead_letter: Option<Vec<String>>,
    /// How long an idempotency key belongs to its item: `while_exists` (until the item is removed) or
    /// `while_unfinished` (until the item is completed or failed). Default: `while_exists`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique: Option<String>,
    #[serde(deserialize_with = "object_if_any", skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseRuleBody>,
    /// Also count finished items by the values of these tags, at most 4. `team+type` counts by two tags together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 4)]
    pub tally_tags: Option<Vec<String>>,
    /// Count this many values of such a tag separately in an hour, and all further ones together. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub tally_values_max: Option<i64>,
    /// Maximum number of items in processing.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1000000)]
    pub concurrency: Option<Option<i64>>,
    /// Maximum rate of deliveries: `1000/s`, `10/m` or `500/30s`, optionally with a burst: `1000/s,burst=50`.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub rate: Option<Option<String>>,
    /// Let items with different `fairness_key`s take turns: `{}`, or with weights: `{"weights": {"gold":
    /// 3}}`.
    #[serde(deserialize_with = "given_object", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<FairnessBody>)]
    pub fairness: Option<Option<FairnessBody>>,
    /// Maximum number of items in processing for each `fairness_key`. Keys take turns even without
    /// `fairness`.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 1000000)]
    pub concurrency_per_key: Option<Option<i64>>,
}

/// How fairness keys share a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FairnessBody {
    /// How many items a key delivers in its turn, 1 to 1,000. At most 100 keys; the default for all other
    /// keys is 1.
    pub weights: BTreeMap<String, i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LeaseRuleBody {
    /// Reserved for leases that a dispatcher assigns. There is no dispatcher yet, so only `null` is accepted.
    pub ack_timeout: Option<Span>,
    /// How far a heartbeat moves the deadline, in thousandths of the visibility timeout.
    #[schema(minimum = 1, maximum = 1000)]
    pub renewal_permille: Option<i64>,
    pub renewals_max: Option<i64>,
}

/// Distinguishes `null` from an absent field.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

fn given_object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    value: D,
) -> Result<Option<Option<T>>, D::Error> {
    object_if_any(value).map(Some)
}

pub(crate) fn count<T: TryFrom<i64>>(what: &'static str, value: i64) -> Result<T, Refusal> {
    T::try_from(value)
        .map_err(|_| invalid(what, format!("{value} is out of range; use a smaller or positive number")))
}

/// Converts the inner value: the outer `None` is absent, the inner one is `null`.
fn inner<T, U>(
    value: Option<Option<T>>,
    get: impl FnOnce(T) -> Result<U, Refusal>,
) -> Result<Option<Option<U>>, Refusal> {
    value.map(|value| value.map(get).transpose()).transpose()
}

/// The whole policy of a new queue.
impl TryFrom<PolicyBody> for Policy {
    type Error = Refusal;

    fn try_from(mut body: PolicyBody) -> Result<Policy, Refusal> {
        let order = body.order.take().map(Order::try_from).transpose()?;
        let mut policy = PolicyPatch::try_from(body)?.apply(&Policy::default());
        if let Some(order) = order {
            policy.order = order;
        }
        Ok(policy)
    }
}

/// An update of an existing queue's policy.
impl TryFrom<PolicyBody> for PolicyPatch {
    type Error = Refusal;

    fn try_from(body: PolicyBody) -> Result<PolicyPatch, Refusal> {
        if body.order.is_some() {
            let message = "the order of a queue cannot be changed; create another queue";
            return Err(invalid("order", message));
        }
        let both = body.item_ttl;
        let span = |what: &'static str| move |span: Span| span.into_domain(what);
        Ok(PolicyPatch {
            visibility_timeout: body.visibility_timeout.map(span("visibility_timeout")).transpose()?,
            max_retries: body.max_retries.map(|value| count("max_retries", value)).transpose()?,
            backoff: body.backoff.map(Backoff::try_from).transpose()?,
            completed_ttl: inner(body.completed_ttl.or_else(|| both.clone()), span("completed_ttl"))?,
            failed_ttl: inner(body.failed_ttl.or(both), span("failed_ttl"))?,
            output_ttl: inner(body.output_ttl, span("output_ttl"))?,
            expire_after: inner(body.expire_after, span("expire_after"))?,
            give_up_after: inner(body.give_up_after, span("give_up_after"))?,
            poison_after: inner(body.poison_after, |value| count("poison_after", value))?,
            depth_limit: inner(body.depth_limit, |value| count("depth_limit", value))?,
            dead_letter_queue: inner(body.dead_letter_queue, |name| queue_name(&name))?,
            dead_letter: body.dead_letter.map(failure_kinds).transpose()?,
            unique: body.unique.as_deref().map(unique).transpose()?,
            lease: body.lease.map(LeaseRule::try_from).transpose()?,
            tally_tags: body.tally_tags.map(|tags| tags.iter().map(|entry| tally_entry(&[entry])).collect()),
            tally_values_max: body
                .tally_values_max
                .map(|value| count("tally_values_max", value))
                .transpose()?,
            concurrency: inner(body.concurrency, |value| count("concurrency", value))?,
            rate: inner(body.rate, |text| rate(&text))?,
            fairness: inner(body.fairness, Fairness::try_from)?,
            concurrency_per_key: inner(body.concurrency_per_key, |value| {
                count("concurrency_per_key", value)
            })?,
        })
    }
}

impl TryFrom<FairnessBody> for Fairness {
    type Error = Refusal;

    fn try_from(body: FairnessBody) -> Result<Fairness, Refusal> {
        let weight = |(key, weight)| Ok((key, count("fairness", weight)?));
        let weights: Result<_, Refusal> = body.weights.into_iter().map(weight).collect();
        Ok(Fairness { weights: weights? })
    }
}

impl From<&Fairness> for FairnessBody {
    fn from(fairness: &Fairness) -> FairnessBody {
        let weights = fairness.weights.iter().map(|(key, &weight)| (key.clone(), weight.into()));
        FairnessBody { weights: weights.collect() }
    }
}

fn failure_kinds(names: Vec<String>) -> Result<BTreeSet<FailureKind>, Refusal> {
    names.iter().map(|name| failure_kind("dead_letter", name)).collect()
}

pub(crate) fn failure_kind(what: &'static str, name: &str) -> Result<FailureKind, Refusal> {
    FailureKind::parse(name)
        .ok_or_else(|| not_one_of(what, name, &FailureKind::ALL.map(FailureKind::name).join(", ")))
}

pub(crate) fn unique(name: &str) -> Result<Unique, Refusal> {
    let found = Unique::ALL.into_iter().find(|unique| unique.name() == name);
    found.ok_or_else(|| not_one_of("unique", name, &Unique::ALL.map(Unique::name).join(", ")))
}

fn rate(text: &str) -> Result<Rate, Refusal> {
    text.parse().map_err(|error: RateError| invalid("rate", error.to_string()))
}

pub(crate) fn queue_name(text: &str) -> Result<QueueName, Refusal> {
    text.parse().map_err(|error: NameError| invalid("queue", error.to_string()))
}

impl TryFrom<LeaseRuleBody> for LeaseRule {
    type Error = Refusal;

    fn try_from(body: LeaseRuleBody) -> Result<LeaseRule, Refusal> {
        if body.ack_timeout.is_some() {
            let message =
                "it applies to leases that a dispatcher assigns, and this server has none; leave it out";
            return Err(invalid("lease.ack_timeout", message));
        }
        let permille = |value| count("lease.renewal_permille", value);
        Ok(LeaseRule {
            ack_timeout: None,
            renewal_permille: body.renewal_permille.map(permille).transpose()?,
            renewals_max: body.renewals_max.map(|value| count("lease.renewals_max", value)).transpose()?,
        })
    }
}

impl From<&Policy> for PolicyBody {
    fn from(policy: &Policy) -> PolicyBody {
        let span = |span: Option<Millis>| Some(span.map(Span::from));
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let lease = &policy.lease;
        PolicyBody {
            visibility_timeout: Some(policy.visibility_timeout.into()),
            max_retries: Some(policy.max_retries.into()),
            backoff: Some((&policy.backoff).into()),
            item_ttl: None,
            completed_ttl: span(policy.completed_ttl),
            failed_ttl: span(policy.failed_ttl),
            output_ttl: span(policy.output_ttl),
            expire_after: span(policy.expire_after),
            give_up_after: span(policy.give_up_after),
            poison_after: Some(policy.poison_after.map(i64::from)),
            order: Some((&policy.order).into()),
            depth_limit: Some(policy.depth_limit.map(number)),
            dead_letter_queue: Some(policy.dead_letter_queue.as_ref().map(ToString::to_string)),
            dead_letter: Some(policy.dead_letter.iter().map(|kind| kind.name().to_owned()).collect()),
            unique: Some(policy.unique.name().to_owned()),
            lease: Some(LeaseRuleBody {
                ack_timeout: lease.ack_timeout.map(Span::from),
                renewal_permille: lease.renewal_permille.map(i64::from),
                renewals_max: lease.renewals_max.map(i64::from),
            }),
            tally_tags: Some(policy.tally_tags.iter().cloned().collect()),
            tally_values_max: Some(policy.tally_values_max.into()),
            concurrency: Some(policy.flow.concurrency.map(i64::from)),
            rate: Some(policy.flow.rate.map(|rate| rate.to_string())),
            fairness: Some(policy.flow.fairness.as_ref().map(FairnessBody::from)),
            concurrency_per_key: Some(policy.flow.concurrency_per_key.map(i64::from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_policy_parses_to_the_same_policy() {
        let mut policy = Policy { max_retries: 10_000, failed_ttl: None, ..Policy::default() };
        policy.lease.renewals_max = Some(7);
        policy.output_ttl = Some(Millis::hours(1));
        policy.unique = Unique::WhileUnfinished;
        policy.dead_letter = [FailureKind::Poison].into();
        policy.tally_tags = ["team".to_owned()].into();
        policy.flow.concurrency = Some(8);
        policy.flow.rate = "500/30s,burst=7".parse().ok();
        for weights in [None, Some([].into()), Some([("gold".to_owned(), 3)].into())] {
            policy.flow.concurrency_per_key = weights.is_none().then_some(3);
            policy.flow.fairness = weights.map(|weights| Fairness { weights });
            let shown = serde_json::to_string(&PolicyBody::from(&policy)).unwrap();
            let read: PolicyBody = serde_json::from_str(&shown).unwrap();
            assert_eq!(Policy::try_from(read).unwrap(), policy, "{shown}");
        }
    }

    #[test]
    fn null_removes_a_limit_and_absence_keeps_it() {
        let read: PolicyBody = serde_json::from_str(r#"{"failed_ttl":null,"max_retries":1}"#).unwrap();
        let patch = PolicyPatch::try_from(read).unwrap();
        assert_eq!(patch.failed_ttl, Some(None));
        assert_eq!(patch.completed_ttl, None);
        assert_eq!(patch.max_retries, Some(1));
    }

    #[test]
    fn item_ttl_sets_both_ttls() {
        let read: PolicyBody = serde_json::from_str(r#"{"item_ttl":"1d","failed_ttl":"2d"}"#).unwrap();
        let policy = Policy::try_from(read).unwrap();
        assert_eq!(policy.completed_ttl, Some(Millis::days(1)));
        assert_eq!(policy.failed_ttl, Some(Millis::days(2)));
    }

    #[test]
    fn a_wrong_value_is_named() {
        for (text, words) in [
            (r#"{"visibility_timeout":"5 parsecs"}"#, "5 parsecs"),
            (r#"{"max_retries":-1}"#, "-1"),
            (r#"{"depth_limit":-3}"#, "depth_limit"),
            (r#"{"concurrency":-3}"#, "concurrency"),
            (r#"{"concurrency_per_key":4294967296}"#, "concurrency_per_key: 4294967296"),
            (r#"{"rate":"fast"}"#, "1000/s"),
            (r#"{"fairness":{"weights":{"a":-1}}}"#, "-1"),
            (r#"{"dead_letter_queue":"a b"}"#, "a b"),
            (r#"{"dead_letter":["poisoned"]}"#, "poisoned"),
            (r#"{"unique":"always"}"#, "while_unfinished"),
        ] {
            let body: PolicyBody = serde_json::from_str(text).unwrap();
            let message = Policy::try_from(body).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}
