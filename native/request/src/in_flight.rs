//! One request's slot as its observer uses it (P5): a few stores while it runs, one more step around its terminal
//! record.
//!
//! A slot belongs to the process that opened it. A forked child holds copies of its parent's requests. For the child
//! they are dead, and after the queue is closed they are dead for every process, since the close has ended them.
//! Another process or the close emits the terminal record of such a request, so it emits none itself.

use crate::added::Members;
use crate::fields;
use crate::ids::RequestIds;
use crate::outcome::Outcome;
use facts::{Answer, Begun, SlotFacts};
use queue::layout::{Reason, SampledOut};
use queue::producer::slots::TakenSlot;
use queue::producer::{Producer, Queue};
use queue::system::{now_monotonic_nano, now_unix_nano};
use ring::slots::{self, Progress, Slot};
use std::fmt;
use std::mem::ManuallyDrop;

pub mod facts;
pub mod terminal;

/// A request in flight. If it is dropped without an end, it leaves no record.
pub struct InFlight(TakenSlot);

/// A request whose end its holder has to report. If it is dropped without a record, it leaves none.
pub struct Ending(TakenSlot);

/// Ends every request that is still in flight, since the queue is about to be closed. If a record finds no room, its
/// request keeps the slot for the listener that recovers the queue.
fn end_requests(queue: &Queue) {
    let (now, schemas) = (now_monotonic_nano(), fields::schemas());
    for slot in queue.file.slots().iter().filter(Slot::claim) {
        let is_ended = if slot.read_facts().is_probe {
            queue.file.header().count_sampled_out(SampledOut::Skipped);
            slot.free();
            true
        } else {
            let mut record = terminal::record(slot, Outcome::ServerShutdown, now, &schemas);
            record.time_unix_nano = now_unix_nano();
            slots::end_request(slot, queue.file.ring(), &record, |_| ())
        };
        if is_ended {
            slot.wipe();
            queue.count_freed();
        } else {
            slot.unclaim();
        }
    }
}

impl Ending {
    /// Ends the request with its terminal record at `now` (monotonic nanoseconds). Returns whether it was accepted.
    #[inline]
    pub fn record(self, producer: &Producer, now: u64, event: u16, severity: u8, payload: &[u8]) -> bool {
        let time_unix_nano = self.0.slot().unix_nano_at(now);
        // The slot is dropped last: it becomes free once the record is in the ring, or is refused and counted.
        match self.0.offer(event, severity, time_unix_nano, payload) {
            Ok(_) => true,
            // Another queue may have replaced this one meanwhile.
            Err(Reason::AlreadyShutdown | Reason::NoQueue) => producer.emit(event, severity, payload),
            Err(reason) => producer.refuse(reason, severity),
        }
    }
}

impl InFlight {
    /// Lets a producer end its requests in flight with a record when it is closed.
    pub fn end_with(producer: &Producer) {
        producer.before_close(end_requests);
    }

    /// Gives a request a slot; None: there is none. If all slots are taken, that is counted.
    #[inline]
    #[must_use]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub fn begin(producer: &Producer, begun: &Begun<'_>) -> Option<Self> {
        let taken = producer.take_slot()?;
        let slot = taken.slot();
        slot.write_facts(begun);
        slot.open();
        taken.count();
        Some(Self(taken))
    }

    /// The slot, as long as this process may change it.
    #[inline]
    #[must_use]
    pub fn slot(&self) -> Option<Slot<'static>> {
        self.0.live().copied()
    }

    /// Takes over the request's end; None: it is reported elsewhere.
    #[inline]
    #[must_use]
    pub fn end(self) -> Option<Ending> {
        let this = ManuallyDrop::new(self);
        // A slot that is lost with its file can be reported by this process only.
        let claimed = this.0.live().is_some_and(|slot| slot.claim() || this.0.is_lost());
        claimed.then(|| Ending(this.0))
    }

    /// Chunks have passed; `first_chunk` is the time of the first one.
    #[inline]
    pub fn chunks(&self, progress: Progress, first_chunk: u64, answer: Answer) {
        if let Some(slot) = self.0.live() {
            // Later chunks change nothing of this.
            if progress.last_chunk == first_chunk || answer.unknown_size {
                slot.write_first_chunk(first_chunk);
                slot.write_answer(answer);
            }
            slot.progress(progress);
        }
    }

    /// A chunk has passed, behind the first one: all else is in the slot, but the size of a file.
    #[inline(always)]
    pub fn next_chunk(&self, progress: Progress) {
        if let Some(slot) = self.0.live() {
            slot.progress(progress);
        }
    }

    /// Bytes of the answer have passed at `now` that end no chunk.
    #[inline]
    pub(crate) fn bytes_out(&self, chunks: u64, bytes: u64, now: u64, answer: Answer) {
        if let Some(slot) = self.0.live() {
            slot.write_answer(answer);
            slot.bytes_pass(chunks, bytes, now);
        }
    }

    /// The answer has begun.
    #[inline]
    pub fn answer(&self, answer: Answer) {
        if let Some(slot) = self.0.live() {
            slot.write_answer(answer);
        }
    }

    /// Keeps what is known of the request's sender, as far as the slot has room.
    pub fn identify(&self, members: &Members) {
        if let Some(slot) = self.0.live() {
            slot.write_members(members);
        }
    }

    /// As [`Self::identify`], at the beginning of the request; whether the slot keeps them.
    #[inline]
    pub fn identify_few(&self, members: &[u8]) -> bool {
        let live = self.0.live();
        live.inspect(|slot| slot.write_few_members(members)).is_some()
    }

    /// Bytes of the request's body have arrived, `total` in all. A JSON body keeps its ends, up to the limits.
    #[inline]
    pub fn bytes_in(&self, total: u64, bytes: &[u8], (head_limit, tail_limit): (usize, usize)) {
        if let Some(slot) = self.0.live() {
            slot.write_bytes_in(total);
            if head_limit > 0 && !bytes.is_empty() {
                slot.write_body(bytes, head_limit, tail_limit);
            }
        }
    }

    /// Writes the ids, if they have changed, and the route.
    #[inline]
    pub fn settle(&self, ids: &mut RequestIds, route_prefix: &str, route: &str) {
        if let Some(slot) = self.0.live() {
            if ids.take_changed() {
                slot.write_ids(ids);
            }
            if !route.is_empty() || !route_prefix.is_empty() {
                slot.write_route(route_prefix, route);
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0.live().is_some_and(Slot::claim) {
            give_back(self.0);
        }
    }
}

/// Wipes a slot that is now free. It cannot be wiped earlier: if the process dies in between, it must leave a whole
/// request.
#[inline(never)]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
fn give_back(taken: TakenSlot) {
    taken.slot().free();
    taken.slot().wipe();
    taken.give_back();
}

impl Drop for Ending {
    #[inline]
    fn drop(&mut self) {
        give_back(self.0);
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InFlight").field(&self.0.index()).finish()
    }
}
