//! Wire types of codespecs: what to run, without the data it runs on.

use super::environment::{is_variable, pipe_variable, queue_variable};
use super::size::Size;
use crate::invalid::invalid;
use crate::object::{object, object_if_any};
use crate::span::Span;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use towline_domain::{Millis, Refusal, SlotName};
use utoipa::ToSchema;

/// Maximum length of a command with its arguments, and of all variables together.
const TEXT_BYTES_MAX: usize = 256 << 10;
const WORDS_MAX: usize = 1000;
const VARIABLES_MAX: usize = 500;
const PARAMS_MAX: usize = 64;
/// How long a process has after SIGTERM.
const STOP_GRACE_DEFAULT: Millis = Millis::seconds(10);
const STOP_GRACE_MAX: Millis = Millis::hours(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CodespecKind {
    /// Runs once, reads its input buffers, writes its output buffers, and ends.
    #[default]
    Job,
    /// Runs until it is stopped, and works on queues.
    Service,
}

impl CodespecKind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CodespecKind::Job => "job",
            CodespecKind::Service => "service",
        }
    }
}

/// Which images a container node fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PullPolicy {
    #[default]
    IfMissing,
    Always,
    Never,
}

/// What to run. A codespec never changes: a different one under the same name is a new version.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CodespecBody {
    /// Default: `service` if it declares queues, otherwise `job`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<CodespecKind>,
    /// The container image, for nodes that run containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When a container node fetches the image. Default: if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullPolicy>,
    /// The program and its arguments. `$(VAR)` is replaced by the value of a variable; `$$(VAR)` is the text itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// More arguments, after those of `command`. `$(VAR)` is replaced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables. `$(VAR)` is replaced.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The buffer parameters of a job.
    #[serde(deserialize_with = "object", skip_serializing_if = "BufferParams::is_empty")]
    pub buffers: BufferParams,
    /// The keys to which a service binds queues.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
    #[serde(deserialize_with = "object", skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// The pool of nodes that it needs. Default: the pool of the run, service or trigger.
    #[serde(alias = "nodePool", alias = "node_pool", skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// How a node finds out whether a replica works. Only for services.
    #[serde(deserialize_with = "object_if_any", skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCheck>,
    /// How long a process has between SIGTERM and SIGKILL. Default: 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_grace: Option<Span>,
}

/// Names of buffer parameters. The path of the named pipe of `NAME` is in the variable `<NAME>_PIPE`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BufferParams {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
}

impl BufferParams {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.outputs.is_empty()
    }
}

/// Limits of a process or container.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    /// Processor cores, for containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Memory, like `512MiB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
}

impl Resources {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Resources::default()
    }
}

/// A command that runs beside a replica, with the same environment. Exit code 0 means healthy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HealthCheck {
    pub command: Vec<String>,
    /// Default: 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// How long one check may take. Default: the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Restart the replica after this many failures in a row. Default: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub threshold: Option<u32>,
    /// Failures do not count before this time. Default: 0s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_after: Option<Span>,
}

impl HealthCheck {
    pub const INTERVAL_DEFAULT: Millis = Millis::seconds(10);
    pub const THRESHOLD_DEFAULT: u32 = 3;
}

impl CodespecBody {
    #[must_use]
    pub fn kind(&self) -> CodespecKind {
        let declared = if self.queues.is_empty() { CodespecKind::Job } else { CodespecKind::Service };
        self.kind.unwrap_or(declared)
    }

    /// How long a process has between SIGTERM and SIGKILL.
    #[must_use]
    pub fn stop_grace(&self) -> Millis {
        let given = self.stop_grace.clone().and_then(|span| span.into_domain("stop_grace").ok());
        given.unwrap_or(STOP_GRACE_DEFAULT)
    }

