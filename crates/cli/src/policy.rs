//! Flags for a queue's policy.

use crate::exit::Failure;
use crate::value::{Limit, duration, limit};
use clap::Args;
use std::collections::BTreeMap;
use towline_api::{
    Backoff, BackoffBody, FairnessBody, LeaseRuleBody, Millis, Order, OrderBody, PolicyBody, Rate, Span,
};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArgs {
    /// How long a lease lasts without a heartbeat [default: 5m].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    visibility_timeout: Option<Millis>,
    /// How often a failed attempt is retried [default: 3].
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// How long completed and failed items are kept [default: 7d].
    #[arg(long, value_name = "DURATION|none", value_parser = limit::<Millis>)]
    item_ttl: Option<Limit<Millis>>,
    /// How long completed items are kept [default: 7d].
    #[arg(long, value_name = "DURATION|none", value_parser = limit::<Millis>)]
    completed_ttl: Option<Limit<Millis>>,
    /// How long failed items are kept [default: 7d].
    #[arg(long, value_name = "DURATION|none", value_parser = limit::<Millis>)]
    failed_ttl: Option<Limit<Millis>>,
    /// Delay before a retry: a preset (default, none, tyger, ayepi, quantumleap, cyclotron, aicf-ai, aicf-quantum),
    /// `delay=5s`, or `base=1s,factor=2,max=15m,jitter=0.2` [default: base=1s,factor=2,max=5m,jitter=0.5].
    #[arg(long, value_name = "BACKOFF", value_parser = backoff)]
    backoff: Option<BackoffBody>,
    /// How long output buffers that the server created for an attempt are kept after its commit [default: none,
    /// until they are deleted].
    #[arg(long, value_name = "DURATION|none", value_parser = limit::<Millis>)]
    output_ttl: Option<Limit<Millis>>,
    /// Fail an item that is not finished this long after its submit.
    #[arg(long, value_name = "DURATION|none", value_parser = limit::<Millis>)]
    expire_after: Option<Limit<Millis>>,
    /// Fail an item that is not finished this long after its first delivery.
    #[arg(long, value_name = "DURATION|none", value_parser = limit::<Millis>)]
    give_up_after: Option<Limit<Millis>>,
    /// Fail an item after its lease lapsed this many times in a row.
    #[arg(long, value_name = "N|none", value_parser = limit::<i64>)]
    poison_after: Option<Limit<i64>>,
    /// Refuse submits while this many items are waiting.
    #[arg(long, value_name = "N|none", value_parser = limit::<i64>)]
    depth_limit: Option<Limit<i64>>,
    /// Move failed items to this queue. It must exist.
    #[arg(long, value_name = "QUEUE|none", value_parser = limit::<String>)]
    dead_letter_queue: Option<Limit<String>>,
    /// Which failed items move to the dead-letter queue: explicit, retries_exhausted, expired, cancelled, poison,
    /// separated by commas [default: all but cancelled].
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    dead_letter: Option<Vec<String>>,
    /// How long an idempotency key belongs to its item: while_exists or while_unfinished [default: while_exists].
    #[arg(long, value_name = "RULE")]
    unique: Option<String>,
    /// Also count finished items by the values of these tags: up to 4 names, separated by commas. `team+type` counts by two tags
    /// together.
    #[arg(long, value_name = "TAGS|none", value_parser = limit::<String>)]
    tally_tags: Option<Limit<String>>,
    /// Count this many values of such a tag separately in an hour [default: 100].
    #[arg(long, value_name = "N")]
    tally_values_max: Option<i64>,
    /// Maximum number of items in processing.
    #[arg(long, value_name = "N|none", value_parser = limit::<i64>)]
    concurrency: Option<Limit<i64>>,
    /// Maximum rate of deliveries: `1000/s`, `10/m`, `500/30s` or `1000/s,burst=50`.
    #[arg(long, value_name = "RATE|none", value_parser = limit::<Rate>)]
    rate: Option<Limit<Rate>>,
    /// Let items with different fairness keys take turns: `on`, or with weights `gold=3,silver=2`.
    #[arg(long, value_name = "on|KEY=N,...|none", value_parser = fairness)]
    fairness: Option<Limit<FairnessBody>>,
    /// Maximum number of items in processing for each fairness key. Keys take turns.
    #[arg(long, value_name = "N|none", value_parser = limit::<i64>)]
    concurrency_per_key: Option<Limit<i64>>,
    /// How far a heartbeat moves the deadline, in thousandths of the visibility timeout.
    #[arg(long, value_name = "N")]
    lease_renewal_permille: Option<i64>,
    /// How often a lease can be renewed.
    #[arg(long, value_name = "N")]
    lease_renewals_max: Option<i64>,
}

fn span(limit: Option<Limit<Millis>>) -> Option<Option<Span>> {
    limit.map(|Limit(span)| span.map(Span::from))
}

