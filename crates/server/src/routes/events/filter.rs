//! The filter of an event stream: the events that the client asks for and may see.

use crate::auth::{Caller, Right};
use crate::request::{Query, excerpt, invalid};
use crate::response::ProblemResponse;
use towline_api::EventShown;
use towline_domain::{EventKind, GroupTag, ItemId, QueueName};
use towline_store::{Event, EventCursor};

/// Values per parameter.
const VALUES_MAX: usize = 50;

pub(super) struct EventFilter {
    caller: Caller,
    /// Empty: all queues. The same holds for the other lists.
    queues: Vec<QueueName>,
    kinds: Vec<EventKind>,
    items: Vec<ItemId>,
    groups: Vec<GroupTag>,
}

impl EventFilter {
    pub(super) fn parse(query: &mut Query, caller: Caller) -> Result<EventFilter, ProblemResponse> {
        let mut queues = Vec::new();
        for text in values(query, "queue")? {
            let queue: QueueName =
                text.parse().map_err(|error| invalid("queue", format!("{:?}: {error}", excerpt(&text))))?;
            caller.check(&queue, Right::Read)?;
            queues.push(queue);
        }
        let mut kinds = Vec::new();
        for text in values(query, "kind")? {
            let public = EventKind::ALL.iter().copied().filter(|kind| kind.is_public());
            let found: Vec<EventKind> = match text.strip_suffix(".*") {
                Some(family) => public.filter(|kind| kind.name().split('.').next() == Some(family)).collect(),
                None => EventKind::parse(&text).into_iter().collect(),
            };
            if found.is_empty() {
                let names: Vec<&str> =
                    EventKind::ALL.iter().filter(|kind| kind.is_public()).map(|kind| kind.name()).collect();
                let nearest = names.iter().min_by_key(|name| strsim::damerau_levenshtein(name, &text));
                let nearest = nearest.map_or("", |name| name);
                let message = format!(
                    "{:?} is not an event kind; use one like {nearest}, or item.*, lease.*, queue.*",
                    excerpt(&text)
                );
                return Err(invalid("kind", message));
            }
            kinds.extend(found);
        }
        let mut items = Vec::new();
        for text in values(query, "item")? {
            items.push(text.parse().map_err(|_| {
                invalid("item", format!("{:?} is not an item id; it must be a UUID", excerpt(&text)))
            })?);
        }
        let groups = values(query, "group")?.iter().map(|name| GroupTag::of(name)).collect();
        Ok(EventFilter { caller, queues, kinds, items, groups })
    }

    pub(super) fn matches(&self, event: &Event) -> bool {
        let origin =
            event.item.as_ref().and_then(|item| item.after.as_ref()).and_then(|after| after.origin.as_ref());
        let kind = self.kinds.is_empty() || self.kinds.contains(&event.kind);
        let item =
            self.items.is_empty() || event.item.as_ref().is_some_and(|item| self.items.contains(&item.id));
        let group = self.groups.is_empty()
            || event.item.as_ref().and_then(|item| item.group).is_some_and(|tag| self.groups.contains(&tag));
        let queue = || {
            self.queues.is_empty()
                || [event.queue.as_ref(), origin]
                    .into_iter()
                    .flatten()
                    .any(|queue| self.queues.contains(queue))
        };
        // The queue may be deleted and its name unknown. Then only a client with a right on all queues sees the event.
        let permitted = || match &event.queue {
            Some(queue) => self.caller.may(queue, Right::Read),
            None => self.caller.may_all(Right::Read),
        };
        kind && item && group && queue() && permitted()
    }

    pub(super) fn caller(&self) -> Caller {
        self.caller.clone()
    }
}

fn values(query: &mut Query, name: &str) -> Result<Vec<String>, ProblemResponse> {
    let values = query.all(name);
    if values.len() > VALUES_MAX {
        return Err(invalid(name, format!("given {} times; use at most {VALUES_MAX}", values.len())));
    }
    Ok(values)
}

/// The wire form of an event. Its id is the cursor of a client that has seen it.
pub(super) fn describe(event: &Event, seen: &EventCursor) -> EventShown {
    EventShown::new(seen.to_string(), event.at, event.kind, event.queue.as_ref(), event.item.as_ref())
}
