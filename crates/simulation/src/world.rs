//! One simulated world: a store, its disk, its clients and the invariant checker.

use crate::clock::SimClock;
use crate::disk::{Crash, Fault, SimDisk};
use crate::workload::{self, Client};
use fastrand::Rng;
use std::sync::Arc;
use towline_conformance::invariants::{Checker, Snapshot};
use towline_domain::FieldSet;
use towline_embedded::outcome::{Found, Outcome, Query};
use towline_embedded::plant::{Bug, Plant};
use towline_embedded::reader::ItemReader;
use towline_embedded::{Chore, Engine, OpenError, Options};
use towline_store::{Clock, Operation, StoreError};

pub const SALT: u64 = 0x0074_6f77_6c69_6e65;
const SEGMENT_BYTES: u64 = 64 << 10;
const CLIENTS: usize = 6;

/// What the store did wrong, in words.
#[derive(Debug, Clone)]
pub struct Failure(pub String);

/// A call whose batch is written and not yet synced.
struct InFlight {
    call: u64,
    client: usize,
    outcomes: Vec<Outcome>,
    frame: u64,
}

pub struct World {
    pub rng: Rng,
    pub disk: SimDisk,
    pub checker: Checker,
    plant: Plant,
    engine: Option<Engine>,
    clock: SimClock,
    clients: Vec<Client>,
    in_flight: Vec<InFlight>,
    chores: Vec<Chore>,
    next_call: u64,
    serial: u64,
    unchecked_reads: bool,
    /// The kind of crash for a power loss that a fault triggers.
    power_off_crash: Option<Crash>,
    pub restarts: u64,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({:?} at {}, {} calls)", self.engine, self.clock.now(), self.next_call)
    }
}

impl World {
    pub fn new(seed: u64, bug: Option<Bug>) -> Result<World, Failure> {
        let disk = SimDisk::default();
        if bug == Some(Bug::NoDirectorySync) {
            disk.set_no_directory_sync();
        }
        let mut world = World::on_disk(disk, seed, bug);
        world.open()?;
        world.call(0, workload::create_queues())?;
        world.sync()?;
        Ok(world)
    }

    fn options(&self) -> Options {
        Options { segment_bytes: SEGMENT_BYTES, salt: SALT, plant: self.plant, ..Options::default() }
    }

    fn reader(&self) -> ItemReader {
        ItemReader { salt: SALT, unchecked: self.unchecked_reads }
    }

    /// Opens the store. This must succeed on a disk that lost only unsynced data.
    pub fn open(&mut self) -> Result<(), Failure> {
        match self.try_open() {
            Ok(()) => Ok(()),
            Err(error) => Err(Failure(format!("the store does not open: {error}"))),
        }
    }

    pub fn try_open(&mut self) -> Result<(), OpenError> {
        self.clock.restart();
        let engine = Engine::open(Arc::new(self.disk.clone()), self.options(), &self.clock)?;
        self.engine = Some(engine);
        Ok(())
    }

    fn engine(&mut self) -> Result<&mut Engine, Failure> {
        self.engine.as_mut().ok_or_else(|| Failure("the store is closed".to_owned()))
    }

    fn check(&self) -> Result<(), Failure> {
        match self.checker.violations().first() {
            Some(violation) => Err(Failure(violation.to_string())),
            None => Ok(()),
        }
    }

    /// Takes one random step.
    pub fn step(&mut self) -> Result<(), Failure> {
        match self.rng.u32(0..1000) {
            0..=549 => self.call_randomly()?,
            550..=749 => self.sync()?,
            750..=849 => {
                // Time passes, and the machine's clock may be set back.
                let jump = match self.rng.u32(0..50) {
                    0 => self.rng.u64(1000..5000),
                    1..=10 => self.rng.u64(100..500),
                    _ => self.rng.u64(0..20),
                };
                self.clock.pass(jump);
                if self.rng.u32(0..60) == 0 {
                    self.clock.set_back(self.rng.u64(0..3000));
                }
            }
            850..=919 => self.collect()?,
            920..=949 => self.do_chores(),
            950..=969 => self.observe()?,
            970..=979 => self.fault()?,
            980..=984 => self.close()?,
            985..=994 => self.crash()?,
            _ => {
                let capacity = self.disk.used() + self.rng.u64(0..3) * SEGMENT_BYTES;
                let roomy = self.rng.bool();
                self.disk.set_capacity((!roomy).then_some(capacity));
            }
        }
        self.check()
    }