impl PolicyArgs {
    pub fn body(self, order: Option<OrderBody>) -> PolicyBody {
        let lease = LeaseRuleBody {
            ack_timeout: None,
            renewal_permille: self.lease_renewal_permille,
            renewals_max: self.lease_renewals_max,
        };
        PolicyBody {
            visibility_timeout: self.visibility_timeout.map(Span::from),
            max_retries: self.max_retries.map(i64::from),
            backoff: self.backoff,
            item_ttl: span(self.item_ttl),
            completed_ttl: span(self.completed_ttl),
            failed_ttl: span(self.failed_ttl),
            output_ttl: span(self.output_ttl),
            expire_after: span(self.expire_after),
            give_up_after: span(self.give_up_after),
            poison_after: self.poison_after.map(|limit| limit.0),
            order,
            depth_limit: self.depth_limit.map(|limit| limit.0),
            dead_letter_queue: self.dead_letter_queue.map(|limit| limit.0),
            dead_letter: self.dead_letter,
            unique: self.unique,
            lease: (lease != LeaseRuleBody::default()).then_some(lease),
            tally_tags: self.tally_tags.map(|Limit(tags)| {
                tags.iter().flat_map(|tags| tags.split(',')).map(|tag| tag.trim().to_owned()).collect()
            }),
            tally_values_max: self.tally_values_max,
            concurrency: self.concurrency.map(|limit| limit.0),
            rate: self.rate.map(|Limit(rate)| rate.map(|rate| rate.to_string())),
            fairness: self.fairness.map(|limit| limit.0),
            concurrency_per_key: self.concurrency_per_key.map(|limit| limit.0),
        }
    }

    /// The policy with the given changes. Refuses an update without changes: a flag was forgotten.
    pub fn patch(self) -> Result<PolicyBody, Failure> {
        match self.body(None) {
            body if body == PolicyBody::default() => Err(Failure::Usage(
                "nothing to change; give a setting, for example --max-retries 5".to_owned(),
            )),
            body => Ok(body),
        }
    }
}

/// Parses `on`, `none`, weights by key, or JSON.
fn fairness(text: &str) -> Result<Limit<FairnessBody>, String> {
    match text {
        "none" => return Ok(Limit(None)),
        "on" => return Ok(Limit(Some(FairnessBody::default()))),
        _ if text.starts_with('{') => {
            return serde_json::from_str(text)
                .map(|body| Limit(Some(body)))
                .map_err(|error| error.to_string());
        }
        _ => {}
    }
    let mut weights = BTreeMap::new();
    for part in text.split(',') {
        let wrong = || format!("{part:?} is not KEY=N; write `on`, `none` or weights like gold=3,silver=2");
        let (key, weight) = part.rsplit_once('=').ok_or_else(wrong)?;
        if weights.insert(key.trim().to_owned(), weight.trim().parse().map_err(|_| wrong())?).is_some() {
            return Err(format!("{key:?} has two weights"));
        }
    }
    Ok(Limit(Some(FairnessBody { weights })))
}

pub fn order(text: &str) -> Result<OrderBody, String> {
    let body = match text.starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| error.to_string())?,
        false => OrderBody::Name(text.to_owned()),
    };
    Order::try_from(body.clone()).map_err(|refusal| refusal.to_string())?;
    Ok(body)
}

pub fn backoff(text: &str) -> Result<BackoffBody, String> {
    let body = match text.contains('=') {
        true => custom(text)?,
        false => BackoffBody::Preset(text.to_owned()),
    };
    Backoff::try_from(body.clone()).map_err(|refusal| refusal.to_string())?;
    Ok(body)
}

/// Parses `base=1s,factor=2,max=15m`.
fn custom(text: &str) -> Result<BackoffBody, String> {
    let mut custom = towline_api::backoff::CustomBackoff::default();
    for part in text.split(',') {
        let Some((name, value)) = part.split_once('=') else {
            return Err(format!("{part:?} is not name=value"));
        };
        let span = || duration(value).map(|span| Some(Span::from(span)));
        let share = || value.parse().map(Some).map_err(|_| format!("{name}: {value:?} is not a number"));
        match name.trim() {
            "delay" => custom.delay = span()?,
            "base" => custom.base = span()?,
            "max" => custom.max = span()?,
            "round" => custom.round = span()?,
            "factor" => custom.factor = share()?,
            "jitter" => custom.jitter = share()?,
            "hash_jitter" => custom.hash_jitter = share()?,
            _ => {
                return Err(format!(
                    "{name:?} is not one of delay, base, factor, max, jitter, hash_jitter, round"
                ));
            }
        }
    }
    Ok(BackoffBody::Custom(Box::new(custom)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_flags_parse_or_say_why_not() {
        for text in ["none", "tyger", "cyclotron", "delay=5s", "base=1s,factor=2,max=15m,jitter=0.2"] {
            assert!(backoff(text).is_ok(), "{text}");
        }
        for (text, words) in [
            ("tigre", "tyger"),
            ("delay=5", "5s"),
            ("delay=5s,base=1s", "both"),
            ("pause=5s", "delay"),
            ("base=1s,factor=x", "number"),
            ("base=1s,", "name=value"),
        ] {
            let error = backoff(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn fairness_flags_parse_or_say_why_not() {
        let weights = |text: &str| fairness(text).unwrap().0.map(|body| body.weights);
        assert_eq!(weights("none"), None);
        assert_eq!(weights("on"), Some([].into()));
        let both = Some([("gold".to_owned(), 3), ("a=b".to_owned(), 2)].into());
        assert_eq!(weights("gold=3, a=b=2"), both);
        assert_eq!(weights(r#"{"weights":{"gold":3,"a=b":2}}"#), both);
        for (text, words) in [
            ("", "KEY=N"),
            ("off", "none"),
            ("gold", "gold=3"),
            ("gold=x", "gold=x"),
            ("gold=3,", "KEY=N"),
            ("gold=3,gold=4", "two"),
            ("{\"weight\":1}", "weights"),
        ] {
            let error = fairness(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn order_flags_parse_or_say_why_not() {
        for text in ["fifo", "priority", "score", r#"{"score":{"age_unit":"1h"}}"#] {
            assert!(order(text).is_ok(), "{text}");
        }
        assert!(order("lifo").unwrap_err().contains("fifo"));
    }
}
