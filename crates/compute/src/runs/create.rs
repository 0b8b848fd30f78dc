//! Creates a run: checks that it can be started as asked, creates missing outputs, and submits its item.

use crate::codespecs::Resolved;
use crate::error::ComputeError;
use crate::items::{Kind, WHOLE, filter, spec, submission};
use crate::pools::choose_pool;
use crate::{Compute, Result};
use std::collections::{BTreeMap, BTreeSet};
use towline_api::compute::{
    CodespecBody, CodespecKind, CodespecRef, NewRun, RUN_TIMEOUT_DEFAULT, RunShown, RunSpec, check_command,
    param_variable, tag,
};
use towline_api::params::Params;
use towline_broker::entropy;
use towline_broker::store::{OperationError, StoredItem};
use towline_buffers::NewBuffer;
use towline_domain::policy::Unique;
use towline_domain::{BufferId, BufferStateKind, Millis, QueueName, Refusal, SlotName, Submission, limits};

const TIMEOUT_MAX: Millis = Millis::days(30);

/// The numbers of a run, in their ranges.
#[derive(Clone, Copy)]
struct Numbers {
    priority: i16,
    max_retries: Option<u32>,
}

impl Numbers {
    fn of(new: &NewRun) -> Result<Numbers> {
        let retries = |retries| in_range("max_retries", retries, limits::RETRIES_MAX);
        let max_retries = new.max_retries.map(retries).transpose()?;
        Ok(Numbers { priority: small("priority", new.priority.unwrap_or(0))?, max_retries })
    }
}

impl Compute {
    /// Creates a run. Says whether it is new: the same idempotency key gives the first run again.
    pub async fn create_run(&self, new: NewRun) -> Result<(RunShown, bool)> {
        check_tags(&new.tags)?;
        let timeout =
            new.timeout.clone().map_or(Ok(RUN_TIMEOUT_DEFAULT), |span| span.into_domain("timeout"))?;
        if !(Millis::seconds(1)..=TIMEOUT_MAX).contains(&timeout) {
            let message = format!("{timeout} is out of range; use 1s to {TIMEOUT_MAX}");
            return Err(ComputeError::invalid("timeout", message));
        }
        check_params(&new.params)?;
        let numbers = Numbers::of(&new)?;
        let name = name_of_inline(&new.codespec);
        let Resolved { reference, body } =
            self.resolve(new.codespec.clone(), &name, CodespecKind::Job).await?;
        let pool = choose_pool([new.pool.clone(), body.pool.clone()])?;
        let params = new.params.keys().map(|name| param_variable(name)).collect();
        check_command(&body, &new.env, &params, false)?;
        let queue = self.pool(&pool).await?;
        if let Some(stored) = self.run_with_key(&queue, new.idempotency_key.as_deref()).await? {
            return Ok((self.same_run(&stored, &new, &reference).await?, false));
        }
        let (inputs, outputs) = self.given_buffers(&body, &new.buffers).await?;
        let mut spec = RunSpec {
            codespec: reference,
            spec: body,
            inputs,
            outputs,
            created_outputs: Vec::new(),
            params: new.params.clone(),
            env: new.env.clone(),
            timeout_ms: timeout.0,
        };
        self.create_outputs(&mut spec).await?;
        self.submit_run(queue, &new, &spec, numbers).await
    }

    /// The buffers by input and by output parameter, which exist.
    async fn given_buffers(
        &self,
        body: &CodespecBody,
        given: &BTreeMap<String, String>,
    ) -> Result<(BTreeMap<String, String>, BTreeMap<String, String>)> {
        let (mut inputs, mut outputs) = (BTreeMap::new(), BTreeMap::new());
        for (name, id) in given {
            let is_input = body.buffers.inputs.contains(name);
            if !is_input && !body.buffers.outputs.contains(name) {
                return Err(ComputeError::Mismatch(format!(
                    "unknown buffer parameter {name:?}; the codespec declares inputs: {}; outputs: {}",
                    list(&body.buffers.inputs),
                    list(&body.buffers.outputs)
                )));
            }
            id.parse::<BufferId>().map_err(|error| ComputeError::invalid("buffers", error.to_string()))?;
            let shown = self.0.buffers.show(id, self.broker().now().0).await?;
            if !is_input && shown.state.kind() != BufferStateKind::Empty {
                let (id, what) = (id.clone(), format!("output {name:?}"));
                let remedy = "an output is written once; create a new buffer, or leave it out";
                return Err(Refusal::BufferNotReady { what, id, state: shown.state.kind(), remedy }.into());
            }
            if is_input { &mut inputs } else { &mut outputs }.insert(name.clone(), id.clone());
        }
        if let Some(missing) = body.buffers.inputs.iter().find(|name| !inputs.contains_key(*name)) {
            return Err(ComputeError::Mismatch(format!(
                "no buffer for input {missing:?}; give one with --buffer {missing}=ID"
            )));
        }
        Ok((inputs, outputs))
    }

    async fn create_outputs(&self, spec: &mut RunSpec) -> Result<()> {
        for name in &spec.spec.buffers.outputs {
            if !spec.outputs.contains_key(name) {
                let now = self.broker().now();
                let id = entropy::uuid(now).to_string();
                self.0.buffers.create(&id, NewBuffer::default(), now.0).await?;
                spec.outputs.insert(name.clone(), id);
                spec.created_outputs.push(name.clone());
            }
        }
        Ok(())
    }

