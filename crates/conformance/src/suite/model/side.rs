//! One of the two stores. Translates its ids into those of the reference store.

use super::content::*;
use crate::suite::operations::name;
use crate::suite::rig::START;
use futures::executor::block_on;
use std::collections::HashMap;
use std::sync::Arc;
use towline_domain::change::Answer;
use towline_domain::kv::KvRecord;
use towline_domain::{
    Effects, FailureKind, FailureSet, FieldSet, HandedOff, HeadFilter, Item, ItemId, Millis, QueueId,
    Refusal, StateName, StateSet, Timestamp,
};
use towline_store::Answered;
use towline_store::{
    ErrorText, Exclusions, Filter, ManualClock, Operation, OperationError, QueueView, Received, Reply, Store,
    StoredItem, TallyRange, TallyRow, Updated,
};

/// A store, its clock, and the translation of its ids and queue ids.
pub(super) struct Side {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) ids: HashMap<ItemId, ItemId>,
    pub(super) queues: HashMap<QueueId, QueueId>,
}

impl Side {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Side {
        Side { store, clock, ids: HashMap::new(), queues: HashMap::new() }
    }

    pub(super) fn update(&self, batch: Vec<Operation>) -> Updated {
        block_on(self.store.update(batch)).expect("the store answers")
    }

    /// Effects under the reference's names. When something is due next is not compared: a store may say it more exactly.
    pub(super) fn rename_effects(&self, effects: &mut Effects) {
        for ids in [&mut effects.ended, &mut effects.moved] {
            ids.iter_mut().for_each(|id| self.rename_id(id));
            ids.sort_unstable();
        }
        effects.due = None;
    }

    pub(super) fn rename_id(&self, id: &mut ItemId) {
        *id = self.ids.get(id).copied().unwrap_or(*id);
    }

    pub(super) fn rename_queue(&self, id: &mut QueueId) {
        *id = self.queues.get(id).copied().unwrap_or(QueueId(u32::MAX));
    }

    pub(super) fn rename_item(&self, item: &mut Item) {
        self.rename_id(&mut item.head.id);
        self.rename_queue(&mut item.head.queue);
        if let Some(origin) = item.head.extras.as_mut().and_then(|extras| extras.origin.as_mut()) {
            self.rename_queue(&mut origin.queue_id);
        }
        if let Some(claim) = &mut item.body.claim {
            self.rename_queue(&mut claim.queue);
        }
        item.body.parent.iter_mut().for_each(|parent| self.rename_id(parent));
        item.outcome.handed_off.iter_mut().for_each(|id| self.rename_id(id));
    }

    pub(super) fn rename(&self, answered: &mut Answered) {
        match answered {
            Ok(Reply::Answer(Answer::Submitted { id, .. } | Answer::Replaced { id })) => self.rename_id(id),
            Ok(Reply::Answer(Answer::HandedOff(HandedOff { items }))) => {
                items.iter_mut().for_each(|item| self.rename_id(&mut item.id));
            }
            Ok(Reply::Answer(Answer::Queue(queue))) => self.rename_queue(&mut queue.id),
            Ok(Reply::Received(Received { items, .. })) => {
                items.iter_mut().for_each(|item| self.rename_item(item));
            }
            // A store may have carried out due timers before the sweep.
            Ok(Reply::Swept { changed }) => *changed = 0,
            Ok(Reply::Answer(_) | Reply::Kv(_)) => {}
            Err(OperationError::Refused(refusal)) => self.rename_refusal(refusal),
            Err(_) => {}
        }
    }

    fn rename_refusal(&self, refusal: &mut Refusal) {
        match refusal {
            Refusal::HandOff { why, .. } => self.rename_refusal(why),
            Refusal::ItemNotFound { id }
            | Refusal::IdTaken { id }
            | Refusal::KeyConflict { id, .. }
            | Refusal::LeaseLost { id, .. }
            | Refusal::AlreadySettled { id, .. }
            | Refusal::WrongState { id, .. }
            | Refusal::PreconditionFailed { id }
            | Refusal::RenewalsExhausted { id, .. }
            | Refusal::NotDue { id } => self.rename_id(id),
            _ => {}
        }
    }

