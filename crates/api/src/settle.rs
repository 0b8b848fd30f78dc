//! Wire types of the calls that a lease holder makes: heartbeat, edit, commit, fail, retry, release, defer, pause, cancel.

use crate::element::Element;
use crate::invalid::invalid;
use crate::object::{elements, object, object_if_any, objects};
use crate::params::{self, Params};
use crate::payload::{given, with_payload_fields};
use crate::policy::queue_name;
use crate::problem::ErrorBody;
use crate::receive::field;
use crate::span::Span;
use crate::submit::{NewItem, buffers, priority, when};
use crate::text::Text;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use towline_domain::ItemState;
use towline_domain::command::{Verb, When};
use towline_domain::item::Outcome;
use towline_domain::refusal::LostWhy;
use towline_domain::{
    Adjust, Field, FieldEdits, HandOff, ItemId, LeaseCall, LeaseToken, Millis, Refusal, Timestamp,
};
use utoipa::ToSchema;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum VerbName {
    /// Extend the lease.
    Heartbeat,
    /// Change payload fields or the priority, and keep the lease.
    Edit,
    /// Complete the item.
    Commit,
    /// Fail the item permanently.
    Fail,
    /// Fail this attempt: count it, keep the error, and try again after the backoff.
    Retry,
    /// Return the item for another attempt. The attempt counts unless `counted` is false.
    Release,
    /// Return the item until later. The attempt does not count.
    Defer,
    /// Hold the item back until an operator resumes it. The attempt does not count.
    Pause,
    /// Cancel the item: it fails with the kind `cancelled`.
    Cancel,
}

impl VerbName {
    pub const ALL: [VerbName; 9] = [
        VerbName::Heartbeat,
        VerbName::Edit,
        VerbName::Commit,
        VerbName::Fail,
        VerbName::Retry,
        VerbName::Release,
        VerbName::Defer,
        VerbName::Pause,
        VerbName::Cancel,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            VerbName::Heartbeat => "heartbeat",
            VerbName::Edit => "edit",
            VerbName::Commit => "commit",
            VerbName::Fail => "fail",
            VerbName::Retry => "retry",
            VerbName::Release => "release",
            VerbName::Defer => "defer",
            VerbName::Pause => "pause",
            VerbName::Cancel => "cancel",
        }
    }
}

fn names() -> String {
    VerbName::ALL.map(VerbName::name).join(", ")
}

impl fmt::Display for VerbName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for VerbName {
    type Err = String;
    fn from_str(text: &str) -> Result<VerbName, String> {
        let found = VerbName::ALL.into_iter().find(|verb| verb.name() == text);
        found.ok_or_else(|| format!("not one of {}", names()))
    }
}

/// Calls to carry out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleRequest {
    /// At most 10,000 actions. The server carries them out in order and answers each one separately.
    pub actions: Vec<Action>,
}

/// A [`SettleRequest`] as the server reads it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettleBody {
    #[serde(deserialize_with = "elements")]
    pub actions: Vec<Element<Action>>,
}

/// One call by a lease holder.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Action {
    /// Required in a batch. In a single call the path names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<VerbName>)]
    pub verb: Option<Text<VerbName>>,
    /// Required in a batch. In a single call the path names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid)]
    pub id: Option<Text<ItemId>>,
    /// The lease token that came with the item.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub lease: Option<Text<LeaseToken>>,
    /// heartbeat: how long the lease lasts from now. Default: the visibility timeout of the receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility_timeout: Option<Span>,
    /// commit: buffers by output slot.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, String>,
    /// commit: results, any JSON values by name.
    #[serde(with = "params", skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = HashMap<String, serde_json::Value>)]
    pub output_params: Params,
    /// commit: items to submit in the same step. If one is refused, nothing happens and the lease stays.
    #[serde(deserialize_with = "objects", skip_serializing_if = "Vec::is_empty")]
    pub then_submit: Vec<HandOffBody>,
    /// fail, retry: what went wrong. cancel: why.
    #[serde(alias = "error", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// retry (instead of the backoff), release, defer: deliver the item no earlier than this long from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// release: `false` uses up no attempt. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<bool>,
    /// defer: deliver the item no earlier than this time.
    #[serde(alias = "until", skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Time>,
    /// Change the item's priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -32768, maximum = 32767)]
    pub priority: Option<i64>,
    /// retry, release, defer: move the item to this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Payload fields to set.
    #[serde(deserialize_with = "object_if_any", skip_serializing_if = "Option::is_none")]
    pub set: Option<Box<FieldsBody>>,
    /// Names of payload fields to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
}

