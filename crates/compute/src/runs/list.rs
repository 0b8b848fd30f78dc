//! Lists of runs.

use super::show::{describe, describe_triggered};
use crate::error::ComputeError;
use crate::items::{Kind, filter};
use crate::pools::queue_of_pool;
use crate::{Compute, Result};
use towline_api::compute::{RunShown, RunState, tag};
use towline_broker::store::{Cursor, Filter};
use towline_domain::{FailureKind, FailureSet, ItemId, StateName};

/// Which runs to list. All set fields must match.
#[derive(Debug, Clone, Default)]
pub struct RunQuery {
    pub state: Option<RunState>,
    pub tags: Vec<(String, String)>,
    /// `NAME@VERSION`, or the name alone.
    pub codespec: Option<String>,
    pub pool: Option<String>,
    /// The runs of this trigger. Without it: runs that no trigger started.
    pub trigger: Option<String>,
}

impl Compute {
    /// In order of creation. A page may be short although more runs follow.
    pub async fn runs(
        &self,
        query: &RunQuery,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<RunShown>, Option<Cursor>)> {
        let trigger = match &query.trigger {
            None => None,
            Some(name) => Some(self.trigger_record(name).await?.value),
        };
        let mut asked = match &trigger {
            Some(trigger) => {
                let queue =
                    trigger.slot.input_queue.parse().map_err(|error: towline_domain::name::NameError| {
                        ComputeError::invalid("trigger", error.to_string())
                    })?;
                filter(Some(queue), None, &[])
            }
            None => {
                let queue = query.pool.as_deref().map(queue_of_pool).transpose()?;
                filter(queue, None, &[(tag::KIND, Kind::Run.name())])
            }
        };
        by_state(&mut asked, query.state);
        asked.tags.extend(query.tags.iter().cloned());
        if let Some(reference) =
            query.codespec.as_ref().filter(|reference| reference.contains('@') && trigger.is_none())
        {
            asked.tags.push((tag::CODESPEC.to_owned(), reference.clone()));
        }
        let (items, next) = self.items(asked, after, limit).await?;
        let ids: Vec<ItemId> = items.iter().map(|stored| stored.item.head.id).collect();
        let stops = self.stop_reasons(&ids).await?;
        let mut runs = Vec::with_capacity(items.len());
        for (stored, stop) in items.iter().zip(stops) {
            runs.push(match &trigger {
                Some(trigger) => describe_triggered(stored, trigger, stop),
                None => describe(stored, stop)?,
            });
        }
        runs.retain(|run| {
            query.state.is_none_or(|state| run.state == state)
                && query.codespec.as_deref().is_none_or(|name| is_of(&run.codespec, name))
        });
        Ok((runs, next))
    }
}

/// Whether a reference `NAME@VERSION` is of this name, or this name and version.
fn is_of(reference: &str, asked: &str) -> bool {
    reference == asked || reference.split('@').next() == Some(asked)
}

/// Narrows a filter to the states of items in which a run may have this state.
fn by_state(filter: &mut Filter, state: Option<RunState>) {
    let Some(state) = state else { return };
    let head = &mut filter.head;
    match state {
        RunState::Pending | RunState::Canceling => head.state = Some(StateName::Unfinished),
        RunState::Running => head.state = Some(StateName::Processing),
        RunState::Succeeded => head.state = Some(StateName::Completed),
        RunState::Canceled => head.failure = Some(FailureKind::Cancelled),
        RunState::Failed => {
            head.state = Some(StateName::Failed);
            head.not_failures = FailureSet::default().with(FailureKind::Cancelled);
        }
    }
}
