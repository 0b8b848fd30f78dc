//! Wire types of submit.

use crate::backoff::BackoffBody;
use crate::element::Element;
use crate::group::DependencyBody;
use crate::invalid::invalid;
use crate::object::{elements, object_if_any};
use crate::params::{self, Params};
use crate::payload::{given, with_payload_fields};
use crate::policy::{count, unique};
use crate::problem::ErrorBody;
use crate::span::Span;
use crate::text::Text;
use crate::time::Time;
use crate::trace::TraceBody;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, MapAccess};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use towline_domain::command::When;
use towline_domain::name::NameError;
use towline_domain::{
    Backoff, Body, BufferId, Dependency, Fields, ItemId, Overrides, Refusal, SlotName, Submission, Trace,
};
use utoipa::ToSchema;

/// Items to submit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The items, at most 10,000.
    pub items: Vec<NewItem>,
    /// How long to wait for room while the queue is at its `depth_limit`, like `20s`. A number is milliseconds. Default: no wait.
    /// Maximum: 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
}

/// The body of a submit: an item without a list around it, or a [`SubmitRequest`].
#[derive(Debug, Clone, PartialEq)]
pub struct SubmitBody {
    pub items: OneOrMany,
    pub wait: Option<Span>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum OneOrMany {
    One(Box<NewItem>),
    Many(Vec<Element<NewItem>>),
}

impl<'de> Deserialize<'de> for SubmitBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SubmitBody, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = SubmitBody;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SubmitBody, A::Error> {
                let (mut items, mut wait, mut fields) = (None, None, 0);
                let map = SubmitMap { map, items: &mut items, wait: &mut wait, fields: &mut fields };
                let item = NewItem::deserialize(MapAccessDeserializer::new(map))?;
                let items = match items {
                    Some(_) if fields > 0 => {
                        let message = "both `items` and fields of an item are given; put the fields into the elements of `items`";
                        return Err(de::Error::custom(message));
                    }
                    Some(items) => OneOrMany::Many(items),
                    None => OneOrMany::One(Box::new(item)),
                };
                Ok(SubmitBody { items, wait })
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// The fields of a bare item. Takes out `items` and `wait`, and counts the others.
struct SubmitMap<'a, A> {
    map: A,
    items: &'a mut Option<Vec<Element<NewItem>>>,
    wait: &'a mut Option<Span>,
    fields: &'a mut usize,
}

struct Items(Vec<Element<NewItem>>);

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Items, D::Error> {
        elements(deserializer).map(Items)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for SubmitMap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.map.next_key::<String>()? {
            match name.as_str() {
                "items" if self.items.is_some() => return Err(de::Error::duplicate_field("items")),
                "items" => *self.items = Some(self.map.next_value::<Items>()?.0),
                "wait" if self.wait.is_some() => return Err(de::Error::duplicate_field("wait")),
                "wait" => *self.wait = self.map.next_value()?,
                _ => {
                    *self.fields += 1;
                    return seed.deserialize(name.into_deserializer()).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

with_payload_fields! {
    /// An item to submit. Every field is optional.
    #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct NewItem {
        {
            /// The item's id, a UUID. Default: the server generates one.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = Uuid)]
            pub id: Option<Text<ItemId>>,
            /// Buffers by input slot.
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            pub inputs: BTreeMap<String, String>,
            /// Parameters, any JSON values by name.
            #[serde(with = "params", skip_serializing_if = "BTreeMap::is_empty")]
            #[schema(value_type = HashMap<String, serde_json::Value>)]
            pub params: Params,
            /// Lower numbers are delivered first. Default: 0.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(minimum = -32768, maximum = 32767)]
            pub priority: Option<i64>,
            /// Deliver the item no earlier than this long from now.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub delay: Option<Span>,
            /// Deliver the item no earlier than this time.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub ready_at: Option<Time>,
            /// Makes the submit repeatable: a second submit with the same key returns the first item. `unique` says for how long.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub idempotency_key: Option<String>,
            /// Replaces the pending item with the same key, if there is one. Use it to debounce.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub replace_key: Option<String>,
            /// However often the item is replaced, deliver it at the latest this long after the first submit with its
            /// `replace_key`.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub delay_max: Option<Span>,
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            pub tags: BTreeMap<String, String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub fairness_key: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub group: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(value_type = Option<String>, format = Uuid)]
            pub parent: Option<Text<ItemId>>,
            /// Deliver the item only after this group or these items have ended.
            #[serde(deserialize_with = "object_if_any", skip_serializing_if = "Option::is_none")]
            pub after: Option<DependencyBody>,
            /// Where the item comes from, for programs that route between systems.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub source: Option<String>,
            /// The trace that the item belongs to. Default: the trace in the headers of the call.
            #[serde(deserialize_with = "object_if_any", skip_serializing_if = "Option::is_none")]
            pub trace: Option<TraceBody>,
        }
        {
            /// The body of the work, at most 4 MiB: base64 in JSON, bytes in MessagePack. `blob` is an alias. Give a payload field in
            /// one form only.
            #[serde(alias = "blob")]
        }
        {
            /// Fee, for queues in `score` order.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub fee: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub size_bytes: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub tier: Option<String>,
            /// Overrides the queue's policy for this item, like the fields below.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(minimum = 0, maximum = 10000)]
            pub max_retries: Option<i64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub backoff: Option<BackoffBody>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub completed_ttl: Option<Span>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub failed_ttl: Option<Span>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub expire_after: Option<Span>,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub give_up_after: Option<Span>,
            /// How long the `idempotency_key` belongs to this item: `while_exists` or `while_unfinished`.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub unique: Option<String>,
        }
    }
}

fn span(what: &'static str, span: Option<Span>) -> Result<Option<towline_domain::Millis>, Refusal> {
    span.map(|span| span.into_domain(what)).transpose()
}

pub(crate) fn buffers(
    what: &'static str,
    given: BTreeMap<String, String>,
) -> Result<BTreeMap<SlotName, BufferId>, Refusal> {
    let invalid = |error: NameError| invalid(what, error.to_string());
    let pair = |(slot, buffer): (String, String)| {
        Ok((slot.parse().map_err(invalid)?, buffer.parse().map_err(invalid)?))
    };
    given.into_iter().map(pair).collect()
}

pub(crate) fn priority(value: i64) -> Result<i16, Refusal> {
    i16::try_from(value).map_err(|_| {
        invalid("priority", format!("{value} is out of range; use {} to {}", i16::MIN, i16::MAX))
    })
}

/// A delay or a time, not both.
pub(crate) fn when(delay: Option<Span>, ready_at: Option<Time>) -> Result<Option<When>, Refusal> {
    match (delay, ready_at) {
        (None, None) => Ok(None),
        (Some(delay), None) => Ok(Some(When::After(delay.into_domain("delay")?))),
        (None, Some(time)) => Ok(Some(When::At(time.into_domain("ready_at")?))),
        (Some(_), Some(_)) => Err(invalid("ready_at", "both `delay` and `ready_at` are given; choose one")),
    }
}

impl TryFrom<NewItem> for Submission {
    type Error = Refusal;

    fn try_from(item: NewItem) -> Result<Submission, Refusal> {
        let overrides = Overrides {
            max_retries: item.max_retries.map(|value| count("max_retries", value)).transpose()?,
            backoff: item.backoff.map(Backoff::try_from).transpose()?,
            completed_ttl: span("completed_ttl", item.completed_ttl)?,
            failed_ttl: span("failed_ttl", item.failed_ttl)?,
            expire_after: span("expire_after", item.expire_after)?,
            give_up_after: span("give_up_after", item.give_up_after)?,
            unique: item.unique.as_deref().map(unique).transpose()?,
        };
        let fields = Fields {
            state_blob: given("state_blob", item.state_blob, item.state_blob_text, item.state_blob_json)?,
            blob: given("payload", item.payload, item.payload_text, item.payload_json)?,
            metadata: given("metadata", item.metadata, item.metadata_text, item.metadata_json)?,
            parameters: given("parameters", item.parameters, None, None)?,
        };
        let body = Body {
            idempotency_key: item.idempotency_key,
            claim: None,
            tags: item.tags,
            fairness_key: item.fairness_key,
            group: item.group,
            parent: item.parent.map(|id| id.into_domain("parent")).transpose()?,
            source: item.source,
            inputs: buffers("inputs", item.inputs)?,
            params: item.params,
            fee: item.fee,
            size_bytes: item.size_bytes,
            tier: item.tier,
            trace: item.trace.map(Trace::try_from).transpose()?.map(Box::new),
            replace_key: item.replace_key,
        };
        Ok(Submission {
            id: item.id.map(|id| id.into_domain("id")).transpose()?,
            record_guard: None,
            after: item.after.map(Dependency::try_from).transpose()?.map(Box::new),
            priority: item.priority.map_or(Ok(0), priority)?,
            ready: when(item.delay, item.ready_at)?.unwrap_or(When::NOW),
            delay_max: span("delay_max", item.delay_max)?,
            overrides,
            body,
            fields,
        })
    }
}

/// Results in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmitAnswer {
    pub items: Vec<Submitted>,
    /// Notes about the request that are not errors, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The result of one item: its id, or why it was refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid)]
    pub id: Option<Text<ItemId>>,
    /// `false`: the submit created no item. It returned the item with the same idempotency key, or replaced a
    /// pending item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<bool>,
    /// `true`: the submit replaced a pending item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// Notes about the item that are not errors, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Submitted {
    #[must_use]
    pub fn accepted(id: ItemId, created: bool) -> Submitted {
        Submitted { id: Some(id.into()), created: Some(created), ..Submitted::default() }
    }

    #[must_use]
    pub fn replaced(id: ItemId) -> Submitted {
        Submitted { replaced: Some(true), ..Submitted::accepted(id, false) }
    }

    #[must_use]
    pub fn refused(error: impl Into<ErrorBody>) -> Submitted {
        Submitted { error: Some(error.into()), ..Submitted::default() }
    }
}
