//! Checks replies to lease holders: invariants 3, 4, 5, 7 and 12.

use super::Checker;
use super::history::{Cause, Open, Span, Tick};
use super::item::{LastSettle, Record, counts, lease_call, same_settle, settle_verb};
use towline_domain::change::Answer;
use towline_domain::command::{Verb, When};
use towline_domain::{ItemId, ItemState, LeaseCall, LeaseToken, Millis, Refusal, SettleVerb, Timestamp};
use towline_store::Operation;

impl Checker {
    pub(super) fn lease_accepted(&mut self, id: ItemId, call: &LeaseCall, answer: &Answer, span: &Span) {
        let key = span.key;
        let Some(record) = self.items.get(&id) else {
            match self.gone.get(&id) {
                Some(&removed) if removed >= span.invoked => {}
                Some(_) => self.report(
                    4,
                    format!("{key}: a lease of item {id} was accepted after the item was removed"),
                ),
                None => self.report(
                    4,
                    format!("{key}: a lease of item {id} was accepted, but no client submitted this item"),
                ),
            }
            return;
        };
        let verb = settle_verb(&call.verb);
        // A repeated call gets the same reply and changes nothing.
        let before = record.settles.iter().position(|last| last.token == call.token);
        if let (Some(_), Some(at)) = (verb, before) {
            let first = &record.settles[at];
            let left = first.left;
            if first.call.as_ref().is_some_and(|first| !same_settle(first, call)) {
                let message = format!(
                    "{key}: {:?} of item {id} was accepted, but another call had settled its lease",
                    call.verb
                );
                self.report(5, message);
            } else if !matches!(answer, Answer::State(state) if *state == left) {
                let message =
                    format!("{key}: a repeated settle of item {id} got {answer:?}, the first got {left:?}");
                self.report(5, message);
            } else if record.settles[at + 1..].iter().any(|later| later.span.before(span)) {
                let message =
                    format!("{key}: an old settle of item {id} was accepted again after a later one");
                self.report(4, message);
            }
            return;
        }
        // The lease was over, so an accepted call is a repeat of the unknown one.
        if verb.is_some() && record.unseen.iter().any(|unseen| same_settle(unseen, call)) {
            if !matches!(answer, Answer::State(_)) {
                self.report(5, format!("{key}: a repeated settle of item {id} got {answer:?}"));
            }
            return;
        }
        let mut found = Vec::new();
        let number = self.check_current(id, record, call, span, &mut found);
        // The call may be a repeat of a settle whose reply was lost.
        let twin =
            |open: &&Open| verb.is_some() && lease_call(open).is_some_and(|other| same_settle(other, call));
        let twins = Cause::among(self.open_on(id).iter().filter(twin));
        for (invariant, cause, message) in found {
            self.unless(cause.or(|| twins.clone()), invariant, message);
        }
        match (verb, answer) {
            (None, Answer::Leased { deadline }) => self.held(id, call, *deadline, span),
            (Some(verb), Answer::State(state)) => self.settled(id, call, verb, *state, number, span),
            _ => self.report(5, format!("{key}: {:?} of item {id} got {answer:?}", call.verb)),
        }
    }

