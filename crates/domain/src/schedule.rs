//! A schedule: which item it submits to which queue, when, and its progress.
//!
//! This module has the data and its limits. The broker computes the times.

use crate::command::{Submission, When};
use crate::decide::check_content;
use crate::fields::Fields;
use crate::id::ItemId;
use crate::item::Body;
use crate::limits;
use crate::name::{QueueName, ScheduleName};
use crate::policy::Overrides;
use crate::refusal::Refusal;
use crate::time::{Millis, Timestamp};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The tags of an item that name its schedule and its occurrence.
pub const TAG_SCHEDULE: &str = "schedule";
pub const TAG_SCHEDULED_FOR: &str = "scheduled_for";

/// A schedule as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub name: ScheduleName,
    /// A schedule that is deleted and created again has a new one.
    pub uid: Uuid,
    pub spec: Spec,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    /// Intervals are counted from here.
    pub anchor: Timestamp,
    pub paused: bool,
    /// The next occurrence. `None` while the schedule is paused, and after its end.
    pub next: Option<Timestamp>,
    /// The latest occurrence that created an item.
    pub last: Option<Timestamp>,
    /// The latest item, including items of manual runs.
    pub last_item: Option<ItemId>,
    pub tally: ScheduleTally,
    pub error: Option<ScheduleError>,
}

/// What happened to the occurrences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScheduleTally {
    /// Created an item.
    pub submitted: u64,
    /// Too late for the catch-up policy.
    pub missed: u64,
    /// Skipped because the previous item was unfinished.
    pub skipped: u64,
    /// Refused by the queue.
    pub refused: u64,
}

/// Why the latest occurrence created no item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleError {
    pub at: Timestamp,
    pub occurrence: Timestamp,
    pub code: String,
    pub message: String,
}

/// The definition of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    pub queue: QueueName,
    pub rhythm: Rhythm,
    /// No occurrence before this time.
    pub start: Option<Timestamp>,
    /// No occurrence at or after this time.
    pub end: Option<Timestamp>,
    /// Each item becomes ready up to this long after its occurrence.
    pub jitter: Option<Millis>,
    pub catch_up: CatchUp,
    pub overlap: Overlap,
    pub item: Template,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rhythm {
    Cron { cron: String, time_zone: String },
    Every { every: Millis },
}

/// How many of the occurrences missed while no server ran are caught up: the latest ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CatchUp {
    None,
    One,
    All { max: u32 },
}

/// What happens at an occurrence while the previous item is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overlap {
    Allow,
    /// The occurrence creates no item.
    Skip,
    /// The previous item is cancelled.
    Cancel,
}

/// The item that each occurrence creates.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Template {
    pub priority: i16,
    pub delay: Millis,
    pub overrides: Overrides,
    pub body: Body,
    pub state_blob: Option<Bytes>,
    pub blob: Option<Bytes>,
    pub metadata: Option<Bytes>,
    pub parameters: Option<Bytes>,
}

impl Template {
    /// Checks a submission. Each occurrence creates its own item, so ids and keys that identify one item are refused.
    pub fn of(submission: Submission) -> Result<Template, Refusal> {
        let Submission { id, record_guard: _, after, priority, ready, delay_max, overrides, body, fields } =
            submission;
        let refuse = |what, message: &str| Err(Refusal::invalid(what, message));
        if id.is_some() {
            return refuse("item.id", "each occurrence creates its own item; leave the id out");
        }
        if after.is_some() {
            return refuse("item.after", "an item of a schedule cannot have dependencies; leave it out");
        }
        if body.trace.is_some() {
            return refuse("item.trace", "each occurrence starts its own trace; leave it out");
        }
        if body.idempotency_key.is_some() {
            let message = "each occurrence creates its own item, exactly once; leave the key out";
            return refuse("item.idempotency_key", message);
        }
        if body.replace_key.is_some() || delay_max.is_some() {
            let message = "each occurrence creates its own item and replaces none; leave it out";
            return refuse("item.replace_key", message);
        }
        let delay = match ready {
            When::After(delay) => delay,
            When::At(_) => {
                return refuse("item.ready_at", "the schedule determines the time; use a delay or nothing");
            }
        };
        for tag in [TAG_SCHEDULE, TAG_SCHEDULED_FOR] {
            if body.tags.contains_key(tag) {
                return refuse("item.tags", &format!("{tag:?} is set by the schedule; use another name"));
            }
        }
        if body.tags.len() > limits::TAGS_MAX - 2 {
            let (given, max) = (body.tags.len(), limits::TAGS_MAX - 2);
            return refuse(
                "item.tags",
                &format!("{given} tags; use at most {max}, because the schedule adds two"),
            );
        }
        overrides.check()?;
        check_content(&body, &fields)?;
        let Fields { state_blob, blob, metadata, parameters } = fields;
        let template = Template { priority, delay, overrides, body, state_blob, blob, metadata, parameters };
        let (bytes, max) = (template.bytes() as u64, limits::SCHEDULE_ITEM_BYTES_MAX as u64);
        if bytes > max {
            return Err(Refusal::TooLarge { what: "the item of a schedule", bytes, max });
        }
        Ok(template)
    }

