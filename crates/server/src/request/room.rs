//! Memory for request bodies, within `bodies_bytes_max`.
//!
//! A body reserves memory as its bytes arrive, and as it is decoded, never by what its client announces. A body that is still
//! arriving after [`SLOW_AFTER`] is slow. A request that finds no memory cuts slow bodies, the oldest first, so slow clients
//! never keep fast ones waiting. Submits that wait for room in a full queue hold at most a quarter of the memory.

use crate::response::ProblemResponse;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use towline_api::Code;

/// Memory is counted in units of this many bytes.
const UNIT: usize = 1024;
/// The start of each body is not counted, because the buffer of its connection has this size anyway. As much of what is decoded
/// is not counted either, so that small calls work while the server is busy.
pub(super) const FREE_BYTES: usize = 64 << 10;
/// A body that is still arriving after this time can be cut.
pub(crate) const SLOW_AFTER: Duration = Duration::from_secs(5);
/// How long a request waits until the bodies that it cut have released their memory.
const CUT_WAIT: Duration = Duration::from_secs(2);
/// The share of the memory that waiting submits may hold.
const WAITING_SHARE: usize = 4;

/// The memory that all bodies share.
pub(crate) struct BodyRoom {
    units: usize,
    free: Arc<Semaphore>,
    /// What is left of the share of waiting submits.
    waiting: Arc<Semaphore>,
    slow: Mutex<SlowBodies>,
}

/// Bodies that arrive slowly, by the order in which they became slow.
#[derive(Default)]
struct SlowBodies {
    last: u64,
    bodies: BTreeMap<u64, SlowBody>,
}

struct SlowBody {
    /// In units.
    held: Arc<AtomicUsize>,
    cut: oneshot::Sender<()>,
}

pub(crate) fn busy() -> ProblemResponse {
    ProblemResponse::new(Code::Busy, "too many large requests at the same time; try again shortly")
}

impl BodyRoom {
    pub(crate) fn new(bytes_max: usize) -> Arc<BodyRoom> {
        let units = bytes_max / UNIT;
        Arc::new(BodyRoom {
            units,
            free: Arc::new(Semaphore::new(units)),
            waiting: Arc::new(Semaphore::new(units / WAITING_SHARE)),
            slow: Mutex::default(),
        })
    }

    /// How many bytes are reserved, and how many there are.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let bytes = |units: usize| units.saturating_mul(UNIT) as u64;
        (bytes(self.units.saturating_sub(self.free.available_permits())), bytes(self.units))
    }

    fn slow(&self) -> MutexGuard<'_, SlowBodies> {
        self.slow.lock()
    }

    /// Cuts slow bodies until this many units are free, the oldest first. Cuts none if that would not free enough.
    fn cut_slow(&self, units: usize) -> bool {
        let mut slow = self.slow();
        let mut free = self.free.available_permits();
        let mut chosen = Vec::new();
        for (id, body) in &slow.bodies {
            if free >= units {
                break;
            }
            let held = body.held.load(Ordering::Relaxed);
            if held > 0 {
                free += held;
                chosen.push(*id);
            }
        }
        if free < units {
            return false;
        }
        for body in chosen.iter().filter_map(|id| slow.bodies.remove(id)) {
            // A body that has just arrived whole no longer listens.
            let _ = body.cut.send(());
        }
        true
    }

    async fn acquire(&self, units: usize) -> Result<OwnedSemaphorePermit, ProblemResponse> {
        let count = u32::try_from(units).unwrap_or(u32::MAX);
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_many_owned(count) {
            return Ok(permit);
        }
        if !self.cut_slow(units) {
            return Err(busy());
        }
        let acquired = tokio::time::timeout(CUT_WAIT, Arc::clone(&self.free).acquire_many_owned(count)).await;
        acquired.ok().and_then(Result::ok).ok_or_else(busy)
    }
}

/// Memory reserved for one body. Dropping it releases the memory.
pub(crate) struct BodyMemory {
    room: Arc<BodyRoom>,
    permit: Option<OwnedSemaphorePermit>,
    /// The size of `permit`, for a request that looks for bodies to cut.
    held: Arc<AtomicUsize>,
    /// Bytes of the decoded body, with those that are not counted otherwise.
    decoded: usize,
}

impl BodyMemory {
    pub(crate) fn new(room: &Arc<BodyRoom>) -> BodyMemory {
        BodyMemory { room: Arc::clone(room), permit: None, held: Arc::default(), decoded: 0 }
    }

    /// Reserves enough for what is in memory now: bytes as they were received, and bytes of what was decoded from them. Cuts slow
    /// bodies if there is no memory.
    pub(crate) async fn grow(&mut self, received: usize, decoded: usize) -> Result<(), ProblemResponse> {
        let more = self.units(received, decoded).saturating_sub(self.held());
        if more > 0 {
            let permit = self.room.acquire(more).await?;
            self.add(permit);
        }
        Ok(())
    }

