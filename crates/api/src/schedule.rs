//! Wire types of schedules.

use crate::backoff::BackoffBody;
use crate::invalid::{invalid, not_one_of};
use crate::item::buffers_shown;
use crate::object::object;
use crate::payload::Payload;
use crate::policy::{count, queue_name};
use crate::queue::SettingChange;
use crate::span::Span;
use crate::submit::NewItem;
use crate::text::Text;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use towline_domain::schedule::{CatchUp, Overlap, Rhythm, Schedule, Spec, Template};
use towline_domain::{ItemId, Millis, Refusal, Timestamp};
use utoipa::ToSchema;

/// Default of `catch_up_max`.
const CATCH_UP_MAX_DEFAULT: u32 = 100;

/// A schedule to create or replace. An identical schedule changes nothing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PutSchedule {
    /// The queue that receives the items.
    pub queue: String,
    /// A cron expression of five fields, or six with seconds first, or seven with years last. Give this or
    /// `every`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The interval, counted from `start` or from the creation of the schedule. At least 1s. Give this or
    /// `cron`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// The time zone of `cron`, an IANA name such as `Europe/Vienna`. Default: UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// No occurrence is before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Time>,
    /// Every occurrence is before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Time>,
    /// Delay each item by a random time of up to this much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
    /// Which missed occurrences to submit late: `none`, `one` (the latest; default) or `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<String>,
    /// With `catch_up` all: at most this many, the latest ones. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub catch_up_max: Option<i64>,
    /// What to do while the previous item is unfinished: `allow` (submit anyway; default), `skip` the
    /// occurrence, or `cancel` the previous item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<String>,
    /// Whether the schedule is paused. Default: unchanged; a new schedule is not paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// The item that each occurrence submits. The schedule sets `id`, `idempotency_key`, `ready_at` and
    /// `trace` itself.
    #[serde(deserialize_with = "object")]
    pub item: NewItem,
}

