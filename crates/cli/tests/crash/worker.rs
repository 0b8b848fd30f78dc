//! One client: submits, works, forgets items, repeats calls, and uses invalid leases.

use crate::clock;
use crate::history::Called;
use crate::random::Random;
use crate::wire;
use crate::world::{QUEUES, World};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use towline_api::{
    Action, Client, FieldsBody, Format, NewItem, ReceiveRequest, Settled, Span, Submitted, VerbName,
};
use towline_domain::{ItemId, LeaseToken, Millis, Timestamp};
use towline_store::{Operation, Reply};

/// How many calls are kept for any client to repeat.
const USED_MAX: usize = 500;
const HELD_MAX: usize = 60;
const KNOWN_MAX: usize = 200;

pub struct Worker {
    world: Arc<World>,
    client: Client,
    random: Random,
    name: u64,
    serial: u64,
    held: Vec<Held>,
    /// Items that this client knows, for calls without a lease.
    known: Vec<ItemId>,
    /// Submits with keys, to be repeated.
    keyed: Vec<(&'static str, NewItem)>,
    /// Settles whose answers were lost.
    unsure: Vec<Action>,
}

struct Held {
    id: ItemId,
    token: LeaseToken,
    until: Timestamp,
}

impl Worker {
    pub fn new(world: Arc<World>, name: u64) -> Worker {
        let format = if name.is_multiple_of(2) { Format::Json } else { Format::MessagePack };
        Worker {
            client: world.client_of(name, format),
            random: Random::new(world.plan.seed, name + 1),
            world,
            name,
            serial: 0,
            held: Vec::new(),
            known: Vec::new(),
            keyed: Vec::new(),
            unsure: Vec::new(),
        }
    }

