//! Flags of an item filter, the same in every command that has one.

use crate::value::{pair, time};
use clap::Args;
use towline_api::{ItemFilter, Time};

/// A filter. An item matches if it meets every condition.
#[derive(Debug, Clone, Default, Args)]
pub struct FilterArgs {
    /// Only items in this state: pending, ready, scheduled, processing, paused, completed, failed,
    /// unfinished.
    #[arg(long, visible_alias = "status", value_name = "STATE")]
    state: Option<String>,
    /// Only items that failed this way: explicit, retries_exhausted, expired, cancelled, poison.
    #[arg(long, value_name = "KIND")]
    failure: Option<String>,
    /// Only items with this tag. Repeatable; all must match.
    #[arg(long, value_name = "NAME=VALUE", value_parser = checked_pair)]
    tag: Vec<String>,
    /// Only items with a tag at or below this path, by whole segments. Repeatable; all must match.
    #[arg(long, value_name = "NAME=PATH", value_parser = checked_pair)]
    tag_prefix: Vec<String>,
    /// Short for --tag type=TYPE.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only items of this group.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only items with this idempotency key.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Only items with this priority.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i16>,
    /// Only items with this priority or a higher number.
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "priority")]
    priority_min: Option<i16>,
    /// Only items with this priority or a lower number.
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "priority")]
    priority_max: Option<i16>,
    /// Only items at this attempt; the first is 1.
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Only items at this attempt or a later one.
    #[arg(long, value_name = "N", conflicts_with = "attempt")]
    attempt_min: Option<u32>,
    /// Only items at this attempt or an earlier one.
    #[arg(long, value_name = "N", conflicts_with = "attempt")]
    attempt_max: Option<u32>,
    /// Only items submitted at this time or later.
    #[arg(long, value_name = "TIME", value_parser = time)]
    created_from: Option<Time>,
    /// Only items submitted before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    created_before: Option<Time>,
    /// Only items finished at this time or later.
    #[arg(long, value_name = "TIME", value_parser = time)]
    finished_from: Option<Time>,
    /// Only items finished before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    finished_before: Option<Time>,
    /// Only items with this text in an error message, ignoring case.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only items that are ready at this time or later.
    #[arg(long, value_name = "TIME", value_parser = time)]
    ready_from: Option<Time>,
    /// Only items that are ready before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    ready_before: Option<Time>,
    /// Only items delivered this often.
    #[arg(long, value_name = "N")]
    deliveries: Option<u32>,
    /// Only items delivered this often or more.
    #[arg(long, value_name = "N", conflicts_with = "deliveries")]
    deliveries_min: Option<u32>,
    /// Only items delivered this often or less.
    #[arg(long, value_name = "N", conflicts_with = "deliveries")]
    deliveries_max: Option<u32>,
    /// No items in this state. Repeatable, like every flag that begins with --not: none may match.
    #[arg(long, visible_alias = "not-status", value_name = "STATE")]
    not_state: Vec<String>,
    /// No items that failed this way.
    #[arg(long, value_name = "KIND")]
    not_failure: Vec<String>,
    /// No items with this tag.
    #[arg(long, value_name = "NAME=VALUE", value_parser = checked_pair)]
    not_tag: Vec<String>,
    /// No items with a tag at or below this path.
    #[arg(long, value_name = "NAME=PATH", value_parser = checked_pair)]
    not_tag_prefix: Vec<String>,
    /// Short for --not-tag type=TYPE.
    #[arg(long, value_name = "TYPE")]
    not_type: Vec<String>,
    /// No items of this group.
    #[arg(long, value_name = "GROUP")]
    not_group: Vec<String>,
    /// No items with a tag of this name, whatever its value. Repeatable.
    #[arg(long, value_name = "NAME")]
    no_tag: Vec<String>,
}

fn checked_pair(text: &str) -> Result<String, String> {
    pair(text).map(|_| text.to_owned())
}

impl FilterArgs {
    pub fn get(self) -> ItemFilter {
        fn text<T: ToString>(value: Option<T>) -> Option<String> {
            value.map(|value| value.to_string())
        }
        ItemFilter {
            state: self.state,
            failure: self.failure,
            tag: self.tag,
            tag_prefix: self.tag_prefix,
            kind: self.kind,
            group: self.group,
            idempotency_key: self.idempotency_key,
            priority: text(self.priority),
            priority_min: text(self.priority_min),
            priority_max: text(self.priority_max),
            attempt: text(self.attempt),
            attempt_min: text(self.attempt_min),
            attempt_max: text(self.attempt_max),
            created_from: text(self.created_from),
            created_before: text(self.created_before),
            finished_from: text(self.finished_from),
            finished_before: text(self.finished_before),
            error: self.error,
            ready_from: text(self.ready_from),
            ready_before: text(self.ready_before),
            deliveries: text(self.deliveries),
            deliveries_min: text(self.deliveries_min),
            deliveries_max: text(self.deliveries_max),
            not_state: self.not_state,
            not_failure: self.not_failure,
            not_tag: self.not_tag,
            not_tag_prefix: self.not_tag_prefix,
            not_type: self.not_type,
            not_group: self.not_group,
            no_tag: self.no_tag,
        }
    }
}
