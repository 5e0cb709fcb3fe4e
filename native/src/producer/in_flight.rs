//! One request's slot as its observer uses it (P5): a few stores while it runs, one more step around its terminal record.
//!
//! A slot belongs to the process that opened it. A forked child holds copies of its parent's requests: for it they are
//! dead, as they are for everybody once the queue is closed, which has ended them all. Such a request has its terminal
//! record from somebody else, so it emits none.

use super::{Producer, Queue};
use crate::event::{REQUEST, REQUEST_FIELDS};
use crate::flight::facts::{Answer, Begun};
use crate::flight::{self, Progress, Slot, terminal};
use crate::ids::RequestIds;
use crate::layout::{Reason, SampledOut};
use crate::outcome::Outcome;
use crate::system::{now_monotonic_nano, now_unix_nano};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;

/// A request in flight. Dropped without an end, it leaves no record.
pub struct InFlight(Place);

/// A request whose end is the holder's to tell. Dropped without a record, it leaves none.
pub struct Ending(Place);

#[derive(Clone, Copy)]
struct Place {
    queue: &'static Queue,
    slot: Slot<'static>,
    index: u32,
}

impl Producer {
    /// Gives a request a slot; None where there is none, which is counted if all are taken.
    #[inline]
    #[must_use]
    pub fn begin_request(&self, begun: &Begun<'_>) -> Option<InFlight> {
        let queue = match self.queue() {
            Some(queue) => queue,
            None => self.queue_after_fork()?,
        };
        // SAFETY: published queues are never freed.
        let queue: &'static Queue = unsafe { &*std::ptr::from_ref(queue) };
        queue.begin_request(begun)
    }

    /// Ends a request with its terminal record. Returns whether it was accepted.
    #[inline]
    pub fn end_request(&self, ending: Ending, severity: u8, payload: &[u8]) -> bool {
        let Place { queue, slot, .. } = ending.0;
        // Dropped last: the slot is free once the record is in the ring, or refused and counted.
        match queue.offer(REQUEST, severity, now_unix_nano(), payload, |sequence| slot.end_with(sequence)) {
            Ok(_) => true,
            // Another queue may have taken its place meanwhile.
            Err(Reason::AlreadyShutdown | Reason::NoQueue) => self.emit(REQUEST, severity, payload),
            Err(reason) => self.refuse(reason, severity),
        }
    }
}

impl Queue {
    #[inline]
    fn begin_request(&'static self, begun: &Begun<'_>) -> Option<InFlight> {
        if !self.keeps_slots.load(Ordering::Relaxed) {
            return None;
        }
        let Some(index) = self.free_slots.take() else {
            self.file.header().in_flight_missed.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let slot = self.file.slots().get(index as usize)?;
        slot.write_facts(begun);
        slot.open();
        Some(InFlight(Place { queue: self, slot, index }))
    }

    /// Ends every request that is still in flight: the queue is about to be closed. One whose record finds no room keeps
    /// its slot, for whoever recovers the queue.
    pub(super) fn end_requests(&self) {
        if !self.keeps_slots.swap(false, Ordering::Relaxed) {
            return;
        }
        let now = now_monotonic_nano();
        for slot in self.file.slots().iter().filter(Slot::claim) {
            if slot.read_facts().is_probe {
                self.file.header().count_sampled_out(SampledOut::Skipped);
                slot.free();
                continue;
            }
            let mut record = terminal::record(slot, Outcome::ServerShutdown, now, &REQUEST_FIELDS);
            record.time_unix_nano = now_unix_nano();
            if !flight::end_request(slot, self.file.ring(), &record, |_| ()) {
                slot.unclaim();
            }
        }
    }
}

impl InFlight {
    /// The slot, as long as it is this process's to change.
    #[inline]
    fn live(&self) -> Option<&Slot<'static>> {
        self.0.queue.keeps_slots.load(Ordering::Relaxed).then_some(&self.0.slot)
    }

    /// Takes the request's end; None if somebody else tells it.
    #[inline]
    #[must_use]
    pub fn end(self) -> Option<Ending> {
        let this = ManuallyDrop::new(self);
        // Of a slot that is lost with its file nobody else can tell.
        let claimed = this.live().is_some_and(|slot| slot.claim() || this.0.queue.file.is_lost());
        claimed.then(|| Ending(this.0))
    }

    /// A chunk has passed.
    #[inline]
    pub fn chunk(&self, progress: Progress, answer: Answer) {
        if let Some(slot) = self.live() {
            if progress.chunks == 1 {
                slot.write_first_chunk(progress.last_chunk);
            }
            slot.write_answer(answer);
            slot.progress(progress);
        }
    }

    /// The answer has begun.
    #[inline]
    pub fn answer(&self, answer: Answer) {
        if let Some(slot) = self.live() {
            slot.write_answer(answer);
        }
    }

    /// Bytes of the request's body have come, `total` with these; of a JSON body the ends are kept, up to the limits.
    #[inline]
    pub fn bytes_in(&self, total: u64, bytes: &[u8], (head_limit, tail_limit): (usize, usize)) {
        if let Some(slot) = self.live() {
            slot.write_bytes_in(total);
            if head_limit > 0 && !bytes.is_empty() {
                slot.write_body(bytes, head_limit, tail_limit);
            }
        }
    }

    /// The ids as they are now, and the route that was taken.
    #[inline]
    pub fn settle(&self, ids: &RequestIds, route_prefix: &str, route: &str) {
        if let Some(slot) = self.live() {
            slot.write_ids(ids);
            if !route.is_empty() {
                slot.write_route(route_prefix, route);
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.live().is_some_and(Slot::claim) {
            self.0.give_back();
        }
    }
}

impl Place {
    #[inline]
    fn give_back(&self) {
        self.slot.free();
        self.queue.free_slots.give_back(self.index);
    }
}

impl Drop for Ending {
    #[inline]
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").field(&self.0.index).finish()
    }
}
