//! Into the queue.

use super::Shared;
use crate::envelope::{Envelope, group_of};
use crate::error::Error;
use crate::event::Event;
use crate::options::Options;
use crate::ports::{Push, Queue};
use crate::work::{AnyJob, Kind};
use std::sync::Arc;

/// Where a piece of work comes from.
#[derive(Debug, Default)]
pub(crate) struct Submitted<'a> {
    pub(crate) parent: Option<&'a Envelope>,
    /// A name that is the same when it is submitted again.
    pub(crate) id: Option<String>,
}

/// Where to find what was submitted.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) id: String,
    pub(crate) group: String,
}

impl Placed {
    pub(crate) fn of(envelope: &Envelope) -> Placed {
        Placed { id: envelope.id.clone(), group: envelope.group.clone() }
    }
}

/// Ready to be pushed.
pub(crate) struct Prepared {
    pub(crate) envelope: Envelope,
    pub(crate) kind: Arc<Kind>,
    pub(crate) skip_queue: bool,
    pub(crate) named: Named,
}

/// Who gave a piece of work its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// Nobody: it is queued once.
    Anew,
    /// Whoever queued it. Others may have queued it before, for themselves.
    ByKey,
    /// The engine, which may have queued it before.
    ByOrigin,
}

impl Shared {
    pub(crate) async fn submit(
        self: &Arc<Shared>,
        job: &AnyJob,
        from: Submitted<'_>,
    ) -> Result<Placed, Error> {
        let prepared = self.prepare(job, from)?;
        self.enqueue(prepared).await
    }

    /// Decides everything about it.
    pub(crate) fn prepare(&self, job: &AnyJob, from: Submitted<'_>) -> Result<Prepared, Error> {
        let now = self.clock.now();
        let Options {
            delay,
            run_at,
            retry,
            priority,
            group,
            deadline,
            timeout,
            skip_queue,
            dedupe_key,
            trace,
        } = job.resolved(&self.config.defaults);
        // A name of its own for each key, so that whoever queues it again waits for the same. The times of a schedule have
        // theirs, whatever the key.
        let keyed = dedupe_key
            .filter(|_| from.id.is_none() || from.parent.is_some())
            .map(|key| format!("{}:{key}", job.kind.name));
        let (id, named) = match (keyed, from.id) {
            (Some(id), _) => (id, Named::ByKey),
            (None, Some(id)) => (id, Named::ByOrigin),
            (None, None) => (self.entropy.id(now), Named::Anew),
        };
        let codec = job.kind.codec.as_ref().unwrap_or(&self.codec);
        let input = (job.encode)(&**codec)?;
        let group = group.or_else(|| from.parent.map(|parent| parent.group.clone()));
        let envelope = Envelope {
            group: group.unwrap_or_else(|| group_of(&id)),
            id,
            kind: job.kind.name.as_ref().to_owned(),
            input,
            parent: from.parent.map(|parent| parent.id.clone()),
            queued_at: now,
            start_at: run_at.or(delay.filter(|delay| !delay.is_zero()).map(|delay| now.after(delay))),
            deadline: deadline.map(|deadline| now.after(deadline)),
            timeout,
            priority: priority.unwrap_or_default(),
            retry: retry.unwrap_or_default(),
            prefix: self.keys.prefix(),
            trace: trace.or_else(|| from.parent.and_then(|parent| parent.trace.clone())),
            keyed: named == Named::ByKey,
            round: 0,
        };
        // What this process knows of the kind is what counts here.
        let kind = self.kinds.get(&job.kind.name).unwrap_or(&job.kind);
        Ok(Prepared { envelope, kind: Arc::clone(kind), skip_queue: skip_queue.unwrap_or_default(), named })
    }

    /// It is counted when it is in the queue, and counts itself if nobody lived to do so.
    pub(crate) async fn enqueue(self: &Arc<Shared>, prepared: Prepared) -> Result<Placed, Error> {
        let Prepared { envelope, kind, skip_queue, named } = prepared;
        // Only the queue knows whether what has a name was there before.
        if skip_queue
            && named == Named::Anew
            && self.kinds.contains_key(envelope.kind.as_str())
            && !self.is_stopping()
        {
            self.open_group(&envelope).await?;
            self.tell_queued(&envelope);
            let placed = Placed::of(&envelope);
            self.run_here(envelope, kind);
            return Ok(placed);
        }
        let is_new = self.push(&envelope, self.queue_of(&kind), named != Named::Anew).await?;
        match named {
            // It is done again until all of it is.
            Named::ByOrigin => self.open_group(&envelope).await?,
            Named::Anew | Named::ByKey if is_new => {
                if let Err(error) = self.open_group(&envelope).await {
                    self.trouble("counting for a group", &error);
                }
            }
            // Others queued it by the same key, in their group.
            Named::Anew | Named::ByKey => {}
        }
        self.tell_queued(&envelope);
        let Envelope { id, group, .. } = envelope;
        Ok(Placed { id, group })
    }

    fn tell_queued(&self, envelope: &Envelope) {
        self.tell_often(Some(&self.counters.queued), || Event::Queued {
            id: envelope.id.clone(),
            kind: envelope.kind.clone(),
        });
    }

    pub(crate) fn queue_of<'a>(&'a self, kind: &'a Kind) -> &'a Arc<dyn Queue> {
        kind.queue.as_ref().unwrap_or(&self.backend.queue)
    }

    pub(crate) async fn push(
        &self,
        envelope: &Envelope,
        queue: &Arc<dyn Queue>,
        again: bool,
    ) -> Result<bool, crate::ports::PortError> {
        let push = Push {
            body: envelope.text(),
            delay: envelope.start_at.map(|at| at.since(self.clock.now())).unwrap_or_default(),
            priority: envelope.priority,
            dedupe_key: again.then(|| [self.keys.0.as_str(), &envelope.id].concat()),
        };
        queue.push(push).await
    }
}
