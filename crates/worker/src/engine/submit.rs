//! Into the queue.

use super::Shared;
use super::pressure::HeldUp;
use crate::envelope::{Envelope, group_of};
use crate::error::Error;
use crate::event::Event;
use crate::options::Options;
use crate::ports::{Answer, PortError, Push, Queue};
use crate::work::{AnyJob, Kind};
use futures::stream::{self, StreamExt};
use std::sync::Arc;

/// Pushed together at most, and how long their bodies are together unless one alone is longer.
pub(super) const TOGETHER_MAX: usize = 500;
const TOGETHER_BYTES_MAX: usize = 1 << 20;
/// Calls that do not wait for each other, at a time.
pub(super) const ABREAST: usize = 64;

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
        held_up: HeldUp,
    ) -> Result<Placed, Error> {
        let prepared = self.prepare(job, from)?;
        if self.skips_queue(&prepared) {
            return self.enqueue_here(prepared).await;
        }
        if self.config.pressure.is_some() {
            Box::pin(self.wait_for_room(self.queue_of(&prepared.kind), 1, held_up)).await?;
        }
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
    async fn enqueue(&self, prepared: Prepared) -> Result<Placed, Error> {
        let Prepared { envelope, kind, named, .. } = prepared;
        let is_new = self.push(&envelope, self.queue_of(&kind), named != Named::Anew).await?;
        self.queued(&envelope, named, is_new).await?;
        let Envelope { id, group, .. } = envelope;
        Ok(Placed { id, group })
    }

    /// Many: those that come into the same queue are pushed together. If one cannot be queued, others may have been.
    pub(crate) async fn enqueue_all(
        self: &Arc<Shared>,
        all: Vec<Prepared>,
        held_up: HeldUp,
    ) -> Result<Vec<Placed>, Error> {
        let placed = all.iter().map(|prepared| Placed::of(&prepared.envelope)).collect();
        let mut by_queue: Vec<(Arc<dyn Queue>, Vec<Prepared>)> = Vec::new();
        for prepared in all {
            if self.skips_queue(&prepared) {
                self.enqueue_here(prepared).await?;
                continue;
            }
            let queue = self.queue_of(&prepared.kind);
            match by_queue.iter_mut().find(|(known, _)| Arc::ptr_eq(known, queue)) {
                Some((_, of_queue)) => of_queue.push(prepared),
                None => by_queue.push((Arc::clone(queue), vec![prepared])),
            }
        }
        let together_max = self.together_max(held_up);
        for (queue, of_queue) in by_queue {
            let mut parts = Parts::new(together_max);
            for prepared in of_queue {
                let push = self.as_push(&prepared.envelope, prepared.named != Named::Anew);
                if let Some(part) = parts.add(prepared, push) {
                    self.enqueue_part(&queue, part, held_up).await?;
                }
            }
            self.enqueue_part(&queue, parts.rest(), held_up).await?;
        }
        Ok(placed)
    }

    async fn enqueue_part(
        self: &Arc<Shared>,
        queue: &Arc<dyn Queue>,
        part: Part,
        held_up: HeldUp,
    ) -> Result<(), Error> {
        let Part { prepared, pushes } = part;
        if prepared.is_empty() {
            return Ok(());
        }
        self.wait_for_room(queue, prepared.len(), held_up).await?;
        let new = queue.push_all(pushes).await?;
        let queued = prepared.iter().zip(new);
        let counts: Vec<Answer<'_, ()>> =
            queued.map(|(one, is_new)| self.queued_boxed(&one.envelope, one.named, is_new)).collect();
        // One that is not counted keeps nobody from counting the others.
        let counted: Vec<Result<(), PortError>> =
            stream::iter(counts).buffer_unordered(ABREAST).collect().await;
        Ok(counted.into_iter().collect::<Result<(), PortError>>()?)
    }

    /// Only the queue knows whether what has a name was there before.
    fn skips_queue(&self, prepared: &Prepared) -> bool {
        prepared.skip_queue
            && prepared.named == Named::Anew
            && self.kinds.contains_key(prepared.envelope.kind.as_str())
            && !self.is_stopping()
    }

    async fn enqueue_here(self: &Arc<Shared>, prepared: Prepared) -> Result<Placed, Error> {
        let Prepared { envelope, kind, .. } = prepared;
        self.open_group(&envelope).await?;
        self.note_queued(&envelope).await;
        self.tell_queued(&envelope);
        let placed = Placed::of(&envelope);
        self.run_here(envelope, kind);
        Ok(placed)
    }

    fn queued_boxed<'a>(&'a self, envelope: &'a Envelope, named: Named, is_new: bool) -> Answer<'a, ()> {
        Box::pin(self.queued(envelope, named, is_new))
    }

    /// What follows when it is in the queue.
    async fn queued(&self, envelope: &Envelope, named: Named, is_new: bool) -> Result<(), PortError> {
        match named {
            // It is done again until all of it is.
            Named::ByOrigin => self.open_group(envelope).await?,
            Named::Anew | Named::ByKey if is_new => {
                if let Err(error) = self.open_group(envelope).await {
                    self.trouble("counting for a group", &error);
                }
            }
            // Others queued it by the same key, in their group.
            Named::Anew | Named::ByKey => {}
        }
        if is_new {
            self.note_queued(envelope).await;
        }
        self.tell_queued(envelope);
        Ok(())
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
    ) -> Result<bool, PortError> {
        queue.push(self.as_push(envelope, again)).await
    }

    fn as_push(&self, envelope: &Envelope, again: bool) -> Push {
        Push {
            body: envelope.text(),
            delay: envelope.start_at.map(|at| at.since(self.clock.now())).unwrap_or_default(),
            priority: envelope.priority,
            dedupe_key: again.then(|| [self.keys.0.as_str(), &envelope.id].concat()),
        }
    }
}

/// What is pushed together.
#[derive(Default)]
struct Part {
    prepared: Vec<Prepared>,
    pushes: Vec<Push>,
}

/// Cuts many into parts that a queue takes at once.
struct Parts {
    next: Part,
    bytes: usize,
    together_max: usize,
}

impl Parts {
    fn new(together_max: usize) -> Parts {
        Parts { next: Part::default(), bytes: 0, together_max }
    }

    /// The part before this one, if it is full with it.
    fn add(&mut self, prepared: Prepared, push: Push) -> Option<Part> {
        let bytes = push.body.len();
        let is_full = self.next.pushes.len() >= self.together_max
            || (self.bytes + bytes > TOGETHER_BYTES_MAX && !self.next.pushes.is_empty());
        let full = is_full.then(|| self.rest());
        self.bytes += bytes;
        self.next.prepared.push(prepared);
        self.next.pushes.push(push);
        full
    }

    fn rest(&mut self) -> Part {
        self.bytes = 0;
        std::mem::take(&mut self.next)
    }
}