    pub async fn run(mut self) {
        while !self.world.done.load(Ordering::SeqCst) {
            let world = Arc::clone(&self.world);
            let open = world.gate.read().await;
            let progressed = if world.is_draining() { self.drain().await } else { self.step().await };
            drop(open);
            if !progressed {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// `false`: no server answered, or there was nothing to do.
    async fn step(&mut self) -> bool {
        match self.random.below(100) {
            0..30 => self.submit().await,
            30..33 => self.submit_again().await,
            33..60 if self.held.len() < HELD_MAX => self.receive().await,
            60..66 => self.misuse().await,
            66..68 => self.operate().await,
            68..70 => self.settle_unsure().await,
            _ => self.settle().await,
        }
    }

    async fn drain(&mut self) -> bool {
        if !self.unsure.is_empty() {
            return self.settle_unsure().await;
        }
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            let actions = held.iter().map(|held| self.commit(held)).collect();
            return self.send(actions).await.is_some();
        }
        let before = self.held.len();
        self.receive().await && self.held.len() > before
    }

    fn queue(&mut self) -> (&'static str, Millis) {
        let (name, visibility, _) = QUEUES[usize::from(self.random.one_in(3))];
        (name, visibility)
    }

    fn new_item(&mut self) -> NewItem {
        self.serial += 1;
        // Every item is different, so that the checker can tell them apart.
        let mut payload = format!("{}-{}:", self.name, self.serial).into_bytes();
        let length = if self.random.one_in(200) { 30_000 } else { self.random.below(300) };
        payload.extend(self.random.bytes(length));
        let mut item = NewItem { payload: Some(payload.into()), ..NewItem::default() };
        if self.random.one_in(2) {
            item.idempotency_key = Some(format!("key-{}-{}", self.name, self.serial));
        }
        if self.random.one_in(3) {
            item.priority = Some(i64::try_from(self.random.below(7)).unwrap() - 3);
        }
        if self.random.one_in(8) {
            item.delay = Some(Millis(self.random.below(400)).into());
        }
        if self.random.one_in(4) {
            item.tags = [("client".to_owned(), self.name.to_string())].into();
            item.metadata = Some(self.random.bytes(20).into());
        }
        item
    }

    async fn submit(&mut self) -> bool {
        let size = match self.random.below(10) {
            0..5 => 1,
            5..9 => 2 + self.random.below(15),
            _ => 50 + self.random.below(100),
        };
        let submitted = self.world.submitted.fetch_add(size, Ordering::SeqCst);
        if submitted + size > self.world.allowance.load(Ordering::SeqCst) {
            self.world.submitted.fetch_sub(size, Ordering::SeqCst);
            return false;
        }
        let (queue, _) = self.queue();
        let items: Vec<NewItem> = (0..size).map(|_| self.new_item()).collect();
        let keyed = items.iter().filter(|item| item.idempotency_key.is_some());
        self.keyed.extend(keyed.map(|item| (queue, item.clone())));
        self.send_items(queue, items).await
    }

    /// A repeated key makes one item. The same key with other content is refused.
    async fn submit_again(&mut self) -> bool {
        let Some((queue, mut item)) = self.random.draw(&mut self.keyed) else { return false };
        if self.random.one_in(5) {
            item.payload =
                Some(format!("{}-{}: another content", self.name, self.serial).into_bytes().into());
            self.serial += 1;
        }
        self.send_items(queue, vec![item]).await
    }

    async fn send_items(&mut self, queue: &'static str, items: Vec<NewItem>) -> bool {
        let history = &self.world.history;
        let count = items.len() as u64;
        let operations = wire::submits(queue, &items);
        let read = |answers: &Vec<Submitted>| answers.iter().map(wire::submitted).collect();
        let called = history.call(operations, None, self.client.submit(queue, items), read).await;
        match called {
            Called::Answered(answers) => {
                let ids = answers.iter().filter_map(|answer| answer.id.clone()?.into_domain("id").ok());
                self.known.extend(ids);
                let old = self.known.len().saturating_sub(KNOWN_MAX);
                self.known.drain(..old);
                let created = answers.iter().filter(|answer| answer.created == Some(true)).count() as u64;
                let known = answers.iter().filter(|answer| answer.created == Some(false)).count() as u64;
                history.count("submits acknowledged", created);
                history.count("submits that a key recognised", known);
                history.count("submits refused", count - created - known);
                true
            }
            Called::Refused(code) => panic!("a submit was refused: {code:?}"),
            Called::Lost => {
                history.count("submits whose answer was lost", count);
                false
            }
            Called::Unheard => false,
        }
    }

    async fn receive(&mut self) -> bool {
        let (queue, visibility) = self.queue();
        let asked = self.random.one_in(2).then(|| Millis(300 + self.random.below(1200)));
        let draining = self.world.is_draining();
        let request = ReceiveRequest {
            max: Some(if self.random.one_in(3) {
                1
            } else {
                1 + i64::try_from(self.random.below(30)).unwrap()
            }),
            wait: (draining || self.random.one_in(2)).then(|| Millis(20 + self.random.below(200)).into()),
            visibility_timeout: asked.map(Span::from),
            ..ReceiveRequest::default()
        };
        let visibility = asked.unwrap_or(visibility);
        let operation = wire::receive(queue, &request);
        let read = |answer: &towline_api::ReceiveAnswer| {
            vec![Ok(Reply::Received(wire::received(answer, visibility)))]
        };
        let history = &self.world.history;
        let called = history.call(vec![operation], None, self.client.receive(queue, &request), read).await;
        let Some(answer) = called.answer() else { return false };
        history.count("items received", answer.items.len() as u64);
        for item in answer.items {
            self.held.push(Held {
                id: item.id.into_domain("id").unwrap(),
                token: item.lease.into_domain("lease").unwrap(),
                until: item.lease_expires_at.into_domain("lease_expires_at").unwrap(),
            });
        }
        true
    }

    fn commit(&mut self, held: &Held) -> Action {
        let mut action = Action::new(VerbName::Commit, held.id, held.token);
        action.output_params = [("by".to_owned(), towline_api::Json::string(&self.name.to_string()))].into();
        action
    }

    /// Does something with a leased item. `true`: the lease continues.
    fn action(&mut self, held: &Held) -> (Action, bool) {
        let random = &mut self.random;
        let plain = |verb| Action::new(verb, held.id, held.token);
        let delay = random.one_in(2).then(|| Millis(random.below(250)).into());
        let reason = Some("as the random fell".to_owned());
        let (mut action, keep) = match random.below(100) {
            0..58 => (self.commit(held), false),
            58..64 => (Action { reason, ..plain(VerbName::Fail) }, false),
            64..72 => (Action { reason, delay, ..plain(VerbName::Retry) }, false),
            72..79 => (Action { delay, ..plain(VerbName::Release) }, false),
            79..86 => (Action { delay, ..plain(VerbName::Defer) }, false),
            86..96 => {
                let visibility_timeout = random.one_in(2).then(|| Millis(200 + random.below(1500)).into());
                (Action { visibility_timeout, ..plain(VerbName::Heartbeat) }, true)
            }
            _ => (plain(VerbName::Edit), true),
        };
        let random = &mut self.random;
        if action.verb == Some(VerbName::Edit.into()) || random.one_in(6) {
            let set = FieldsBody { state_blob: Some(random.bytes(30).into()), ..FieldsBody::default() };
            action.set = Some(Box::new(set));
        }
        (action, keep)
    }

    async fn settle(&mut self) -> bool {
        // Some items are forgotten, and come back when their leases lapse.
        if self.random.one_in(40)
            && let Some(held) = self.random.draw(&mut self.held)
        {
            self.world.history.count("leases left to lapse", 1);
            let late = self.commit(&held);
            self.remember(late);
            return true;
        }
        let size = if self.random.one_in(2) { 1 } else { 1 + self.random.below(20) };
        let mut actions = Vec::new();
        let mut kept = Vec::new();
        for _ in 0..size {
            let Some(held) = self.random.draw(&mut self.held) else { break };
            if held.until < clock::now() {
                self.world.history.count("leases used after their time", 1);
            }
            let (action, keep) = self.action(&held);
            actions.push(action);
            if keep {
                kept.push(held);
            }
        }
        if actions.is_empty() {
            return false;
        }
        let answers = self.send(actions).await;
        if answers.is_some() {
            self.held.extend(kept);
        }
        answers.is_some()
    }

    /// Leases that were settled, lapsed, superseded or lost, of another item, or invented.
    async fn misuse(&mut self) -> bool {
        let mut used: Vec<Action> = Vec::new();
        {
            let all = self.world.used.lock().unwrap();
            for _ in 0..1 + self.random.below(6) {
                used.extend(self.random.pick(&all).cloned());
            }
        }
        let mut actions = Vec::new();
        for before in used {
            let (id, token) = (
                before.id.clone().unwrap().into_domain("id").unwrap(),
                before.lease.clone().unwrap().into_domain("lease").unwrap(),
            );
            let held = Held { id, token, until: Timestamp(0) };
            actions.push(match self.random.below(10) {
                0..4 => before,
                4..8 => self.action(&held).0,
                8 => {
                    let other = self.random.pick(&self.known).copied().unwrap_or(id);
                    self.commit(&Held { id: other, ..held })
                }
                _ => self.commit(&Held { token: wire::nobodys_token(), ..held }),
            });
        }
        if actions.is_empty() {
            return false;
        }
        self.world.history.count("settles with stale or foreign leases", actions.len() as u64);
        self.send(actions).await.is_some()
    }

    async fn settle_unsure(&mut self) -> bool {
        if self.unsure.is_empty() {
            return false;
        }
        let actions = std::mem::take(&mut self.unsure);
        self.world.history.count("settles made again after a lost answer", actions.len() as u64);
        self.send(actions).await.is_some()
    }

    fn remember(&mut self, action: Action) {
        let mut used = self.world.used.lock().unwrap();
        if used.len() < USED_MAX {
            used.push(action);
        } else {
            let at = usize::try_from(self.random.below(USED_MAX as u64)).unwrap();
            used[at] = action;
        }
    }

    /// Settles one by one or as a batch. `None`: no server answered.
    async fn send(&mut self, actions: Vec<Action>) -> Option<Vec<Settled>> {
        let world = Arc::clone(&self.world);
        let history = &world.history;
        let operations = wire::leases(&actions);
        let count = actions.len() as u64;
        let single = count == 1 && self.random.one_in(2);
        let called = if single {
            let (action, id) =
                (actions[0].clone(), actions[0].id.clone().unwrap().into_domain("id").unwrap());
            let read = |answer: &Settled| vec![wire::settled(&actions[0], answer)];
            match history.call(operations, Some(id), self.client.act(action), read).await {
                Called::Answered(answer) => Called::Answered(vec![answer]),
                // The refusal of this element.
                Called::Refused(_) => {
                    history.count("settles refused", 1);
                    Called::Answered(Vec::new())
                }
                Called::Lost => Called::Lost,
                Called::Unheard => Called::Unheard,
            }
        } else {
            let read = |answers: &Vec<Settled>| {
                actions.iter().zip(answers).map(|(action, answer)| wire::settled(action, answer)).collect()
            };
            history.call(operations, None, self.client.settle(actions.clone()), read).await
        };
        match called {
            Called::Answered(answers) => {
                history.count(if single { "settles one by one" } else { "settles in batches" }, count);
                let refused = answers.iter().filter(|answer| answer.error.is_some()).count() as u64;
                history.count("settles refused", refused);
                for (action, answer) in actions.into_iter().zip(&answers) {
                    if action.verb == Some(VerbName::Commit.into()) && answer.error.is_none() {
                        history.count("commits accepted, repetitions among them", 1);
                    }
                    if self.random.one_in(4) {
                        self.remember(action);
                    }
                }
                Some(answers)
            }
            Called::Refused(code) => panic!("a batch was refused: {code:?}"),
            Called::Lost => {
                history.count("settles whose answer was lost", count);
                self.unsure.extend(
                    actions.iter().filter(|action| action.verb != Some(VerbName::Edit.into())).cloned(),
                );
                actions.into_iter().for_each(|action| self.remember(action));
                None
            }
            Called::Unheard => None,
        }
    }

    /// The calls of an operator: cancel, redrive, pause, resume, delete.
    async fn operate(&mut self) -> bool {
        let Some(&id) = self.random.pick(&self.known) else { return false };
        let world = Arc::clone(&self.world);
        let state = |answer: &Settled| {
            let state = wire::item_state(answer.state.as_deref().unwrap());
            vec![Ok(Reply::Answer(towline_domain::change::Answer::State(state)))]
        };
        let (client, history) = (&self.client, &world.history);
        let called = match self.random.below(10) {
            0..2 => {
                let reason = "changed my mind".to_owned();
                let cancel = Operation::Cancel { id, reason: reason.clone() };
                history.call(vec![cancel], Some(id), client.cancel(id, Some(reason)), state).await
            }
            2..6 => {
                let redrive = vec![Operation::Redrive { id }];
                history.call(redrive, Some(id), client.redrive(id), state).await
            }
            6 => history.call(vec![Operation::Pause { id }], Some(id), client.pause_item(id), state).await,
            7..9 => {
                history.call(vec![Operation::Resume { id }], Some(id), client.resume_item(id), state).await
            }
            _ => {
                let force = self.random.one_in(2);
                let delete = vec![Operation::Delete { id, force }];
                let gone = |(): &()| vec![Ok(Reply::Answer(towline_domain::change::Answer::Removed))];
                match history.call(delete, Some(id), client.delete_item(id, force), gone).await {
                    Called::Answered(()) => {
                        history.count("items deleted", 1);
                        Called::Answered(Settled::default())
                    }
                    Called::Refused(code) => Called::Refused(code),
                    Called::Lost => Called::Lost,
                    Called::Unheard => Called::Unheard,
                }
            }
        };
        match called {
            Called::Answered(_) => {
                history.count("cancels, redrives, pauses, resumes, deletes carried out", 1);
                true
            }
            Called::Refused(_) => true,
            Called::Lost | Called::Unheard => false,
        }
    }
}
