//! One store, its disk, its clients and their checker.

use crate::disk::{Crash, Fault, SimDisk};
use crate::workload::{self, Client};
use fastrand::Rng;
use std::sync::Arc;
use towline_conformance::invariants::{Checker, Snapshot};
use towline_domain::{FieldSet, Timestamp};
use towline_embedded::outcome::{Found, Outcome, Query};
use towline_embedded::plant::{Bug, Plant};
use towline_embedded::reader::ItemReader;
use towline_embedded::{Chore, Engine, OpenError, Options};
use towline_store::{Operation, StoreError};

pub const SALT: u64 = 0x0074_6f77_6c69_6e65;
const SEGMENT_BYTES: u64 = 64 << 10;
const CLIENTS: usize = 6;

/// Something the store must never do, in words.
#[derive(Debug, Clone)]
pub struct Broken(pub String);

/// A call whose group is written, waiting to be durable.
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
    clock: u64,
    clients: Vec<Client>,
    in_flight: Vec<InFlight>,
    chores: Vec<Chore>,
    next_call: u64,
    serial: u64,
    unchecked_reads: bool,
    /// The power goes at a chosen operation: how.
    power_off: Option<Crash>,
    pub restarts: u64,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({:?} at {}, {} calls)", self.engine, self.clock, self.next_call)
    }
}

impl World {
    pub fn new(seed: u64, bug: Option<Bug>) -> Result<World, Broken> {
        let disk = SimDisk::default();
        if bug == Some(Bug::NoDirectorySync) {
            disk.set_no_directory_sync();
        }
        let mut world = World::on(disk, seed, bug);
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

    /// Opens the store. On a disk that only loses what was not synced this must succeed.
    pub fn open(&mut self) -> Result<(), Broken> {
        match self.try_open() {
            Ok(()) => Ok(()),
            Err(error) => Err(Broken(format!("the store does not open: {error}"))),
        }
    }

    pub fn try_open(&mut self) -> Result<(), OpenError> {
        let engine = Engine::open(Arc::new(self.disk.clone()), self.options(), Timestamp(self.clock))?;
        self.engine = Some(engine);
        Ok(())
    }

    fn engine(&mut self) -> Result<&mut Engine, Broken> {
        self.engine.as_mut().ok_or_else(|| Broken("the store is closed".to_owned()))
    }

    fn verdict(&self) -> Result<(), Broken> {
        match self.checker.violations().first() {
            Some(violation) => Err(Broken(violation.to_string())),
            None => Ok(()),
        }
    }

    /// One random step.
    pub fn step(&mut self) -> Result<(), Broken> {
        match self.rng.u32(0..1000) {
            0..=549 => {
                let client = self.rng.usize(0..CLIENTS);
                if self.clients[client].waiting.is_none() {
                    let mut rng = self.rng.fork();
                    let batch = workload::batch(&mut rng, &mut self.clients[client], &mut self.serial);
                    self.call(client, batch)?;
                }
            }
            550..=749 => self.sync()?,
            750..=849 => {
                // The clock of the machine may jump, also back.
                let jump = match self.rng.u32(0..50) {
                    0 => self.rng.u64(1000..5000),
                    1..=10 => self.rng.u64(100..500),
                    _ => self.rng.u64(0..20),
                };
                self.clock += jump;
                if self.rng.u32(0..60) == 0 {
                    self.clock -= self.rng.u64(0..3000);
                }
            }
            850..=919 => self.collect()?,
            920..=949 => self.do_chores(),
            950..=969 => self.observe()?,
            970..=979 => self.fault()?,
            980..=984 => self.close()?,
            985..=994 => self.crash_somehow()?,
            _ => {
                let capacity = self.disk.used() + self.rng.u64(0..3) * SEGMENT_BYTES;
                let roomy = self.rng.bool();
                self.disk.set_capacity((!roomy).then_some(capacity));
            }
        }
        self.verdict()
    }

    /// A client sends a batch: it is decided and written, not yet synced.
    pub fn call(&mut self, client: usize, batch: Vec<Operation>) -> Result<(), Broken> {
        let call = self.next_call;
        self.next_call += 1;
        let (clock, mark) = (Timestamp(self.clock), self.rng.u32(0..40) == 0);
        let engine = self.engine()?;
        // Invoked when the store's clock says so, which never goes back.
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

    /// Makes what is written durable, and gives the answers that waited for it.
    pub fn sync(&mut self) -> Result<(), Broken> {
        let engine = self.engine()?;
        match engine.seal().and_then(|_| engine.sync()) {
            Ok(()) => self.answer(),
            Err(_) => self.restart_after_fault(),
        }
    }

    fn answer(&mut self) -> Result<(), Broken> {
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
                return Err(Broken(format!("an answer could not be read: {error}")));
            }
            self.checker.answered(flight.call, &answers, now);
            workload::learn(&mut self.clients[flight.client], &answers);
        }
        self.verdict()
    }

    fn collect(&mut self) -> Result<(), Broken> {
        let (clock, budget) = (Timestamp(self.clock), self.rng.usize(1..40_000));
        let engine = self.engine()?;
        let result = engine.begin(clock).and_then(|()| engine.collect(budget)).and_then(|_| engine.seal());
        self.take_chores();
        match result {
            Ok(_) => Ok(()),
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
            // A failing chore costs time at the next opening, nothing else.
            let _ = chore.run(&self.disk);
        }
    }