    /// Everything that can be read, with the ids of the reference store.
    pub(super) fn read(&self, page: usize) -> Reading {
        loop {
            let swept = self.update(vec![Operation::Sweep]).answers;
            if swept == [Ok(Reply::Swept { changed: 0 })] {
                break;
            }
        }
        let mut queues = block_on(self.store.queues(None, 100)).expect("the store answers");
        for view in &mut queues {
            self.rename_queue(&mut view.queue.id);
        }
        let lists = filters().into_iter().map(|filter| self.list(&filter, page)).collect();
        let keys = KEYS.map(str::to_owned).to_vec();
        Reading {
            queues,
            lists,
            records: block_on(self.store.kv_get(keys)).expect("the store answers"),
            next_wake: block_on(self.store.next_wake()).expect("the store answers"),
            tallies: QUEUES
                .iter()
                .flat_map(|queue| [None, Some("parity")].map(|tag| self.tally(queue, tag)))
                .collect(),
        }
    }

    fn tally(&self, queue: &str, tag: Option<&str>) -> Option<Vec<TallyRow>> {
        let asked = TallyRange { from: Timestamp(0), until: Timestamp::MAX, tag: tag.map(str::to_owned) };
        block_on(self.store.tally(name(queue), asked)).expect("the store answers")
    }

    pub(super) fn list(&self, filter: &Filter, limit: usize) -> Vec<StoredItem> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.list(filter.clone(), after, limit, FieldSet::ALL);
            let page = block_on(page).expect("the store answers");
            all.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let (mut counted, mut after) = (0, None);
        loop {
            let part = block_on(self.store.count(filter.clone(), after)).expect("the store answers");
            (counted, after) = (counted + part.count, part.next);
            if after.is_none() {
                break;
            }
        }
        assert_eq!(counted, all.len() as u64, "count and list agree: {filter:?}");
        for stored in &mut all {
            self.rename_item(&mut stored.item);
        }
        all
    }
}

#[derive(Debug, PartialEq)]
pub(super) struct Reading {
    queues: Vec<QueueView>,
    lists: Vec<Vec<StoredItem>>,
    records: Vec<Option<KvRecord>>,
    next_wake: Option<Timestamp>,
    tallies: Vec<Option<Vec<TallyRow>>>,
}

/// The filter for everything, and some narrower ones.
pub(super) fn filters() -> Vec<Filter> {
    let tag =
        |value: &str| Filter { tags: vec![("parity".to_owned(), value.to_owned())], ..Filter::default() };
    let of_head = |head| Filter { head, ..Filter::default() };
    let in_state = |state| HeadFilter { state: Some(state), ..HeadFilter::default() };
    let state = |state| Filter { queue: Some(name(QUEUES[0])), ..of_head(in_state(state)) };
    vec![
        Filter::default(),
        tag("odd"),
        state(StateName::Ready),
        state(StateName::Failed),
        Filter { idempotency_key: Some("k1".to_owned()), ..Filter::default() },
        Filter { group: Some("g0".to_owned()), ..of_head(in_state(StateName::Unfinished)) },
        of_head(HeadFilter { attempt_min: Some(2), priority_max: Some(0), ..HeadFilter::default() }),
        of_head(HeadFilter { failure: Some(FailureKind::Cancelled), ..HeadFilter::default() }),
        Filter { error: Some(ErrorText::new("RETRIED")), ..Filter::default() },
        of_head(HeadFilter {
            ready_from: Some(START.after(Millis(100))),
            ready_before: Some(START.after(Millis(2000))),
            deliveries_max: Some(1),
            not_states: StateSet::default().with(StateName::Failed),
            ..HeadFilter::default()
        }),
        Filter {
            not: Exclusions { groups: vec!["g0".to_owned()], ..Exclusions::default() },
            ..of_head(HeadFilter {
                deliveries_min: Some(1),
                not_failures: FailureSet::default().with(FailureKind::Explicit),
                ..HeadFilter::default()
            })
        },
        Filter {
            not: Exclusions { tags: vec![("parity".to_owned(), "even".to_owned())], ..Exclusions::default() },
            ..Filter::default()
        },
        Filter {
            not: Exclusions { tag_names: vec!["parity".to_owned()], ..Exclusions::default() },
            ..Filter::default()
        },
    ]
}