    /// The same without waiting. Returns `false` if there is no memory.
    pub(crate) fn try_grow(&mut self, received: usize, decoded: usize) -> bool {
        let more = self.units(received, decoded).saturating_sub(self.held());
        if more == 0 {
            return true;
        }
        let count = u32::try_from(more).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.room.free).try_acquire_many_owned(count);
        permit.map(|permit| self.add(permit)).is_ok()
    }

    /// The same for received bytes, but waits for memory that other requests release.
    pub(crate) async fn grow_within(
        &mut self,
        time: Duration,
        received: usize,
    ) -> Result<(), ProblemResponse> {
        if self.grow(received, 0).await.is_ok() {
            return Ok(());
        }
        let more = self.units(received, 0).saturating_sub(self.held());
        let permit = Arc::clone(&self.room.free).acquire_many_owned(u32::try_from(more).unwrap_or(u32::MAX));
        let permit = tokio::time::timeout(time, permit).await.ok().and_then(Result::ok).ok_or_else(busy)?;
        self.add(permit);
        Ok(())
    }

    /// Holds enough for this many received bytes, and no more. Waits for memory as [`Self::grow_within`] does.
    pub(crate) async fn set_received(
        &mut self,
        time: Duration,
        received: usize,
    ) -> Result<(), ProblemResponse> {
        self.release_beyond(self.units(received, 0));
        self.grow_within(time, received).await
    }

    fn release_beyond(&mut self, units: usize) {
        let spare = self.held().saturating_sub(units);
        drop(self.permit.as_mut().and_then(|permit| permit.split(spare)));
        self.held.fetch_sub(spare, Ordering::Relaxed);
    }

    /// The body is decoded, and no longer in memory as it was received.
    pub(super) fn keep_decoded(&mut self, decoded: usize) {
        self.decoded = decoded;
        self.release_beyond(self.units(0, decoded));
    }

    fn units(&self, received: usize, decoded: usize) -> usize {
        let bytes = received.saturating_sub(FREE_BYTES).saturating_add(decoded.saturating_sub(FREE_BYTES));
        // A body that needs more than there is takes all of it.
        bytes.div_ceil(UNIT).min(self.room.units)
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn add(&mut self, permit: OwnedSemaphorePermit) {
        self.held.fetch_add(permit.num_permits(), Ordering::Relaxed);
        match &mut self.permit {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
    }

    /// The body arrives slowly from now on.
    pub(crate) fn slow(&self) -> Slow {
        let (cut, is_cut) = oneshot::channel();
        let mut slow = self.room.slow();
        slow.last += 1;
        let id = slow.last;
        slow.bodies.insert(id, SlowBody { held: Arc::clone(&self.held), cut });
        Slow { room: Arc::clone(&self.room), id, is_cut }
    }

    /// Counts the decoded body against the share of waiting submits until the permit is dropped. `None` if the share is used up.
    pub(crate) fn wait(&self) -> Option<OwnedSemaphorePermit> {
        let units = self.decoded.div_ceil(UNIT).clamp(1, (self.room.units / WAITING_SHARE).max(1));
        Arc::clone(&self.room.waiting).try_acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX)).ok()
    }
}

/// A body that arrives slowly. Dropped, it has arrived or failed, and cannot be cut.
pub(crate) struct Slow {
    room: Arc<BodyRoom>,
    id: u64,
    is_cut: oneshot::Receiver<()>,
}

impl Slow {
    /// Completes when another request needs the memory.
    pub(crate) async fn cut(&mut self) {
        // The sender is dropped only with its body.
        let _ = (&mut self.is_cut).await;
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.room.slow().bodies.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = 1 << 20;

    async fn holding(room: &Arc<BodyRoom>, bytes: usize) -> BodyMemory {
        let mut memory = BodyMemory::new(room);
        memory.grow(bytes + FREE_BYTES, 0).await.unwrap();
        memory
    }

    #[tokio::test]
    async fn a_request_that_finds_no_memory_cuts_slow_bodies_and_no_others() {
        let room = BodyRoom::new(ALL);
        let (fast, small) = (holding(&room, ALL / 4).await, BodyMemory::new(&room));
        let (first, second) = (holding(&room, ALL / 4).await, holding(&room, ALL / 2).await);
        assert!(!BodyMemory::new(&room).try_grow(FREE_BYTES + 1, 0));
        // Nothing is slow yet.
        assert!(BodyMemory::new(&room).grow(FREE_BYTES + 1, 0).await.is_err());
        let (mut small_slow, mut first_slow, mut second_slow) = (small.slow(), first.slow(), second.slow());
        // More than all slow bodies hold: none is cut in vain.
        assert!(BodyMemory::new(&room).grow(FREE_BYTES + ALL, 0).await.is_err());
        let cut = tokio::spawn(async move {
            first_slow.cut().await;
            drop(first);
        });
        drop(holding(&room, ALL / 4).await);
        cut.await.unwrap();
        for others in [&mut small_slow, &mut second_slow] {
            assert!(others.is_cut.try_recv().is_err());
        }
        // A body that has arrived is not slow any more.
        drop(second_slow);
        assert!(BodyMemory::new(&room).grow(FREE_BYTES + ALL / 2, 0).await.is_err());
        drop((fast, small, second));
        assert_eq!(room.free.available_permits(), room.units);
    }

    #[tokio::test]
    async fn a_decoded_body_counts_by_what_was_built() {
        let room = BodyRoom::new(ALL);
        let mut memory = holding(&room, ALL / 2).await;
        assert!(memory.try_grow(ALL / 2 + FREE_BYTES, ALL / 2 + FREE_BYTES));
        assert!(!BodyMemory::new(&room).try_grow(0, FREE_BYTES + 1));
        memory.keep_decoded(ALL / 4 + FREE_BYTES);
        assert_eq!(room.free.available_permits(), room.units / 4 * 3);
    }

    #[tokio::test]
    async fn waiting_submits_hold_a_share_only() {
        let room = BodyRoom::new(ALL);
        let mut memory = BodyMemory::new(&room);
        memory.keep_decoded(ALL / 8);
        let held = [memory.wait().unwrap(), memory.wait().unwrap()];
        assert!(memory.wait().is_none());
        drop(held);
        memory.keep_decoded(ALL);
        assert!(memory.wait().is_some(), "a large body waits alone");
    }
}
