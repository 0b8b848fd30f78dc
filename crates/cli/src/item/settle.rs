//! The calls of a lease holder: commit, fail, retry, release, defer, edit.

use crate::connect::Session;
use crate::exit::Failure;
use crate::source::{Source, Use, check_stdin};
use crate::value::{Pair, duration, field, item_id, map, pair, param, time};
use clap::Args;
use std::time::Duration;
use towline_api::payload::Payload;
use towline_api::{Action, FieldsBody, HandOffBody, ItemId, Json, Millis, Span, Text, Time, VerbName};

/// How long to retry. A restart of the server must not lose finished work, and these calls are safe to
/// repeat.
const PATIENCE: Duration = Duration::from_secs(10);

/// The item, and the lease on it.
#[derive(Debug, Clone, Args)]
pub struct LeaseArgs {
    /// The item's id.
    #[arg(value_name = "ITEM", value_parser = item_id)]
    pub id: ItemId,
    /// The lease token that came with the item.
    #[arg(long, value_name = "TOKEN")]
    lease: String,
}

/// Changes to the item in the same step.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Changes in the same step")]
pub struct ChangeArgs {
    /// Set a payload field (payload, state_blob, metadata, parameters) to a text, a file or standard input.
    /// Repeatable.
    #[arg(long, value_name = "FIELD=TEXT|FIELD=@PATH|FIELD=@-", value_parser = field)]
    set: Vec<Pair<Source>>,
    /// Remove a payload field. Repeatable.
    #[arg(long, value_name = "FIELD")]
    unset: Vec<String>,
    /// Change the item's priority. Lower numbers are delivered first.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
}

/// Commit: complete the item.
///
/// An output slot that is not given gets the buffer from `receive --create-output-buffers`.
#[derive(Debug, Args)]
pub struct CommitArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// A buffer for an output slot. Repeatable.
    #[arg(long, value_name = "SLOT=BUFFER", value_parser = pair)]
    output: Vec<Pair<String>>,
    /// A result: `name=text` is a string, `name:=json` any JSON value. Repeatable.
    #[arg(long, value_name = "NAME=TEXT|NAME:=JSON", value_parser = param)]
    output_param: Vec<Pair<Json>>,
    /// Submit items in the same step, from a JSON file (`-` is standard input): {"queue": NAME, "item": {...}} or a list of
    /// them. If one is refused, nothing happens and the lease stays.
    #[arg(long, value_name = "FILE")]
    then_submit: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Fail the item permanently, without another attempt.
#[derive(Debug, Args)]
pub struct FailArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// What went wrong.
    #[arg(long, visible_alias = "error", value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Fail this attempt: count it, keep the reason, and try again after the queue's backoff.
#[derive(Debug, Args)]
pub struct RetryArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// What went wrong.
    #[arg(long, visible_alias = "error", value_name = "TEXT")]
    reason: Option<String>,
    /// Try again after this long, instead of the backoff.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    delay: Option<Millis>,
    /// Move the item to this queue.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Return the item for another attempt. No reason is kept and no backoff applies. The attempt counts unless
/// --not-counted is given.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// Deliver the item no earlier than this long from now.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    delay: Option<Millis>,
    /// Use up no attempt, for example when the worker stops before it began the item.
    #[arg(long)]
    not_counted: bool,
    /// Move the item to this queue.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Return the item until later. The attempt does not count.
#[derive(Debug, Args)]
pub struct DeferArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    /// Deliver the item no earlier than this long from now.
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "ready_at")]
    delay: Option<Millis>,
    /// Deliver the item no earlier than this time, for example 2030-01-31T08:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time, visible_alias = "until")]
    ready_at: Option<Time>,
    /// Move the item to this queue.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Change payload fields or the priority, and keep the lease.
#[derive(Debug, Args)]
pub struct EditArgs {
    #[command(flatten)]
    lease: LeaseArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

impl LeaseArgs {
    pub fn action(&self, verb: VerbName) -> Action {
        let lease = Some(Text::parse(&self.lease));
        Action { verb: Some(verb.into()), id: Some(self.id.into()), lease, ..Action::default() }
    }