/// An item that a commit submits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HandOffBody {
    pub queue: String,
    /// Its `parent` is the committed item, unless it names another.
    #[serde(default, deserialize_with = "object")]
    pub item: NewItem,
}

impl TryFrom<HandOffBody> for HandOff {
    type Error = Refusal;

    fn try_from(body: HandOffBody) -> Result<HandOff, Refusal> {
        Ok(HandOff { queue: queue_name(&body.queue)?, submission: body.item.try_into()? })
    }
}

fn hand_offs(items: Vec<HandOffBody>) -> Result<Vec<HandOff>, Refusal> {
    let hand_off = |(index, item): (usize, HandOffBody)| {
        HandOff::try_from(item).map_err(|refusal| refusal.of_hand_off(index))
    };
    items.into_iter().enumerate().map(hand_off).collect()
}

with_payload_fields! {
    /// New values of payload fields.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct FieldsBody {
        {}
        {
            /// `blob` is an alias.
            #[serde(alias = "blob")]
        }
        {}
    }
}

impl Action {
    #[must_use]
    pub fn new(verb: VerbName, id: ItemId, lease: LeaseToken) -> Action {
        Action {
            verb: Some(verb.into()),
            id: Some(id.into()),
            lease: Some(lease.into()),
            ..Action::default()
        }
    }

    /// The item and the call. `seed` is the randomness of the backoff's jitter.
    pub fn into_domain(self, seed: u64) -> Result<(ItemId, LeaseCall), Refusal> {
        let Some(verb) = self.verb else {
            return Err(invalid("verb", format!("missing; use one of {}", names())));
        };
        let verb = verb.into_domain("verb")?;
        let Some(id) = self.id else { return Err(invalid("id", "missing; name the item")) };
        let id = id.into_domain("id")?;
        let token = match self.lease {
            None => return Err(invalid("lease", "missing; give the token that came with the item")),
            Some(Text::Good(token)) => token,
            // Text that is not a token cannot be a valid lease.
            Some(Text::Bad { .. }) => return Err(Refusal::LeaseLost { id, why: LostWhy::Superseded }),
        };
        let foreign = [
            ("visibility_timeout", self.visibility_timeout.is_some(), &[VerbName::Heartbeat][..]),
            ("outputs", !self.outputs.is_empty(), &[VerbName::Commit]),
            ("output_params", !self.output_params.is_empty(), &[VerbName::Commit]),
            ("then_submit", !self.then_submit.is_empty(), &[VerbName::Commit]),
            ("reason", self.reason.is_some(), &[VerbName::Fail, VerbName::Retry, VerbName::Cancel]),
            ("delay", self.delay.is_some(), &[VerbName::Retry, VerbName::Release, VerbName::Defer]),
            ("counted", self.counted.is_some(), &[VerbName::Release]),
            ("ready_at", self.ready_at.is_some(), &[VerbName::Defer]),
        ];
        for (what, given, verbs) in foreign {
            if given && !verbs.contains(&verb) {
                let verbs: Vec<&str> = verbs.iter().map(|verb| verb.name()).collect();
                return Err(invalid(
                    what,
                    format!("not for {}; it goes with {}", verb.name(), verbs.join(", ")),
                ));
            }
        }
        let adjust = Adjust {
            edits: edits(self.set, &self.unset)?,
            priority: self.priority.map(priority).transpose()?,
            queue: self.queue.as_deref().map(queue_name).transpose()?,
            buffers_whole: false,
            then_submit: hand_offs(self.then_submit)?,
        };
        let delay = |delay: Option<Span>| delay.map(|delay| delay.into_domain("delay")).transpose();
        let verb = match verb {
            VerbName::Heartbeat => Verb::Heartbeat {
                visibility: self
                    .visibility_timeout
                    .map(|span| span.into_domain("visibility_timeout"))
                    .transpose()?,
            },
            VerbName::Edit => Verb::Edit,
            VerbName::Commit => Verb::Commit(Outcome {
                outputs: buffers("outputs", self.outputs)?,
                output_params: self.output_params,
                ..Outcome::default()
            }),
            VerbName::Fail => Verb::Fail { reason: self.reason.unwrap_or_default() },
            VerbName::Retry => {
                Verb::Retry { error: self.reason.unwrap_or_default(), delay: delay(self.delay)?, seed }
            }
            VerbName::Release => Verb::Release {
                delay: delay(self.delay)?.unwrap_or(Millis::ZERO),
                counted: self.counted.unwrap_or(true),
            },
            VerbName::Pause => Verb::Pause,
            VerbName::Cancel => Verb::Cancel { reason: self.reason.unwrap_or_default() },
            VerbName::Defer => Verb::Defer { until: when(self.delay, self.ready_at)?.unwrap_or(When::NOW) },
        };
        Ok((id, LeaseCall { token, verb, adjust }))
    }
}