    /// Checks that the lease of the call may have been valid. Returns its delivery number.
    fn check_current(
        &self,
        id: ItemId,
        record: &Record,
        call: &LeaseCall,
        span: &Span,
        found: &mut Vec<(u8, Cause, String)>,
    ) -> u32 {
        let key = span.key;
        let what = || format!("{key}: {} of item {id} was accepted", verb_name(&call.verb));
        if let Some(ended) = record.ended.filter(|ended| ended.span.before(span)) {
            let cause = record.redrive(ended.span.invoked, self.open_on(id));
            found.push((
                4,
                cause,
                format!("{} after the item became terminal at {}", what(), ended.span.key),
            ));
        }
        let Some(at) = record.delivery(call.token) else {
            if !self.may_be_token(record, call.token) {
                found.push((4, Cause::None, format!("{} with a lease of another item", what())));
            }
            return record.deliveries.last().map_or(0, |latest| latest.number);
        };
        let delivery = &record.deliveries[at];
        let (number, token) = (delivery.number, delivery.token);
        let later = record.deliveries[at + 1..]
            .iter()
            .find(|later| later.received.unwrap_or(later.extended).before(span));
        if let Some(later) = later {
            let message =
                format!("{} with the lease of delivery {number}, after delivery {}", what(), later.number);
            found.push((4, Cause::None, message));
        }
        if let Some(dead) = delivery.dead.filter(|dead| dead.before(span)) {
            found.push((4, Cause::None, format!("{} after the item was cancelled at {}", what(), dead.key)));
        }
        if let Some((settled, verb)) = delivery.settled.filter(|(settled, _)| settled.before(span)) {
            let message =
                format!("{} after the lease was settled by {} at {}", what(), verb.name(), settled.key);
            found.push((4, Cause::None, message));
        }
        // Each possible heartbeat extended the lease by at most one timeout.
        let extended: u64 = self
            .open_on(id)
            .iter()
            .filter_map(lease_call)
            .filter(|other| other.token == token)
            .map(|other| match other.verb {
                Verb::Heartbeat { visibility } => {
                    visibility.unwrap_or(delivery.visibility).max(delivery.visibility).0
                }
                _ => 0,
            })
            .fold(0, u64::saturating_add);
        let deadline = delivery.deadline_most.after(Millis(extended));
        if span.from >= deadline {
            let message =
                format!("{} at {} or later; its lease was valid until {deadline}", what(), span.from);
            found.push((4, Cause::None, message));
        }
        number
    }

    /// Whether a receive without a known reply may have issued this token.
    fn may_be_token(&self, record: &Record, token: LeaseToken) -> bool {
        self.possible_receives(record).any(|open| match open.operation() {
            Operation::Receive(call) => (0..call.max.min(towline_domain::limits::RECEIVE_MAX))
                .any(|n| call.seed.token(n, token.issued_at()) == token),
            _ => false,
        })
    }

    fn held(&mut self, id: ItemId, call: &LeaseCall, deadline: Timestamp, span: &Span) {
        let Some(record) = self.items.get_mut(&id) else {
            return;
        };
        record.alive(span.from);
        record.changed(span);
        let Some(at) = record.delivery(call.token) else {
            return;
        };
        let delivery = &mut record.deliveries[at];
        let (number, least, most) = (delivery.number, delivery.deadline_least, delivery.deadline_most);
        if let Verb::Heartbeat { visibility } = call.verb {
            if delivery.extended.before(span) {
                (delivery.deadline_least, delivery.deadline_most) = (deadline, deadline);
                delivery.extended = *span;
            } else {
                (delivery.deadline_least, delivery.deadline_most) = (least.min(deadline), most.max(deadline));
                delivery.extended = delivery.extended.or(span);
            }
            delivery.visibility = delivery.visibility.max(visibility.unwrap_or_default());
        }
        record.fields.edited(&call.adjust.edits, number, span);
        if deadline <= span.from {
            self.report(
                3,
                format!(
                    "{}: the lease of item {id} was extended to {deadline}, which is in the past",
                    span.key
                ),
            );
        }
    }