    /// The same codespec as it is stored: with its kind, and nothing that has no effect.
    pub fn checked(mut self) -> Result<CodespecBody, Refusal> {
        let kind = self.kind();
        self.kind = Some(kind);
        self.check_words()?;
        self.check_variables()?;
        match kind {
            CodespecKind::Job if !self.queues.is_empty() => {
                return Err(invalid(
                    "queues",
                    "a job declares buffers, not queues; use kind service, or leave queues out",
                ));
            }
            CodespecKind::Job if self.health.is_some() => {
                return Err(invalid(
                    "health",
                    "only services have health checks; use kind service, or leave health out",
                ));
            }
            CodespecKind::Service if !self.buffers.is_empty() => {
                return Err(invalid(
                    "buffers",
                    "a service declares queues, not buffers; use kind job, or leave buffers out",
                ));
            }
            _ => {}
        }
        let inputs = names("buffers.inputs", &self.buffers.inputs)?;
        let outputs = names("buffers.outputs", &self.buffers.outputs)?;
        if let Some(both) = inputs.intersection(&outputs).next() {
            return Err(invalid(
                "buffers",
                format!("{both:?} is an input and an output; give them different names"),
            ));
        }
        let pipes: BTreeSet<String> = inputs.iter().chain(&outputs).map(|name| pipe_variable(name)).collect();
        if pipes.len() < inputs.len() + outputs.len() {
            return Err(invalid(
                "buffers",
                "two names have the same variable, because - and _ are the same in it; rename one",
            ));
        }
        let keys = names("queues", &self.queues)?;
        if keys.iter().map(|key| queue_variable(key)).collect::<BTreeSet<_>>().len() < keys.len() {
            return Err(invalid(
                "queues",
                "two keys have the same variable, because - and _ are the same in it; rename one",
            ));
        }
        if let Some(grace) = self.stop_grace.clone() {
            within("stop_grace", grace, Millis::ZERO, STOP_GRACE_MAX)?;
        }
        self.check_health()?;
        self.check_resources()?;
        Ok(self)
    }

    fn check_words(&self) -> Result<(), Refusal> {
        let words = || self.command.iter().chain(&self.args);
        if self.command.is_empty() && self.image.is_none() {
            return Err(invalid("command", "missing; name the program to run, or an image that has one"));
        }
        if self.command.first().is_some_and(String::is_empty) {
            return Err(invalid("command", "the name of the program is empty"));
        }
        if self.image.as_deref().is_some_and(|image| {
            image.is_empty() || image.len() > 1000 || image.contains(char::is_whitespace)
        }) {
            return Err(invalid(
                "image",
                "use the name of an image, like registry/name:tag or name@sha256:...",
            ));
        }
        let (count, bytes) = (words().count(), words().map(String::len).sum::<usize>());
        if count > WORDS_MAX || bytes > TEXT_BYTES_MAX {
            let message = format!(
                "{count} words of {bytes} bytes; use at most {WORDS_MAX} words of {TEXT_BYTES_MAX} bytes"
            );
            return Err(invalid("command", message));
        }
        match words().find(|word| word.contains('\0')) {
            Some(word) => Err(invalid("command", format!("{word:?} contains a zero byte; leave it out"))),
            None => Ok(()),
        }
    }

    fn check_variables(&self) -> Result<(), Refusal> {
        check_variables("env", &self.env)
    }

    fn check_health(&self) -> Result<(), Refusal> {
        let Some(health) = &self.health else { return Ok(()) };
        if health.command.is_empty() {
            return Err(invalid("health.command", "missing; name the program that checks the replica"));
        }
        if health.threshold.is_some_and(|threshold| !(1..=1000).contains(&threshold)) {
            return Err(invalid("health.threshold", "use 1 to 1000"));
        }
        let (second, day) = (Millis::seconds(1), Millis::days(1));
        for (what, span, least) in [
            ("health.interval", &health.interval, second),
            ("health.timeout", &health.timeout, second),
            ("health.start_after", &health.start_after, Millis::ZERO),
        ] {
            if let Some(span) = span.clone() {
                within(what, span, least, day)?;
            }
        }
        Ok(())
    }

    fn check_resources(&self) -> Result<(), Refusal> {
        let Resources { cpu, memory, processes, open_files } = &self.resources;
        if cpu.is_some_and(|cpu| !(0.001..=10_000.0).contains(&cpu)) {
            return Err(invalid("resources.cpu", "use 0.001 to 10000 cores"));
        }
        if memory.is_some_and(|memory| memory.0 < 1 << 20) {
            return Err(invalid("resources.memory", "use at least 1MiB"));
        }
        if *processes == Some(0) || *open_files == Some(0) {
            return Err(invalid(
                "resources",
                "0 processes or open files; use at least 1, or leave the limit out",
            ));
        }
        Ok(())
    }
}

