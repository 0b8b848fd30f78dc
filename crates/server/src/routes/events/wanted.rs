//! Which events somebody wants, and may see.

use crate::auth::{Caller, Right};
use crate::query::{Query, invalid, shown as cut};
use crate::refuse::Refused;
use towline_api::EventShown;
use towline_domain::{EventKind, GroupTag, ItemId, QueueName};
use towline_store::{Event, EventCursor};

/// Names of one sort in a filter.
const NAMES_MAX: usize = 50;

pub(super) struct Wanted {
    caller: Caller,
    /// Empty: any.
    queues: Vec<QueueName>,
    kinds: Vec<EventKind>,
    items: Vec<ItemId>,
    groups: Vec<GroupTag>,
}

impl Wanted {
    pub(super) fn of(query: &mut Query, caller: Caller) -> Result<Wanted, Refused> {
        let mut queues = Vec::new();
        for text in some(query, "queue")? {
            let queue: QueueName =
                text.parse().map_err(|error| invalid("queue", format!("{:?}: {error}", cut(&text))))?;
            caller.check_read(&queue)?;
            queues.push(queue);
        }
        let mut kinds = Vec::new();
        for text in some(query, "kind")? {
            let told = EventKind::ALL.iter().copied().filter(|kind| kind.is_public());
            let found: Vec<EventKind> = match text.strip_suffix(".*") {
                Some(family) => told.filter(|kind| kind.name().split('.').next() == Some(family)).collect(),
                None => EventKind::parse(&text).into_iter().collect(),
            };
            if found.is_empty() {
                let names: Vec<&str> =
                    EventKind::ALL.iter().filter(|kind| kind.is_public()).map(|kind| kind.name()).collect();
                let nearest = names.iter().min_by_key(|name| strsim::damerau_levenshtein(name, &text));
                let nearest = nearest.map_or("", |name| name);
                let message =
                    format!("{:?} is none; use one like {nearest}, or item.*, lease.*, queue.*", cut(&text));
                return Err(invalid("kind", message));
            }
            kinds.extend(found);
        }
        let mut items = Vec::new();
        for text in some(query, "item")? {
            items.push(text.parse().map_err(|_| invalid("item", format!("{:?} is not an id", cut(&text))))?);
        }
        let groups = some(query, "group")?.iter().map(|name| GroupTag::of(name)).collect();
        Ok(Wanted { caller, queues, kinds, items, groups })
    }

    pub(super) fn wants(&self, event: &Event) -> bool {
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
        // Of a queue whose name nobody knows any more only those are told who may see all.
        let may = || match &event.queue {
            Some(queue) => self.caller.may(queue, Right::Read),
            None => self.caller.may_all(Right::Read),
        };
        kind && item && group && queue() && may()
    }

    pub(super) fn caller(&self) -> Caller {
        self.caller.clone()
    }
}

fn some(query: &mut Query, name: &str) -> Result<Vec<String>, Refused> {
    let values = query.all(name);
    if values.len() > NAMES_MAX {
        return Err(invalid(name, format!("given {} times; at most {NAMES_MAX} are allowed", values.len())));
    }
    Ok(values)
}

/// `seen`: where a reader is that has seen it.
pub(super) fn shown(event: &Event, seen: &EventCursor) -> EventShown {
    EventShown::new(seen.to_string(), event.at, event.kind, event.queue.as_ref(), event.item.as_ref())
}