impl PutSchedule {
    /// The specification, and whether to pause the schedule.
    pub fn into_domain(self) -> Result<(Spec, Option<bool>), Refusal> {
        if self.queue.is_empty() {
            return Err(invalid("queue", "missing; name the queue that the items go to"));
        }
        let rhythm = match (self.cron, self.every) {
            (Some(cron), None) => {
                Rhythm::Cron { cron, time_zone: self.time_zone.unwrap_or_else(|| "UTC".to_owned()) }
            }
            (None, Some(_)) if self.time_zone.is_some() => {
                return Err(invalid("time_zone", "`every` has no time zone; use it with `cron`"));
            }
            (None, Some(every)) => Rhythm::Every { every: every.into_domain("every")? },
            (Some(_), Some(_)) => {
                return Err(invalid("every", "both `cron` and `every` are given; choose one"));
            }
            (None, None) => return Err(invalid("cron", "missing; give `cron` or `every`")),
        };
        let most = self.catch_up_max.map(|max| count("catch_up_max", max)).transpose()?;
        let catch_up = match self.catch_up.as_deref() {
            Some("all") => CatchUp::All { max: most.unwrap_or(CATCH_UP_MAX_DEFAULT) },
            _ if most.is_some() => {
                return Err(invalid("catch_up_max", "needs `catch_up` to be all"));
            }
            Some("none") => CatchUp::None,
            Some("one") | None => CatchUp::One,
            Some(other) => return Err(not_one_of("catch_up", other, "none, one, all")),
        };
        let overlap = match self.overlap.as_deref() {
            Some("allow") | None => Overlap::Allow,
            Some("skip") => Overlap::Skip,
            Some("cancel") => Overlap::Cancel,
            Some(other) => return Err(not_one_of("overlap", other, "allow, skip, cancel")),
        };
        let queue = queue_name(&self.queue)?;
        let spec = Spec {
            queue,
            rhythm,
            start: self.start.map(|time| time.into_domain("start")).transpose()?,
            end: self.end.map(|time| time.into_domain("end")).transpose()?,
            jitter: self.jitter.map(|span| span.into_domain("jitter")).transpose()?,
            catch_up,
            overlap,
            item: Template::of(self.item.try_into()?)?,
        };
        Ok((spec, self.paused))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleShown {
    pub name: String,
    pub queue: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub end: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
    /// `none`, `one` or `all`.
    pub catch_up: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_max: Option<u32>,
    /// `allow`, `skip` or `cancel`.
    pub overlap: String,
    pub paused: bool,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    #[schema(value_type = String, format = DateTime)]
    pub changed_at: Time,
    /// The next occurrence. `null`: the schedule is paused or over.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_at: Option<Time>,
    /// The latest occurrence that submitted an item.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_at: Option<Time>,
    /// The latest item, also from a manual run.
    #[schema(value_type = Option<String>, format = Uuid)]
    pub last_item: Option<Text<ItemId>>,
    /// How many occurrences submitted an item.
    pub submitted: u64,
    /// How many occurrences were missed and not submitted late.
    pub missed: u64,
    /// How many occurrences were skipped because the previous item was unfinished.
    pub skipped: u64,
    /// How many occurrences the queue refused.
    pub refused: u64,
    /// Why the latest occurrence submitted nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ScheduleErrorShown>,
    pub item: NewItem,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleErrorShown {
    #[schema(value_type = String, format = DateTime)]
    pub at: Time,
    /// The occurrence that failed.
    #[schema(value_type = String, format = DateTime)]
    pub occurrence: Time,
    pub code: String,
    pub message: String,
}

impl From<Schedule> for ScheduleShown {
    fn from(schedule: Schedule) -> ScheduleShown {
        let Spec { queue, rhythm, start, end, jitter, catch_up, overlap, item } = schedule.spec;
        let (cron, time_zone, every) = match rhythm {
            Rhythm::Cron { cron, time_zone } => (Some(cron), Some(time_zone), None),
            Rhythm::Every { every } => (None, None, Some(every.into())),
        };
        let (catch_up, catch_up_max) = match catch_up {
            CatchUp::None => ("none", None),
            CatchUp::One => ("one", None),
            CatchUp::All { max } => ("all", Some(max)),
        };
        let overlap = match overlap {
            Overlap::Allow => "allow",
            Overlap::Skip => "skip",
            Overlap::Cancel => "cancel",
        };
        ScheduleShown {
            name: schedule.name.to_string(),
            queue: queue.to_string(),
            cron,
            time_zone,
            every,
            start: start.map(Time::from),
            end: end.map(Time::from),
            jitter: jitter.map(Span::from),
            catch_up: catch_up.to_owned(),
            catch_up_max,
            overlap: overlap.to_owned(),
            paused: schedule.paused,
            created_at: schedule.created_at.into(),
            changed_at: schedule.changed_at.into(),
            next_at: schedule.next.map(Time::from),
            last_at: schedule.last.map(Time::from),
            last_item: schedule.last_item.map(Text::from),
            submitted: schedule.tally.submitted,
            missed: schedule.tally.missed,
            skipped: schedule.tally.skipped,
            refused: schedule.tally.refused,
            error: schedule.error.map(|error| ScheduleErrorShown {
                at: error.at.into(),
                occurrence: error.occurrence.into(),
                code: error.code,
                message: error.message,
            }),
            item: item.into(),
        }
    }
}

impl From<Template> for NewItem {
    fn from(item: Template) -> NewItem {
        let Template { priority, delay, overrides, body, state_blob, blob, metadata, parameters } = item;
        NewItem {
            after: None,
            id: None,
            inputs: buffers_shown(&body.inputs),
            params: body.params,
            priority: (priority != 0).then_some(priority.into()),
            delay: (delay != Millis::ZERO).then_some(delay.into()),
            ready_at: None,
            idempotency_key: None,
            replace_key: None,
            delay_max: None,
            tags: body.tags,
            fairness_key: body.fairness_key,
            group: body.group,
            parent: body.parent.map(Text::from),
            source: body.source,
            trace: body.trace.map(|trace| (*trace).into()),
            payload: blob.map(Payload::from),
            payload_text: None,
            payload_json: None,
            state_blob: state_blob.map(Payload::from),
            state_blob_text: None,
            state_blob_json: None,
            metadata: metadata.map(Payload::from),
            metadata_text: None,
            metadata_json: None,
            parameters: parameters.map(Payload::from),
            fee: body.fee,
            size_bytes: body.size_bytes,
            tier: body.tier,
            max_retries: overrides.max_retries.map(i64::from),
            backoff: overrides.backoff.as_ref().map(BackoffBody::from),
            completed_ttl: overrides.completed_ttl.map(Span::from),
            failed_ttl: overrides.failed_ttl.map(Span::from),
            expire_after: overrides.expire_after.map(Span::from),
            give_up_after: overrides.give_up_after.map(Span::from),
            unique: overrides.unique.map(|unique| unique.name().to_owned()),
        }
    }
}

/// The result of creating or replacing a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleAnswer {
    pub created: bool,
    /// The fields that changed. Empty for a new schedule.
    pub changed: Vec<SettingChange>,
    /// The schedule. In a dry run: as it would be.
    pub schedule: ScheduleShown,
    /// Notes that are not errors, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl ScheduleShown {
    /// What a client can set, and how it differs from an earlier version of the schedule.
    #[must_use]
    pub fn changes_since(&self, before: &ScheduleShown) -> Vec<SettingChange> {
        // A wire type always has a JSON form.
        let json = |shown: &ScheduleShown| serde_json::to_value(shown).unwrap_or_default();
        let (before, after) = (json(before), json(self));
        let changes = SettingChange::between("", &before, &after).into_iter();
        let mut changed: Vec<SettingChange> =
            changes.filter(|change| SETTINGS.contains(&change.setting.as_str())).collect();
        changed.extend(SettingChange::between("item.", &before["item"], &after["item"]));
        changed
    }
}

/// The fields of [`PutSchedule`], except `item`.
const SETTINGS: [&str; 11] = [
    "queue",
    "cron",
    "time_zone",
    "every",
    "start",
    "end",
    "jitter",
    "catch_up",
    "catch_up_max",
    "overlap",
    "paused",
];

/// A page of schedules in order of name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SchedulePage {
    pub schedules: Vec<ScheduleShown>,
    /// Pass this as `cursor` to get the next page. `null`: this is the last page.
    pub next: Option<String>,
}

/// The next occurrences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NextTimes {
    #[schema(value_type = Vec<String>)]
    pub times: Vec<Time>,
}

impl From<Vec<Timestamp>> for NextTimes {
    fn from(times: Vec<Timestamp>) -> NextTimes {
        NextTimes { times: times.into_iter().map(Time::from).collect() }
    }
}

/// The item of a manual run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleRun {
    #[schema(value_type = String, format = Uuid)]
    pub id: Text<ItemId>,
}