    /// Everything the store holds.
    pub fn snapshot(&mut self) -> Result<Snapshot, Broken> {
        let reader = self.reader();
        let engine = self.engine()?;
        let fault = |error: StoreError| Broken(format!("the store cannot be read: {error}"));
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
            return Err(Broken("queues cannot be listed".to_owned()));
        };
        Ok(Snapshot { now: engine.now(), queues, items })
    }

    /// Looks at everything when nothing is under way.
    pub fn observe(&mut self) -> Result<(), Broken> {
        self.sync()?;
        if self.in_flight.is_empty() {
            let snapshot = self.snapshot()?;
            self.checker.observed(&snapshot);
        }
        self.verdict()
    }

    fn fault(&mut self) -> Result<(), Broken> {
        let fault = [Fault::Io, Fault::Full, Fault::Short][self.rng.usize(0..3)];
        let at = self.disk.operations() + self.rng.u64(1..12);
        self.disk.set_fault(at, fault);
        Ok(())
    }

    /// Stops as a clean shutdown does, and opens again.
    fn close(&mut self) -> Result<(), Broken> {
        self.sync()?;
        let engine = self.engine()?;
        if engine.mark().and_then(|_| engine.sync()).is_err() {
            return self.restart_after_fault();
        }
        self.disk.clear_faults();
        let before = self.snapshot()?;
        self.restart(Crash::ProcessOnly)?;
        // Time may have passed what was scheduled, so only a standing clock can be compared.
        let after = self.snapshot()?;
        if before.now == after.now {
            self.checker.unchanged(&before, &after);
        }
        self.verdict()
    }

    fn restart_after_fault(&mut self) -> Result<(), Broken> {
        if let Some(how) = self.power_off.filter(|_| self.disk.is_off()) {
            return self.restart(how);
        }
        let how = if self.rng.bool() { Crash::ProcessOnly } else { Crash::POWER[self.rng.usize(0..5)] };
        self.restart(how)
    }

    fn crash_somehow(&mut self) -> Result<(), Broken> {
        let how = match self.rng.u32(0..4) {
            0 => Crash::ProcessOnly,
            _ => Crash::POWER[self.rng.usize(0..5)],
        };
        self.restart(how)
    }

    /// The store dies where it stands; the power may go with it.
    pub fn restart(&mut self, how: Crash) -> Result<(), Broken> {
        self.restarts += 1;
        self.engine = None;
        self.chores.clear();
        self.in_flight.clear();
        self.clients.iter_mut().for_each(|client| client.waiting = None);
        self.checker.restarted();
        self.disk.crash(how, &mut self.rng);
        // Opening can be cut short too.
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
        self.verdict()
    }

    /// With the faults over, live workers bring every item to an end.
    pub fn drain(&mut self) -> Result<(), Broken> {
        self.disk.clear_faults();
        self.sync()?;
        let resume =
            (0..workload::QUEUES.len()).map(|nth| Operation::ResumeQueue { queue: workload::queue(nth) });
        self.call(0, resume.collect())?;
        self.sync()?;
        for _round in 0..400 {
            self.clock += 250;
            for nth in 0..workload::QUEUES.len() {
                let mut rng = self.rng.fork();
                self.clients[0].held.clear();
                self.call(0, vec![workload::receive(&mut rng, nth, 40)])?;
                self.sync()?;
                let held = std::mem::take(&mut self.clients[0].held);
                let commit = |held: workload::Held| Operation::Lease {
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
                return self.verdict();
            }
        }
        Err(Broken("invariant 14: items are left unfinished though workers settle".to_owned()))
    }

    /// A world around a disk that has a store on it already.
    pub fn on(disk: SimDisk, seed: u64, bug: Option<Bug>) -> World {
        World {
            rng: Rng::with_seed(seed),
            disk,
            checker: Checker::new(),
            plant: bug.map_or_else(Plant::default, Plant::bug),
            engine: None,
            clock: 1_700_000_000_000,
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            in_flight: Vec::new(),
            chores: Vec::new(),
            next_call: 1,
            serial: 0,
            unchecked_reads: bug == Some(Bug::NoRecordCheck),
            power_off: None,
            restarts: 0,
        }
    }

    /// How the power goes when it goes by itself.
    pub fn power_off_mode(&mut self, how: Crash) {
        self.power_off = Some(how);
    }

    /// Clients at work, and nothing going wrong.
    pub fn calm_step(&mut self) -> Result<(), Broken> {
        match self.rng.u32(0..20) {
            0..=11 => {
                let client = self.rng.usize(0..CLIENTS);
                if self.clients[client].waiting.is_none() {
                    let mut rng = self.rng.fork();
                    let batch = workload::batch(&mut rng, &mut self.clients[client], &mut self.serial);
                    self.call(client, batch)?;
                }
            }
            12..=15 => self.sync()?,
            16 | 17 => self.clock += self.rng.u64(0..60),
            18 => self.collect()?,
            _ => self.do_chores(),
        }
        self.verdict()
    }

    /// Stops cleanly; what the store held.
    pub fn shut_down(&mut self) -> Result<Snapshot, Broken> {
        self.sync()?;
        let snapshot = self.snapshot()?;
        self.checker.observed(&snapshot);
        self.verdict()?;
        let engine = self.engine()?;
        let marked = engine.mark().and_then(|_| engine.sync());
        marked.map_err(|error| Broken(error.to_string()))?;
        self.do_chores();
        // Names of files made by chores are durable by now in any real shutdown.
        self.disk.clear_faults();
        self.engine = None;
        Ok(snapshot)
    }
}
