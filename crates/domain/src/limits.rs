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
/// As many as W3C Trace Context asks everybody to hand on.
pub const TRACESTATE_BYTES_MAX: usize = 512;
pub const TRACESTATE_MEMBERS_MAX: usize = 32;
pub const PARAMS_MAX: usize = 256;
pub const PARAM_NAME_BYTES_MAX: usize = 255;
/// All parameters of an item, or all output parameters of a commit, as JSON text.
pub const PARAMS_BYTES_MAX: usize = 1 << 20;
/// How deep a parameter's value may be nested. Most readers of JSON give up at 128, some of them for the whole document.
pub const JSON_DEPTH_MAX: usize = 100;
pub const BUFFER_ID_BYTES_MAX: usize = 255;
/// Each of the four payload fields; above this a payload belongs in a buffer.
pub const FIELD_BYTES_MAX: usize = 4 << 20;
/// Everything of one item that is stored with it.
pub const ITEM_BYTES_MAX: usize = 8 << 20;
pub const REASON_BYTES_MAX: usize = 4096;
/// What a filter looks for in errors.
pub const ERROR_TEXT_BYTES_MAX: usize = 1024;
/// Errors kept for each item: the first and the latest; how many there were is kept as `retries`.
pub const ERRORS_KEPT_MAX: usize = 32;
pub const RETRIES_MAX: u32 = 10_000;
pub const RECEIVE_MAX: u32 = 10_000;
/// Operations in one call to a store.
pub const BATCH_MAX: usize = 10_000;
pub const PAGE_MAX: usize = 10_000;
/// Of the reason of a failure, in the event that tells of it; the item has all of it.
pub const EVENT_REASON_BYTES_MAX: usize = 512;
/// Who may follow the events of one server at the same time.
pub const FOLLOWERS_MAX: usize = 1000;
/// Events in one answer of a store.
pub const EVENTS_PAGE_MAX: usize = 1000;
pub const VISIBILITY_MIN: Millis = Millis(100);
pub const VISIBILITY_MAX: Millis = Millis::days(30);
pub const DELAY_MAX: Millis = Millis::MAX;
/// How long a settled item is kept beyond its TTL at most, so that its settle can be repeated.
pub const REPEATABLE_FOR: Millis = Millis::minutes(1);
/// A queue with this many finished items keeps none beyond its TTL.
pub const REPEATABLE_MAX: u64 = 100_000;
pub const DEPTH_LIMIT_MAX: u64 = 1 << 40;
pub const QUEUES_MAX: usize = 100_000;
pub const CONCURRENCY_MAX: u32 = 1_000_000;
pub const RATE_PER_SECOND_MAX: u32 = 1_000_000;
pub const RATE_PERIOD_MAX: Millis = Millis::days(366);
pub const RATE_BURST_MAX: u32 = 1_000_000;
/// How long a burst that was used up takes to come back: times beyond that cannot be kept.
pub const RATE_REFILL_MAX: Millis = Millis::MAX;
/// Keys at their limit that a receive names to whoever waits.
pub const FULL_KEYS_MAX: usize = 1024;
/// Keys of a queue that have a weight of their own.
pub const WEIGHTS_MAX: usize = 100;
pub const WEIGHT_MAX: u32 = 1000;
/// Tags of a queue by which it counts what finished.
pub const TALLY_TAGS_MAX: usize = 4;
/// Values of one such tag that are told apart in an hour; the others are counted together.
pub const TALLY_VALUES_MAX: usize = 100;
/// How long it is known how many items finished in an hour.
pub const TALLY_KEPT: Millis = Millis::days(30);
/// Items that one item waits for by their ids; for more there are groups.
pub const AFTER_ITEMS_MAX: usize = 100;
pub const GROUP_EXPECT_MAX: u64 = 1 << 40;
/// How long it is known how many members a group had: after it was done, and if nothing happens in it.
pub const GROUP_DONE_KEPT: Millis = Millis::days(1);
pub const GROUP_OPEN_KEPT: Millis = Millis::days(30);
pub const SCHEDULES_MAX: usize = 10_000;
pub const CRON_BYTES_MAX: usize = 256;
/// All of the item that a schedule submits: it is kept with the schedule, which is written at each occurrence.
pub const SCHEDULE_ITEM_BYTES_MAX: usize = 64 << 10;
pub const SCHEDULE_EVERY_MIN: Millis = Millis(1000);
/// Occurrences that are made up for at once.
pub const CATCH_UP_MAX: u32 = 1000;
/// Next times in one answer.
pub const NEXT_TIMES_MAX: usize = 100;
pub const KV_KEY_BYTES_MAX: usize = 1024;
pub const KV_VALUE_BYTES_MAX: usize = 1 << 20;
/// Records in one answer: each may be as large as a record may be.
pub const KV_PAGE_MAX: usize = 64;
/// The key of a record that a caller keeps: Towline puts a few bytes before it.
pub const RECORD_KEY_BYTES_MAX: usize = 512;
pub const TOPIC_MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Messages that are held for a listener who is behind; beyond that it misses the oldest.
pub const TOPIC_BEHIND_MAX: usize = 256;
/// Bytes that are held for all listeners of one server; beyond that they miss what was published first.
pub const TOPICS_BYTES_MAX: usize = 64 << 20;
/// Of all topics, at one server.
pub const TOPIC_LISTENERS_MAX: usize = 10_000;