    /// An action that makes the item pending again.
    fn give_back(&self, verb: VerbName, delay: Option<Millis>, queue: Option<String>) -> Action {
        Action { delay: delay.map(Span::from), queue, ..self.action(verb) }
    }
}

impl ChangeArgs {
    fn sources(&self) -> impl Iterator<Item = &Source> {
        self.set.iter().map(|pair| &pair.value)
    }

    pub fn apply(self, action: Action) -> Result<Action, Failure> {
        let set = map("--set", self.set)?;
        check_stdin(set.values())?;
        let mut fields = FieldsBody::default();
        for (name, source) in &set {
            let into = match name.as_str() {
                "payload" | "blob" => &mut fields.payload,
                "state_blob" | "state-blob" => &mut fields.state_blob,
                "metadata" => &mut fields.metadata,
                "parameters" => &mut fields.parameters,
                _ => {
                    let words = "is not one of payload, state_blob, metadata, parameters";
                    return Err(Failure::Usage(format!("--set {name:?} {words}")));
                }
            };
            *into = Some(Payload::from(source.read()?));
        }
        let set = (!set.is_empty()).then(|| Box::new(fields));
        Ok(Action { set, unset: self.unset, priority: self.priority, ..action })
    }
}

impl CommitArgs {
    pub fn action(self) -> Result<Action, Failure> {
        let outputs = map("--output", self.output)?;
        let output_params = map("--output-param", self.output_param)?;
        let file = self.then_submit.as_deref().map(Source::path);
        check_stdin(file.iter().chain(self.change.sources()))?;
        let then_submit = file.map_or(Ok(Vec::new()), |file| read_hand_offs(&file))?;
        let commit = self.lease.action(VerbName::Commit);
        self.change.apply(Action { outputs, output_params, then_submit, ..commit })
    }
}

/// Reads one hand-off or a list of them.
fn read_hand_offs(file: &Source) -> Result<Vec<HandOffBody>, Failure> {
    let text = file.read_text_for(Use::Items)?;
    let wrong = |error: serde_json::Error| {
        Failure::Usage(format!(
            "--then-submit: {error}; write {{\"queue\": NAME, \"item\": {{...}}}} or a list of them"
        ))
    };
    if text.trim_start().starts_with('[') {
        serde_json::from_str(&text).map_err(wrong)
    } else {
        serde_json::from_str(&text).map(|one| vec![one]).map_err(wrong)
    }
}

impl FailArgs {
    pub fn action(self) -> Result<Action, Failure> {
        self.change.apply(Action { reason: self.reason, ..self.lease.action(VerbName::Fail) })
    }
}

impl RetryArgs {
    pub fn action(self) -> Result<Action, Failure> {
        let retry = self.lease.give_back(VerbName::Retry, self.delay, self.queue);
        self.change.apply(Action { reason: self.reason, ..retry })
    }
}

impl ReleaseArgs {
    pub fn action(self) -> Result<Action, Failure> {
        let release = self.lease.give_back(VerbName::Release, self.delay, self.queue);
        self.change.apply(Action { counted: self.not_counted.then_some(false), ..release })
    }
}

impl DeferArgs {
    pub fn action(self) -> Result<Action, Failure> {
        let defer = self.lease.give_back(VerbName::Defer, self.delay, self.queue);
        self.change.apply(Action { ready_at: self.ready_at, ..defer })
    }
}

impl EditArgs {
    pub fn action(self) -> Result<Action, Failure> {
        let plain = self.lease.action(VerbName::Edit);
        let action = self.change.apply(plain.clone())?;
        if action == plain {
            return Err(Failure::Usage("nothing to change; use --set, --unset or --priority".to_owned()));
        }
        Ok(action)
    }
}

/// Sends a call. Prints the ids of the items that it handed off. Without JSON it prints nothing else: the exit code is enough.
pub async fn send(session: &Session, action: Action) -> Result<(), Failure> {
    let settled = session.client.clone().retry_for(PATIENCE).act(action).await?;
    match &settled.error {
        Some(error) => Err(Failure::refused(&error.message)),
        None if settled.handed_off.is_empty() => session.output.json_only(&settled),
        None => {
            let ids: Vec<String> = settled.handed_off.iter().map(Text::to_string).collect();
            session.output.name_or_json(ids.join("\n"), &settled)
        }
    }
}