    /// Sends a random batch of a random client, unless that client still waits for a reply.
    fn call_randomly(&mut self) -> Result<(), Failure> {
        let client = self.rng.usize(0..CLIENTS);
        if self.clients[client].waiting.is_some() {
            return Ok(());
        }
        let mut rng = self.rng.fork();
        let batch = workload::batch(&mut rng, &mut self.clients[client], &mut self.serial);
        self.call(client, batch)
    }

    /// Sends a client's batch. The engine decides and writes it but does not sync it.
    pub fn call(&mut self, client: usize, batch: Vec<Operation>) -> Result<(), Failure> {
        let call = self.next_call;
        self.next_call += 1;
        let (clock, mark) = (self.clock.now(), self.rng.u32(0..40) == 0);
        let engine = self.engine()?;
        // The store's clock counts, because it never goes back.
        let invoked_at = engine.now().max(clock);
        self.checker.invoked(call, &batch, invoked_at);
        let engine = self.engine()?;
        let run = |engine: &mut Engine| -> Result<(Vec<Outcome>, u64), StoreError> {
            engine.begin(clock)?;
            engine.begin_call(clock)?;
            let mut outcomes = Vec::with_capacity(batch.len());
            for operation in batch {
                outcomes.push(engine.run(operation)?);
                if engine.group_is_full() {
                    engine.seal()?;
                }
            }
            let frame = engine.seal()?;
            if mark {
                engine.mark()?;
            }
            Ok((outcomes, frame))
        };
        match run(engine) {
            Ok((outcomes, frame)) => {
                self.clients[client].waiting = Some(call);
                self.in_flight.push(InFlight { call, client, outcomes, frame });
                self.take_chores();
                self.answer()
            }
            Err(_) => {
                self.checker.lost(call);
                self.restart_after_fault()
            }
        }
    }

    /// Syncs, and delivers the replies of all batches that are durable now.
    pub fn sync(&mut self) -> Result<(), Failure> {
        let engine = self.engine()?;
        match engine.seal().and_then(|_| engine.sync()) {
            Ok(()) => self.answer(),
            Err(_) => self.restart_after_fault(),
        }
    }

    fn answer(&mut self) -> Result<(), Failure> {
        let engine = self.engine()?;
        let (answerable, now) = (engine.answerable(), engine.now());
        let (ready, waiting) =
            std::mem::take(&mut self.in_flight).into_iter().partition(|flight| flight.frame <= answerable);
        self.in_flight = waiting;
        let ready: Vec<InFlight> = ready;
        for flight in ready {
            let reader = self.reader();
            let mut damaged = None;
            let mut note = |fault: StoreError| damaged = Some(fault);
            let answers: Vec<_> =
                flight.outcomes.into_iter().map(|outcome| outcome.finish(&reader, &mut note)).collect();
            self.clients[flight.client].waiting = None;
            if let Some(error) = damaged {
                return Err(Failure(format!("an answer could not be read: {error}")));
            }
            self.checker.answered(flight.call, &answers, now);
            workload::record_replies(&mut self.clients[flight.client], &answers);
        }
        self.check()
    }