    async fn delete_outputs(&self, spec: &RunSpec) {
        for name in &spec.created_outputs {
            let Some(id) = spec.outputs.get(name) else { continue };
            if let Err(error) = self.0.buffers.delete(id).await {
                tracing::warn!(
                    "cannot delete buffer {id}, which was created for a run that was refused: {error}"
                );
            }
        }
    }

    async fn submit_run(
        &self,
        queue: QueueName,
        new: &NewRun,
        spec: &RunSpec,
        numbers: Numbers,
    ) -> Result<(RunShown, bool)> {
        let mut tags = new.tags.clone();
        tags.insert(tag::CODESPEC.to_owned(), spec.codespec.clone());
        let mut run: Submission = submission(Kind::Run, tags, spec)?;
        run.priority = numbers.priority;
        run.overrides.max_retries = numbers.max_retries;
        run.overrides.unique = new.idempotency_key.as_ref().map(|_| Unique::WhileExists);
        run.body.idempotency_key = new.idempotency_key.clone();
        run.body.inputs = slots(&spec.inputs)?;
        match self.submit(queue.clone(), run).await {
            Ok((id, created)) => Ok((self.run(id).await?, created)),
            // Another call with this key came first.
            Err(OperationError::Refused(Refusal::KeyConflict { key, id })) => {
                let Some(stored) = self.item(id, WHOLE).await? else {
                    return Err(Refusal::KeyConflict { key, id }.into());
                };
                self.delete_outputs(spec).await;
                Ok((self.same_run(&stored, new, &spec.codespec).await?, false))
            }
            Err(OperationError::Refused(refusal)) => {
                self.delete_outputs(spec).await;
                Err(refusal.into())
            }
            // The run may exist, and then it needs its outputs.
            Err(error) => Err(error.into()),
        }
    }

    /// The run that has the key of this one, if it is the same.
    async fn same_run(&self, stored: &StoredItem, new: &NewRun, reference: &str) -> Result<RunShown> {
        let (id, old) = (stored.item.head.id, spec::<RunSpec>(stored)?);
        let given: BTreeMap<&String, &String> = old
            .inputs
            .iter()
            .chain(old.outputs.iter().filter(|(name, _)| !old.created_outputs.contains(name)))
            .collect();
        let same = old.codespec == reference
            && old.params == new.params
            && old.env == new.env
            && given == new.buffers.iter().collect::<BTreeMap<_, _>>();
        match same {
            true => self.run(id).await,
            false => {
                let key = new.idempotency_key.clone().unwrap_or_default();
                Err(Refusal::KeyConflict { key, id }.into())
            }
        }
    }

    async fn run_with_key(&self, queue: &QueueName, key: Option<&str>) -> Result<Option<StoredItem>> {
        let Some(key) = key else { return Ok(None) };
        let mut asked = filter(Some(queue.clone()), None, &[]);
        asked.idempotency_key = Some(key.to_owned());
        Ok(self.items(asked, None, 1).await?.0.pop())
    }
}

/// The name under which a codespec is created that a run gives in full: equal ones get equal names.
fn name_of_inline(given: &CodespecRef) -> String {
    let bytes = serde_json::to_vec(given).unwrap_or_default();
    let digest = blake3::hash(&bytes).to_hex();
    format!("run-{}", &digest[..12])
}

pub(crate) fn slots(buffers: &BTreeMap<String, String>) -> Result<BTreeMap<SlotName, BufferId>> {
    let parse = |(name, id): (&String, &String)| {
        let name = name.parse().map_err(|error: towline_domain::name::NameError| error.to_string());
        let id = id.parse().map_err(|error: towline_domain::name::NameError| error.to_string());
        Ok((name?, id?))
    };
    buffers
        .iter()
        .map(parse)
        .collect::<std::result::Result<_, String>>()
        .map_err(|why| ComputeError::invalid("buffers", why))
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn small(what: &'static str, given: i64) -> Result<i16> {
    i16::try_from(given)
        .map_err(|_| ComputeError::invalid(what, format!("{given} is out of range; use -32768 to 32767")))
}

fn in_range(what: &'static str, given: i64, most: u32) -> Result<u32> {
    let found = u32::try_from(given).ok().filter(|given| *given <= most);
    found.ok_or_else(|| ComputeError::invalid(what, format!("{given} is out of range; use 0 to {most}")))
}

/// Tags of clients must not look like those of the server.
pub(crate) fn check_tags(tags: &BTreeMap<String, String>) -> Result<()> {
    match tags.keys().find(|name| name.starts_with(tag::PREFIX)) {
        Some(name) => {
            let message =
                format!("{name:?} begins with {:?}, which the server uses; choose another name", tag::PREFIX);
            Err(ComputeError::invalid("tags", message))
        }
        None => Ok(()),
    }
}

/// Refuses parameters that would be the same variable.
fn check_params(params: &Params) -> Result<()> {
    let variables: BTreeSet<String> = params.keys().map(|name| param_variable(name)).collect();
    if variables.len() < params.len() {
        let message =
            "two parameters have the same variable, because all but letters and digits become _; rename one";
        return Err(ComputeError::invalid("params", message));
    }
    Ok(())
}