    fn bytes(&self) -> usize {
        let params = self.body.params.iter().map(|(name, value)| name.len() + value.as_str().len());
        let tags = self.body.tags.iter().map(|(name, value)| name.len() + value.len());
        let inputs = self.body.inputs.iter().map(|(slot, id)| slot.as_str().len() + id.as_str().len());
        self.fields().bytes() + params.chain(tags).chain(inputs).sum::<usize>()
    }

    #[must_use]
    pub fn fields(&self) -> Fields {
        Fields {
            state_blob: self.state_blob.clone(),
            blob: self.blob.clone(),
            metadata: self.metadata.clone(),
            parameters: self.parameters.clone(),
        }
    }
}

impl Schedule {
    /// The item of an occurrence, or of a manual run.
    ///
    /// **Invariant:** the id of an occurrence's item is derived from the schedule and the occurrence, so that two submits
    /// for one occurrence create one item.
    #[must_use]
    pub fn submission(&self, id: ItemId, occurrence: Option<Timestamp>) -> Submission {
        let Template { priority, delay, overrides, body, .. } = &self.spec.item;
        let mut body = body.clone();
        body.tags.insert(TAG_SCHEDULE.to_owned(), self.name.to_string());
        let mut ready = When::After(*delay);
        if let Some(at) = occurrence {
            body.tags.insert(TAG_SCHEDULED_FOR.to_owned(), at.to_string());
            let spread = self.spec.jitter.map_or(0, |jitter| jitter.0);
            if spread > 0 || delay.0 > 0 {
                let late =
                    u64::from_le_bytes(id.0.as_bytes()[..8].try_into().unwrap_or_default()) % spread.max(1);
                ready = When::At(at.after(*delay).after(Millis(late)));
            }
        }
        let (priority, overrides, fields) = (*priority, overrides.clone(), self.spec.item.fields());
        Submission {
            id: Some(id),
            record_guard: None,
            after: None,
            priority,
            ready,
            delay_max: None,
            overrides,
            body,
            fields,
        }
    }

    #[must_use]
    pub fn item_id(&self, occurrence: Timestamp) -> ItemId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"towline schedule\0");
        hasher.update(self.uid.as_bytes());
        hasher.update(&occurrence.0.to_be_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        ItemId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

impl Spec {
    pub fn check(&self) -> Result<(), Refusal> {
        match &self.rhythm {
            Rhythm::Every { every } if *every < limits::SCHEDULE_EVERY_MIN => {
                let message = format!("{every} is too often; use {} or more", limits::SCHEDULE_EVERY_MIN);
                return Err(Refusal::invalid("every", message));
            }
            Rhythm::Cron { cron, .. } if cron.len() > limits::CRON_BYTES_MAX => {
                let message = format!("{} bytes; use at most {}", cron.len(), limits::CRON_BYTES_MAX);
                return Err(Refusal::invalid("cron", message));
            }
            Rhythm::Cron { time_zone, .. } if time_zone.len() > limits::LABEL_BYTES_MAX => {
                let message = format!("{} bytes; use at most {}", time_zone.len(), limits::LABEL_BYTES_MAX);
                return Err(Refusal::invalid("time_zone", message));
            }
            _ => {}
        }
        if let CatchUp::All { max } = self.catch_up
            && !(1..=limits::CATCH_UP_MAX).contains(&max)
        {
            let message = format!("{max} is out of range; use 1 to {}", limits::CATCH_UP_MAX);
            return Err(Refusal::invalid("catch_up_max", message));
        }
        if let (Some(start), Some(end)) = (self.start, self.end)
            && start >= end
        {
            return Err(Refusal::invalid(
                "end",
                format!("{end} is not after the start; use a time after {start}"),
            ));
        }
        Ok(())
    }

    /// Whether the occurrences are the same.
    #[must_use]
    pub fn same_times(&self, other: &Spec) -> bool {
        (&self.rhythm, self.start, self.end) == (&other.rhythm, other.start, other.end)
    }

    /// The fields in which two definitions differ, by their names in the API.
    #[must_use]
    pub fn differences(&self, other: &Spec) -> Vec<&'static str> {
        let mut fields = Vec::new();
        let mut compare = |name, same: bool| {
            if !same {
                fields.push(name);
            }
        };
        compare("queue", self.queue == other.queue);
        match (&self.rhythm, &other.rhythm) {
            (
                Rhythm::Cron { cron, time_zone },
                Rhythm::Cron { cron: other_cron, time_zone: other_time_zone },
            ) => {
                compare("cron", cron == other_cron);
                compare("time_zone", time_zone == other_time_zone);
            }
            (Rhythm::Every { every }, Rhythm::Every { every: other }) => compare("every", every == other),
            _ => {
                compare("cron", false);
                compare("every", false);
            }
        }
        compare("start", self.start == other.start);
        compare("end", self.end == other.end);
        compare("jitter", self.jitter == other.jitter);
        compare("catch_up", self.catch_up == other.catch_up);
        compare("overlap", self.overlap == other.overlap);
        compare("item", self.item == other.item);
        fields
    }
}
