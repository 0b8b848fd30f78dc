//! Flags that describe an item, for `queue submit` and `schedule create`.

use crate::exit::Failure;
use crate::policy::backoff;
use crate::source::{Source, check_stdin};
use crate::value::{Pair, duration, item_id, map, pair, param};
use clap::Args;
use towline_api::payload::Payload;
use towline_api::{BackoffBody, DependencyBody, ItemId, Json, Millis, NewItem, Span};

#[derive(Debug, Args)]
pub struct ItemArgs {
    /// A buffer for an input slot. Repeatable.
    #[arg(long, value_name = "SLOT=BUFFER", value_parser = pair)]
    input: Vec<Pair<String>>,
    /// A parameter: `name=text` is a string, `name:=json` any JSON value. Repeatable.
    #[arg(long, value_name = "NAME=TEXT|NAME:=JSON", value_parser = param)]
    input_param: Vec<Pair<Json>>,
    /// Lower numbers are delivered first [default: 0].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// Deliver the item no earlier than this long after its submit, for example 10m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    delay: Option<Millis>,
    /// A tag to find the item by. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    tag: Vec<Pair<String>>,
    /// The item's group.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    #[command(flatten)]
    after: DependencyArgs,
    /// Items with different fairness keys take turns, if the queue has fairness.
    #[arg(long, value_name = "KEY")]
    fairness_key: Option<String>,
    /// The parent of the item.
    #[arg(long, value_name = "ITEM", value_parser = item_id)]
    parent: Option<ItemId>,
    /// Where the item comes from, for programs that route between systems.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    #[command(flatten)]
    fields: FieldArgs,
    #[command(flatten)]
    policy: ItemPolicyArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Dependencies")]
struct DependencyArgs {
    /// Deliver the item only after all members of this group have ended.
    #[arg(long, value_name = "GROUP", conflicts_with = "after_item")]
    after_group: Option<String>,
    /// How many members that group will have. The item waits until it has this many.
    #[arg(long, value_name = "N", requires = "after_group")]
    after_expect: Option<i64>,
    /// Deliver the item only after this item has ended. Repeatable.
    #[arg(long, value_name = "ITEM", value_parser = item_id)]
    after_item: Vec<ItemId>,
    /// all-success: all must complete; if one fails, this item fails too. all-done: all must end. A number:
    /// this many must complete [default: all-success].
    #[arg(long, value_name = "WHEN")]
    after_when: Option<String>,
}

impl DependencyArgs {
    fn body(self) -> Result<Option<DependencyBody>, Failure> {
        let DependencyArgs { after_group: group, after_expect: expect, after_item, after_when } = self;
        if group.is_none() && after_item.is_empty() {
            return match after_when {
                Some(_) => Err(Failure::Usage("--after-when needs --after-group or --after-item".to_owned())),
                None => Ok(None),
            };
        }
        let items = (!after_item.is_empty()).then(|| after_item.into_iter().map(Into::into).collect());
        let count = after_when.as_deref().and_then(|when| when.parse().ok());
        let when = after_when.filter(|_| count.is_none());
        Ok(Some(DependencyBody { group, expect, items, when, count }))
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Payload fields, at most 4 MiB each")]
struct FieldArgs {
    /// The body of the work.
    #[arg(long, value_name = "TEXT", conflicts_with = "payload_file")]
    payload: Option<String>,
    /// The body of the work from a file (`-`: standard input).
    #[arg(long, value_name = "PATH")]
    payload_file: Option<String>,
    /// State that a worker wants to find again in the next attempt.
    #[arg(long, value_name = "TEXT", conflicts_with = "state_blob_file")]
    state_blob: Option<String>,
    /// The state blob from a file (`-`: standard input).
    #[arg(long, value_name = "PATH")]
    state_blob_file: Option<String>,
    /// Metadata of the work.
    #[arg(long, value_name = "TEXT", conflicts_with = "metadata_file")]
    metadata: Option<String>,
    /// The metadata from a file (`-`: standard input).
    #[arg(long, value_name = "PATH")]
    metadata_file: Option<String>,
    /// The payload field `parameters` as text: bytes that Towline does not read, for jobs of Cyclotron. --input-param sets
    /// parameters by name.
    #[arg(long, value_name = "TEXT", conflicts_with = "parameters_file")]
    parameters: Option<String>,
    /// The payload field `parameters` from a file (`-`: standard input).
    #[arg(long, value_name = "PATH")]
    parameters_file: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Policy of this item, instead of the queue's")]
struct ItemPolicyArgs {
    /// How often a failed attempt is retried.
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// Delay before a retry, as for `queue create`.
    #[arg(long, value_name = "BACKOFF", value_parser = backoff)]
    backoff: Option<BackoffBody>,
    /// How long the completed item is kept.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    completed_ttl: Option<Millis>,
    /// How long the failed item is kept.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    failed_ttl: Option<Millis>,
    /// Fail the item if it is not finished this long after the submit.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    expire_after: Option<Millis>,
    /// Fail the item if it is not finished this long after its first delivery.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    give_up_after: Option<Millis>,
    /// The fee, for queues in score order.
    #[arg(long, value_name = "N")]
    fee: Option<u64>,
    /// The size of the work, for queues in score order.
    #[arg(long, value_name = "N")]
    size_bytes: Option<u64>,
    /// The submitter's tier, for queues in score order.
    #[arg(long, value_name = "NAME")]
    tier: Option<String>,
}

impl ItemArgs {
    pub fn item(self) -> Result<NewItem, Failure> {
        let [payload, state_blob, metadata, parameters] = self.fields.read()?;
        let policy = self.policy;
        Ok(NewItem {
            inputs: map("--input", self.input)?,
            params: map("--input-param", self.input_param)?,
            priority: self.priority,
            delay: self.delay.map(Span::from),
            tags: map("--tag", self.tag)?,
            fairness_key: self.fairness_key,
            group: self.group,
            after: self.after.body()?,
            parent: self.parent.map(Into::into),
            source: self.source,
            payload,
            state_blob,
            metadata,
            parameters,
            fee: policy.fee,
            size_bytes: policy.size_bytes,
            tier: policy.tier,
            max_retries: policy.max_retries.map(i64::from),
            backoff: policy.backoff,
            completed_ttl: policy.completed_ttl.map(Span::from),
            failed_ttl: policy.failed_ttl.map(Span::from),
            expire_after: policy.expire_after.map(Span::from),
            give_up_after: policy.give_up_after.map(Span::from),
            ..NewItem::default()
        })
    }
}

impl FieldArgs {
    fn read(self) -> Result<[Option<Payload>; 4], Failure> {
        let source = |text: Option<String>, path: Option<String>| {
            text.map(Source::Text).or_else(|| path.as_deref().map(Source::path))
        };
        let sources = [
            source(self.payload, self.payload_file),
            source(self.state_blob, self.state_blob_file),
            source(self.metadata, self.metadata_file),
            source(self.parameters, self.parameters_file),
        ];
        check_stdin(sources.iter().flatten())?;
        let mut read = [const { None }; 4];
        for (into, source) in read.iter_mut().zip(sources) {
            *into = source.map(|source| source.read()).transpose()?.map(Payload::from);
        }
        Ok(read)
    }
}
