//! A schedule: when which item goes into which queue, and how far that has come.
//!
//! Only data, and the limits it must keep: times are computed where time zones are known.

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

/// The tags that tell where an item came from.
pub const TAG_SCHEDULE: &str = "schedule";
pub const TAG_SCHEDULED_FOR: &str = "scheduled_for";

/// A schedule as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub name: ScheduleName,
    /// Another for each that is made, also under the same name.
    pub uid: Uuid,
    pub spec: Spec,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    /// Where intervals are counted from.
    pub anchor: Timestamp,
    pub paused: bool,
    /// The occurrence that comes next. None while it is paused, and when it is over.
    pub next: Option<Timestamp>,
    /// The latest occurrence that made an item.
    pub last: Option<Timestamp>,
    /// The latest item, also one that somebody asked for out of turn.
    pub last_item: Option<ItemId>,
    pub tally: ScheduleTally,
    pub error: Option<ScheduleError>,
}

/// What became of its occurrences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScheduleTally {
    /// Made an item.
    pub submitted: u64,
    /// Were too late for the catch-up policy.
    pub missed: u64,
    /// Came while the item before was unfinished.
    pub skipped: u64,
    /// Were refused by the queue.
    pub refused: u64,
}

/// Why the latest occurrence made no item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleError {
    pub at: Timestamp,
    pub occurrence: Timestamp,
    pub code: String,
    pub message: String,
}

/// What its owner says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    pub queue: QueueName,
    pub rhythm: Rhythm,
    /// Nothing before this.
    pub start: Option<Timestamp>,
    /// Nothing at this or after it.
    pub end: Option<Timestamp>,
    /// Each item is ready up to this much after its occurrence.
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

/// Which of the occurrences that nobody was there for are made up for. The latest ones are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CatchUp {
    None,
    One,
    All { max: u32 },
}

/// What happens when an occurrence comes while the item before is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overlap {
    Allow,
    /// The occurrence makes no item.
    Skip,
    /// The item before is cancelled.
    Cancel,
}

/// The item that each occurrence makes.
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
    /// Of a submit as anybody would make it. Each occurrence makes an item of its own, so what makes two of them one is
    /// refused.
    pub fn of(submission: Submission) -> Result<Template, Refusal> {
        let Submission { id, record_guard: _, after, priority, ready, delay_max, overrides, body, fields } =
            submission;
        let refuse = |what, message: &str| Err(Refusal::invalid(what, message));
        if id.is_some() {
            return refuse("item.id", "each occurrence is an item of its own; leave the id out");
        }
        if after.is_some() {
            return refuse("item.after", "what an occurrence waits for is its time; leave it out");
        }
        if body.trace.is_some() {
            return refuse("item.trace", "each occurrence is a trace of its own; leave it out");
        }
        if body.idempotency_key.is_some() {
            let message = "each occurrence is an item of its own, and made once; leave the key out";
            return refuse("item.idempotency_key", message);
        }
        if body.replace_key.is_some() || delay_max.is_some() {
            let message = "each occurrence is an item of its own, and replaces none; leave it out";
            return refuse("item.replace_key", message);
        }
        let delay = match ready {
            When::After(delay) => delay,
            When::At(_) => return refuse("item.ready_at", "the schedule says when; use a delay, or none"),
        };
        for tag in [TAG_SCHEDULE, TAG_SCHEDULED_FOR] {
            if body.tags.contains_key(tag) {
                return refuse("item.tags", &format!("{tag:?} is set by the schedule; use another name"));
            }
        }
        if body.tags.len() > limits::TAGS_MAX - 2 {
            let (given, max) = (body.tags.len(), limits::TAGS_MAX - 2);
            return refuse("item.tags", &format!("{given} given; at most {max}, the schedule adds two"));
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
    /// The item of an occurrence, or of a run that somebody asked for.
    ///
    /// **Invariant:** its id is made of the schedule and the occurrence, so that two attempts at one occurrence are the
    /// same item.
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

    /// The id of an occurrence's item.
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
    /// Refuses numbers out of range.
    pub fn check(&self) -> Result<(), Refusal> {
        match &self.rhythm {
            Rhythm::Every { every } if *every < limits::SCHEDULE_EVERY_MIN => {
                let message = format!("{every} is too often; use {} or more", limits::SCHEDULE_EVERY_MIN);
                return Err(Refusal::invalid("every", message));
            }
            Rhythm::Cron { cron, .. } if cron.len() > limits::CRON_BYTES_MAX => {
                let message = format!("{} bytes; at most {}", cron.len(), limits::CRON_BYTES_MAX);
                return Err(Refusal::invalid("cron", message));
            }
            Rhythm::Cron { time_zone, .. } if time_zone.len() > limits::LABEL_BYTES_MAX => {
                let message = format!("{} bytes; at most {}", time_zone.len(), limits::LABEL_BYTES_MAX);
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
            return Err(Refusal::invalid("end", format!("{end} is not after the start, {start}")));
        }
        Ok(())
    }

    /// Whether occurrences come at the same times.
    #[must_use]
    pub fn same_times(&self, other: &Spec) -> bool {
        (&self.rhythm, self.start, self.end) == (&other.rhythm, other.start, other.end)
    }

    /// The fields in which two differ, as they are called in the API.
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