    fn settled(
        &mut self,
        id: ItemId,
        call: &LeaseCall,
        verb: SettleVerb,
        state: ItemState,
        number: u32,
        span: &Span,
    ) {
        let Some(record) = self.items.get(&id) else {
            return;
        };
        let most = self.bounds(record).max_retries_most;
        // A call with the same lease and without a known reply may have settled it.
        let same = |open: &&Open| lease_call(open).is_some_and(|other| same_settle(other, call));
        let twins = || self.open_on(id).iter().filter(same);
        let from = twins().map(|open| open.at).fold(span.from, Timestamp::min);
        let invoked = twins().map(|open| open.invoked).fold(span.invoked, Tick::min);
        let since = Span { invoked, ..*span };
        if !may_leave(verb, state)
            || (state == ItemState::Failed && verb == SettleVerb::Release && !counts(&call.verb))
        {
            self.report(5, format!("{}: after {}, item {id} is {state}", span.key, verb.name()));
        }
        let Some(record) = self.items.get_mut(&id) else {
            return;
        };
        record.changed(span);
        let mut found = Vec::new();
        if let Some(at) = record.delivery(call.token) {
            let delivery = &mut record.deliveries[at];
            delivery.settled.get_or_insert((*span, verb));
            if counts(&call.verb) && state == ItemState::Pending && delivery.retries >= most {
                let message = format!(
                    "{}: item {id} was returned after attempt {}, the maximum is {}",
                    span.key,
                    delivery.retries + 1,
                    u64::from(most) + 1
                );
                found.push((7, message));
            }
        }
        record.fields.edited(&call.adjust.edits, number, span);
        record.settle(LastSettle {
            token: call.token,
            left: state,
            number,
            span: *span,
            call: Some(call.clone()),
        });
        if let Verb::Commit(outcome) = &call.verb {
            if let Some((first, token, _)) =
                record.committed.as_deref().filter(|(_, token, _)| *token != call.token)
            {
                let message = format!(
                    "item {id} was committed by {} ({token:?}) and by {} ({:?})",
                    first.key, span.key, call.token
                );
                found.push((5, message));
            } else {
                record.committed = Some(Box::new((*span, call.token, outcome.clone())));
            }
        }
        match state {
            ItemState::Completed => record.end(true, from, Some(number), &since),
            // A later delivery means that the item was redriven.
            ItemState::Failed if record.deliveries.last().is_some_and(|latest| latest.number > number) => {}
            ItemState::Failed => record.end(false, from, Some(number), &since),
            _ => {
                record.alive(from);
                if number >= record.not_before.0 {
                    record.not_before = (number, ready_at_earliest(&call.verb, from));
                }
            }
        }
        record.moved |= call.adjust.queue.is_some();
        for (invariant, message) in found {
            self.report(invariant, message);
        }
    }

    pub(super) fn lease_refused(&mut self, id: ItemId, call: &LeaseCall, refusal: &Refusal, span: &Span) {
        match refusal {
            Refusal::ItemNotFound { .. } => self.not_found(id, span),
            Refusal::LeaseLost { .. } => {}
            _ => return,
        }
        let Some(record) = self.items.get(&id) else {
            return;
        };
        let Some(delivery) = record.deliveries.last().filter(|delivery| delivery.token == call.token) else {
            return;
        };
        let over = delivery.settled.is_some()
            || delivery.dead.is_some()
            || record.ended.is_some()
            || record.cancelled.is_some();
        if over || span.to >= delivery.deadline_least || !matches!(refusal, Refusal::LeaseLost { .. }) {
            return;
        }
        let ends = |open: &&Open| lease_call(open).is_none_or(|other| other.token == call.token);
        let cause = Cause::among(self.open_on(id).iter().filter(ends));
        let message = format!(
            "{}: a lease of item {id} that is valid until {} was refused: {refusal}",
            span.key, delivery.deadline_least
        );
        self.unless(cause, 3, message);
    }
}

/// Whether an item may be in this state after the settle.
fn may_leave(verb: SettleVerb, state: ItemState) -> bool {
    match verb {
        SettleVerb::Commit => state == ItemState::Completed,
        SettleVerb::Fail | SettleVerb::Cancel => state == ItemState::Failed,
        SettleVerb::Pause => state == ItemState::Paused,
        SettleVerb::Retry | SettleVerb::Release => matches!(state, ItemState::Pending | ItemState::Failed),
        SettleVerb::Defer => state == ItemState::Pending,
    }
}

/// The earliest ready time of an item that was returned at `from` or later.
fn ready_at_earliest(verb: &Verb, from: Timestamp) -> Timestamp {
    match verb {
        Verb::Retry { delay, .. } => from.after(delay.unwrap_or_default()),
        Verb::Release { delay, .. } => from.after(*delay),
        Verb::Defer { until: When::After(span) } => from.after(*span),
        Verb::Defer { until: When::At(time) } => *time,
        _ => Timestamp(0),
    }
}

fn verb_name(verb: &Verb) -> &'static str {
    match settle_verb(verb) {
        Some(settle) => settle.name(),
        None if *verb == Verb::Edit => "edit",
        None => "heartbeat",
    }
}