    fn collect(&mut self) -> Result<(), Failure> {
        let (clock, budget) = (self.clock.now(), self.rng.usize(1..40_000));
        let engine = self.engine()?;
        let result = engine.begin(clock).and_then(|()| engine.collect(budget)).and_then(|_| engine.seal());
        self.take_chores();
        match result {
            Ok(_) => Ok(()),
            // No fault of the disk explains that. The store stops so that it loses nothing, and reopening would hide the bug.
            Err(error) if error.to_string().contains("count as live") => Err(Failure(error.to_string())),
            Err(_) => self.restart_after_fault(),
        }
    }

    fn take_chores(&mut self) {
        if let Some(engine) = &mut self.engine {
            self.chores.extend(engine.take_chores());
        }
    }

    fn do_chores(&mut self) {
        for chore in std::mem::take(&mut self.chores) {
            // A failed chore only makes the next opening slower.
            let _ = chore.run(&self.disk);
        }
    }

    /// Reads all queues and items of the store.
    pub fn snapshot(&mut self) -> Result<Snapshot, Failure> {
        let reader = self.reader();
        let engine = self.engine()?;
        let fault = |error: StoreError| Failure(format!("the store cannot be read: {error}"));
        let mut items = Vec::new();
        let mut after = None;
        loop {
            let query = Query::List { filter: Box::default(), after, limit: 500, fields: FieldSet::ALL };
            let page = engine.query(query).into_page(&reader).map_err(fault)?;
            items.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let Found::Queues(queues) = engine.query(Query::Queues { after: None, limit: 100 }) else {
            return Err(Failure("queues cannot be listed".to_owned()));
        };
        Ok(Snapshot { now: engine.now(), queues, items })
    }

    /// Syncs, and lets the checker examine a snapshot if no call is in flight.
    pub fn observe(&mut self) -> Result<(), Failure> {
        self.sync()?;
        if self.in_flight.is_empty() {
            let snapshot = self.snapshot()?;
            self.checker.observed(&snapshot);
        }
        self.check()
    }

    fn fault(&mut self) -> Result<(), Failure> {
        let fault = [Fault::Io, Fault::Full, Fault::Short][self.rng.usize(0..3)];
        let at = self.disk.operations() + self.rng.u64(1..12);
        self.disk.set_fault(at, fault);
        Ok(())
    }

    /// Shuts the store down cleanly and opens it again.
    fn close(&mut self) -> Result<(), Failure> {
        self.sync()?;
        let engine = self.engine()?;
        if engine.mark().and_then(|_| engine.sync()).is_err() {
            return self.restart_after_fault();
        }
        self.disk.clear_faults();
        let before = self.snapshot()?;
        self.restart(Crash::ProcessOnly)?;
        // If the clock moved on, scheduled items may have changed, so the snapshots cannot be compared.
        let after = self.snapshot()?;
        if before.now == after.now {
            self.checker.unchanged(&before, &after);
        }
        self.check()
    }

    fn restart_after_fault(&mut self) -> Result<(), Failure> {
        if let Some(how) = self.power_off_crash.filter(|_| self.disk.is_off()) {
            return self.restart(how);
        }
        let how = if self.rng.bool() { Crash::ProcessOnly } else { Crash::POWER[self.rng.usize(0..5)] };
        self.restart(how)
    }

    fn crash(&mut self) -> Result<(), Failure> {
        let how = match self.rng.u32(0..4) {
            0 => Crash::ProcessOnly,
            _ => Crash::POWER[self.rng.usize(0..5)],
        };
        self.restart(how)
    }

    /// Crashes the store and opens it again.
    pub fn restart(&mut self, how: Crash) -> Result<(), Failure> {
        self.restarts += 1;
        self.engine = None;
        self.chores.clear();
        self.in_flight.clear();
        self.clients.iter_mut().for_each(|client| client.waiting = None);
        self.checker.restarted();
        self.disk.crash(how, &mut self.rng);
        // The machine's clock may be set back while the store is closed, to long before the store's latest time.
        if self.rng.u32(0..8) == 0 {
            self.clock.set_back(self.rng.u64(0..600_000));
        }
        // Sometimes the power goes off during opening too.
        if self.rng.u32(0..6) == 0 {
            let at = self.disk.operations() + self.rng.u64(1..8);
            self.disk.set_fault(at, Fault::PowerOff);
            if self.try_open().is_err() || self.disk.is_off() {
                self.engine = None;
                let how = Crash::POWER[self.rng.usize(0..5)];
                self.disk.crash(how, &mut self.rng);
            }
        }
        if self.engine.is_none() {
            self.open()?;
        }
        self.disk.clear_faults();
        let snapshot = self.snapshot()?;
        self.checker.observed(&snapshot);
        self.check()
    }

    /// Stops all faults and lets workers settle until every item that is not paused is terminal.
    pub fn drain(&mut self) -> Result<(), Failure> {
        self.disk.clear_faults();
        self.sync()?;
        let resume =
            (0..workload::QUEUES.len()).map(|nth| Operation::ResumeQueue { queue: workload::queue(nth) });
        self.call(0, resume.collect())?;
        self.sync()?;
        for _round in 0..400 {
            self.clock.pass(250);
            for nth in 0..workload::QUEUES.len() {
                let mut rng = self.rng.fork();
                self.clients[0].held.clear();
                self.call(0, vec![workload::receive(&mut rng, nth, 40)])?;
                self.sync()?;
                let held = std::mem::take(&mut self.clients[0].held);
                let commit = |held: workload::HeldLease| Operation::Lease {
                    id: held.id,
                    call: Box::new(towline_domain::LeaseCall {
                        token: held.token,
                        verb: towline_domain::command::Verb::Commit(towline_domain::Outcome::default()),
                        adjust: towline_domain::Adjust::default(),
                    }),
                };
                self.call(0, held.into_iter().map(commit).collect())?;
                self.sync()?;
            }
            let snapshot = self.snapshot()?;
            let open = |view: &towline_store::QueueView| view.counts.unfinished() - view.counts.paused;
            if snapshot.queues.iter().map(open).sum::<u64>() == 0 {
                self.checker.observed(&snapshot);
                return self.check();
            }
        }
        Err(Failure("invariant 14: items stay unfinished although workers settle".to_owned()))
    }

    /// A world on a disk that may already contain a store. The store is not open yet.
    pub fn on_disk(disk: SimDisk, seed: u64, bug: Option<Bug>) -> World {
        World {
            rng: Rng::with_seed(seed),
            disk,
            checker: Checker::new(),
            plant: bug.map_or_else(Plant::default, Plant::bug),
            engine: None,
            clock: SimClock::new(1_700_000_000_000),
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            in_flight: Vec::new(),
            chores: Vec::new(),
            next_call: 1,
            serial: 0,
            unchecked_reads: bug == Some(Bug::NoRecordCheck),
            power_off_crash: None,
            restarts: 0,
        }
    }

    /// Chooses the kind of crash for a power loss that a fault triggers.
    pub fn set_power_off_crash(&mut self, how: Crash) {
        self.power_off_crash = Some(how);
    }

    /// Takes one random step of a client, without faults.
    pub fn step_without_faults(&mut self) -> Result<(), Failure> {
        match self.rng.u32(0..20) {
            0..=11 => self.call_randomly()?,
            12..=15 => self.sync()?,
            16 | 17 => self.clock.pass(self.rng.u64(0..60)),
            18 => self.collect()?,
            _ => self.do_chores(),
        }
        self.check()
    }

    /// Shuts the store down cleanly. Returns its content.
    pub fn close_cleanly(&mut self) -> Result<Snapshot, Failure> {
        self.sync()?;
        let snapshot = self.snapshot()?;
        self.checker.observed(&snapshot);
        self.check()?;
        let engine = self.engine()?;
        let marked = engine.mark().and_then(|_| engine.sync());
        marked.map_err(|error| Failure(error.to_string()))?;
        self.do_chores();
        self.disk.clear_faults();
        self.engine = None;
        Ok(snapshot)
    }
}
