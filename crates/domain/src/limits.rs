//! The limit of every number, name and collection a client can send. One table, checked once at the edge of `decide`.

use crate::time::Millis;

pub const QUEUE_NAME_BYTES_MAX: usize = 255;
pub const SLOT_NAME_BYTES_MAX: usize = 63;
pub const SLOTS_MAX: usize = 64;
pub const KEY_BYTES_MAX: usize = 512;
pub const TAGS_MAX: usize = 32;
pub const TAG_KEY_BYTES_MAX: usize = 128;
pub const TAG_VALUE_BYTES_MAX: usize = 512;
pub const LABEL_BYTES_MAX: usize = 255;
/// The least that W3C Trace Context requires a system to propagate.
pub const TRACESTATE_BYTES_MAX: usize = 512;
pub const TRACESTATE_MEMBERS_MAX: usize = 32;
pub const PARAMS_MAX: usize = 256;
pub const PARAM_NAME_BYTES_MAX: usize = 255;
/// All parameters of an item, or all output parameters of a commit, as JSON text.
pub const PARAMS_BYTES_MAX: usize = 1 << 20;
/// How deep a parameter's value may be nested. Most JSON parsers stop at 128, and some then reject the whole document.
pub const JSON_DEPTH_MAX: usize = 100;
pub const BUFFER_ID_BYTES_MAX: usize = 255;
/// For each of the four payload fields. Larger payloads belong in a buffer.
pub const FIELD_BYTES_MAX: usize = 4 << 20;
/// All stored parts of one item.
pub const ITEM_BYTES_MAX: usize = 8 << 20;
pub const REASON_BYTES_MAX: usize = 4096;
/// The error text of a filter.
pub const ERROR_TEXT_BYTES_MAX: usize = 1024;
/// Errors kept for each item: the first and the latest. `retries` has their number.
pub const ERRORS_KEPT_MAX: usize = 32;
pub const RETRIES_MAX: u32 = 10_000;
pub const RECEIVE_MAX: u32 = 10_000;
/// Operations in one call to a store.
pub const BATCH_MAX: usize = 10_000;
pub const PAGE_MAX: usize = 10_000;
/// Items that one commit can hand off. Together they are at most as large as the largest item.
pub const HAND_OFF_MAX: usize = 1000;
/// The reason in the event of a failure. The item has the whole reason.
pub const EVENT_REASON_BYTES_MAX: usize = 512;
/// Followers of one server at the same time.
pub const FOLLOWERS_MAX: usize = 1000;
/// Events in one answer of a store.
pub const EVENTS_PAGE_MAX: usize = 1000;
pub const VISIBILITY_MIN: Millis = Millis(100);
pub const VISIBILITY_MAX: Millis = Millis::days(30);
pub const DELAY_MAX: Millis = Millis::MAX;
/// How long a settled item is kept beyond its TTL at most, so that its settle can be repeated.
pub const REPEATABLE_FOR: Millis = Millis::hours(1);
/// A queue with this many finished items keeps none beyond its TTL.
pub const REPEATABLE_MAX: u64 = 100_000;
pub const DEPTH_LIMIT_MAX: u64 = 1 << 40;
pub const QUEUES_MAX: usize = 100_000;
pub const CONCURRENCY_MAX: u32 = 1_000_000;
pub const RATE_PER_SECOND_MAX: u32 = 1_000_000;
pub const RATE_PERIOD_MAX: Millis = Millis::days(366);
pub const RATE_BURST_MAX: u32 = 1_000_000;
/// How long a burst may take to refill. Later times do not fit into the rate state.
pub const RATE_REFILL_MAX: Millis = Millis::MAX;
/// Keys at their limit in the answer to a receive.
pub const FULL_KEYS_MAX: usize = 1024;
/// Keys of a queue with their own weight.
pub const WEIGHTS_MAX: usize = 100;
pub const WEIGHT_MAX: u32 = 1000;
/// Tags, or pairs of tags, by which a queue tallies finished items.
pub const TALLY_TAGS_MAX: usize = 4;
/// Values of such a tag that a queue can tally separately in an hour.
pub const TALLY_VALUES_MAX: u32 = 1000;
/// As many as a policy allows that says nothing about it.
pub const TALLY_VALUES_DEFAULT: u32 = 100;
/// Retention of tallies.
pub const TALLY_KEPT: Millis = Millis::days(30);
/// Items that one item can wait for by id. For more, use a group.
pub const AFTER_ITEMS_MAX: usize = 100;
pub const GROUP_EXPECT_MAX: u64 = 1 << 40;
/// Retention of a group's counts after the group is done. A later member has the group counted from its items again.
pub const GROUP_DONE_KEPT: Millis = Millis::days(1);
/// Retention of an unfinished group's counts after its last event. Then the group is counted from its items again, without
/// the members that were removed.
pub const GROUP_OPEN_KEPT: Millis = Millis::days(366);
pub const SCHEDULES_MAX: usize = 10_000;
pub const CRON_BYTES_MAX: usize = 256;
/// The item that a schedule submits. It is small because it is stored with the schedule, which is written at each
/// occurrence.
pub const SCHEDULE_ITEM_BYTES_MAX: usize = 64 << 10;
pub const SCHEDULE_EVERY_MIN: Millis = Millis(1000);
/// Missed occurrences that are caught up at once.
pub const CATCH_UP_MAX: u32 = 1000;
/// Future occurrences in one answer.
pub const NEXT_TIMES_MAX: usize = 100;
pub const KV_KEY_BYTES_MAX: usize = 1024;
pub const KV_VALUE_BYTES_MAX: usize = 1 << 20;
/// Records in one answer. Each may have the maximum size.
pub const KV_PAGE_MAX: usize = 64;
/// The key of a client's record. Towline adds a prefix of a few bytes.
pub const RECORD_KEY_BYTES_MAX: usize = 512;
pub const TOPIC_MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Messages held for a slow subscriber; if there are more, it misses the oldest.
pub const TOPIC_BEHIND_MAX: usize = 256;
/// Bytes held for all subscribers of one server; if there are more, they miss the oldest.
pub const TOPICS_BYTES_MAX: usize = 64 << 20;
/// Of all topics, at one server.
pub const TOPIC_SUBSCRIBERS_MAX: usize = 10_000;