fn edits(set: Option<Box<FieldsBody>>, unset: &[String]) -> Result<FieldEdits, Refusal> {
    let mut edits = FieldEdits::default();
    if let Some(set) = set {
        for (which, value) in [
            (Field::Blob, given("payload", set.payload, set.payload_text, set.payload_json)?),
            (
                Field::StateBlob,
                given("state_blob", set.state_blob, set.state_blob_text, set.state_blob_json)?,
            ),
            (Field::Metadata, given("metadata", set.metadata, set.metadata_text, set.metadata_json)?),
            (Field::Parameters, given("parameters", set.parameters, None, None)?),
        ] {
            if let Some(value) = value {
                edits = edits.set(which, value);
            }
        }
    }
    for name in unset {
        let which = field("unset", name)?;
        if edits.get(which).is_some() {
            return Err(invalid("unset", format!("{name:?} is also set, or named twice; choose one")));
        }
        edits = edits.unset(which);
    }
    Ok(edits)
}

/// Results in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettleAnswer {
    pub results: Vec<Settled>,
}

/// The result of one call: the item's state, or why the call was refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Settled {
    /// The item. If the call was refused, the id that the caller gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub id: Option<Text<ItemId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// After a commit with `then_submit`: the items it submitted, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub handed_off: Vec<Text<ItemId>>,
    /// After a heartbeat or an edit: when the lease ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub lease_expires_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

impl Settled {
    #[must_use]
    pub fn state(id: ItemId, state: ItemState) -> Settled {
        Settled { id: Some(id.into()), state: Some(state.to_string()), ..Settled::default() }
    }

    #[must_use]
    pub fn held(id: ItemId, until: Timestamp) -> Settled {
        Settled { lease_expires_at: Some(until.into()), ..Settled::state(id, ItemState::Processing) }
    }

    #[must_use]
    pub fn handed_off(id: ItemId, items: impl IntoIterator<Item = ItemId>) -> Settled {
        let handed_off = items.into_iter().map(Text::from).collect();
        Settled { handed_off, ..Settled::state(id, ItemState::Completed) }
    }

    #[must_use]
    pub fn refused(id: Option<Text<ItemId>>, error: impl Into<ErrorBody>) -> Settled {
        Settled { id, error: Some(error.into()), ..Settled::default() }
    }
}

/// A request to cancel an item. Every field is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Refuse the call unless this is the lease on the item.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub lease: Option<Text<LeaseToken>>,
}

/// A request to pause an item.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PauseRequest {
    /// Pause an item in processing, under this lease on it. Its lease ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub lease: Option<Text<LeaseToken>>,
}

/// Converts a call that may be under a lease: to a call of the lease holder, or `None`.
pub fn under_lease(
    id: ItemId,
    lease: Option<Text<LeaseToken>>,
    verb: VerbName,
    reason: Option<String>,
) -> Result<Option<LeaseCall>, Refusal> {
    let Some(lease) = lease else { return Ok(None) };
    let action = Action {
        verb: Some(verb.into()),
        id: Some(id.into()),
        lease: Some(lease),
        reason,
        ..Action::default()
    };
    Ok(Some(action.into_domain(0)?.1))
}