/// Refuses variables that cannot be set.
pub(crate) fn check_variables(what: &'static str, env: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if env.len() > VARIABLES_MAX || bytes > TEXT_BYTES_MAX {
        let count = env.len();
        let message = format!(
            "{count} variables of {bytes} bytes; use at most {VARIABLES_MAX} of {TEXT_BYTES_MAX} bytes"
        );
        return Err(invalid(what, message));
    }
    for (name, value) in env {
        if !is_variable(name) {
            let shown: String = name.chars().take(64).collect();
            return Err(invalid(
                what,
                format!("{shown:?} is not the name of a variable; use letters, digits and _"),
            ));
        }
        if value.contains('\0') {
            return Err(invalid(what, format!("the value of {name} contains a zero byte; leave it out")));
        }
    }
    Ok(())
}

pub(crate) fn within(what: &'static str, span: Span, least: Millis, most: Millis) -> Result<Millis, Refusal> {
    let span = span.into_domain(what)?;
    if (least..=most).contains(&span) {
        return Ok(span);
    }
    Err(invalid(what, format!("{span} is out of range; use {least} to {most}")))
}

fn names<'a>(what: &'static str, given: &'a [String]) -> Result<BTreeSet<&'a str>, Refusal> {
    if given.len() > PARAMS_MAX {
        return Err(invalid(what, format!("{} names; use at most {PARAMS_MAX}", given.len())));
    }
    let mut names = BTreeSet::new();
    for name in given {
        name.parse::<SlotName>().map_err(|error| invalid(what, error.to_string()))?;
        if !names.insert(name.as_str()) {
            return Err(invalid(what, format!("{name:?} is named twice")));
        }
    }
    Ok(names)
}

/// A codespec to create. If the newest version is the same, nothing changes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewCodespec {
    #[serde(deserialize_with = "object")]
    pub codespec: CodespecBody,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CodespecShown {
    pub name: String,
    pub version: u32,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Time,
    pub codespec: CodespecBody,
}

impl CodespecShown {
    /// `NAME@VERSION`.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// What creating a codespec did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CodespecApplied {
    /// `false`: the newest version was the same.
    pub created: bool,
    pub codespec: CodespecShown,
}

/// A page of the newest versions of codespecs, in order of name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CodespecPage {
    pub codespecs: Vec<CodespecShown>,
    /// Pass this as `cursor` to get the next page. `null`: this is the last page.
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    fn checked(json: &str) -> Result<CodespecBody, String> {
        let body: CodespecBody = Format::Json.decode(json.as_bytes()).map_err(|error| error.to_string())?;
        body.checked().map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn the_kind_follows_from_what_it_declares() {
        assert_eq!(checked(r#"{"command": ["true"]}"#).unwrap().kind, Some(CodespecKind::Job));
        let service = checked(r#"{"command": ["true"], "queues": ["requests"]}"#).unwrap();
        assert_eq!(service.kind, Some(CodespecKind::Service));
    }

    #[test]
    fn a_bad_codespec_is_refused_with_what_is_wrong() {
        for (json, part) in [
            (r"{}", "command: missing"),
            (r#"{"command": [""]}"#, "program is empty"),
            (r#"{"command": ["a\u0000b"]}"#, "zero byte"),
            (r#"{"image": "a b"}"#, "image"),
            (r#"{"command": ["x"], "kind": "job", "queues": ["q"]}"#, "a job declares buffers"),
            (
                r#"{"command": ["x"], "kind": "service", "buffers": {"inputs": ["a"]}}"#,
                "a service declares queues",
            ),
            (
                r#"{"command": ["x"], "buffers": {"inputs": ["a"], "outputs": ["a"]}}"#,
                "an input and an output",
            ),
            (r#"{"command": ["x"], "buffers": {"inputs": ["a-b", "a_b"]}}"#, "same variable"),
            (r#"{"command": ["x"], "buffers": {"inputs": ["A"]}}"#, "lower-case"),
            (r#"{"command": ["x"], "env": {"A B": "1"}}"#, "not the name of a variable"),
            (r#"{"command": ["x"], "resources": {"memory": "12"}}"#, "1MiB"),
            (r#"{"command": ["x"], "resources": {"cpu": 0}}"#, "cores"),
            (r#"{"command": ["x"], "stop_grace": "2h"}"#, "out of range"),
            (r#"{"command": ["x"], "health": {"command": ["y"]}}"#, "only services"),
            (r#"{"command": ["x"], "kind": "service", "health": {}}"#, "health.command"),
            (r#"{"command": ["x"], "unknown": 1}"#, "unknown"),
        ] {
            let error = checked(json).unwrap_err();
            assert!(error.contains(part), "{json}: {error}");
        }
    }
}
