//! The slots of this process's queue: taken for requests in flight, and given back. The content of a slot is the
//! business of its user.
//!
//! A slot belongs to the process that took it. A forked child holds copies of the slots that its parent has taken: the
//! child cannot use them, and no process can once the queue is about to be closed.

use super::{Producer, Queue};
use crate::layout::Reason;
use ring::slots::Slot;
use std::sync::atomic::Ordering;

/// A slot that this process has taken. Copies stand for the same slot; one of them gives it back.
#[derive(Clone, Copy)]
pub struct TakenSlot {
    queue: &'static Queue,
    slot: Slot<'static>,
    index: u32,
}

impl Producer {
    /// Takes a slot; None if there is none. If all are taken, that is counted. The caller opens it, then calls
    /// [`TakenSlot::count`].
    #[inline]
    #[must_use]
    pub fn take_slot(&self) -> Option<TakenSlot> {
        let queue = match self.queue() {
            Some(queue) => queue,
            None => self.queue_after_fork()?,
        };
        queue.take_slot()
    }
}

impl Queue {
    #[inline]
    fn take_slot(&'static self) -> Option<TakenSlot> {
        if !self.keeps_slots.load(Ordering::Relaxed) {
            return None;
        }
        let Some(index) = self.free_slots.take() else {
            self.file.header().in_flight_missed.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let slot = self.file.slots().get(index as usize)?;
        Some(TakenSlot { queue: self, slot, index })
    }

    /// Takes back every slot, and lets `run` end the requests in flight.
    pub(super) fn before_close(&self, run: impl Fn(&Self)) {
        if self.keeps_slots.swap(false, Ordering::Relaxed) {
            run(self);
        }
    }

    /// Notes that a slot is free again.
    #[inline]
    pub fn count_freed(&self) {
        self.file.header().in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TakenSlot {
    /// The slot, as long as this process may change it.
    #[inline]
    #[must_use]
    pub fn live(&self) -> Option<&Slot<'static>> {
        self.queue.keeps_slots.load(Ordering::Relaxed).then_some(&self.slot)
    }

    /// The slot, whether or not this process may change it.
    #[inline]
    #[must_use]
    pub fn slot(&self) -> Slot<'static> {
        self.slot
    }

    /// Its number in the queue.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether the slot is lost with the queue's file.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.queue.file.is_lost()
    }

    /// Notes that a request is in flight in it.
    #[inline]
    pub fn count(&self) {
        self.queue.file.header().in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives it back: it is free, and its texts are wiped.
    #[inline]
    pub fn give_back(self) {
        self.queue.count_freed();
        self.queue.free_slots.give_back(self.index);
    }

    /// Puts a record into the slot's queue, and its sequence into the slot before it can be seen.
    ///
    /// # Errors
    /// The reason for the refusal, which is not counted yet.
    #[inline]
    pub fn offer(&self, event: u16, severity: u8, time_unix_nano: u64, payload: &[u8]) -> Result<u32, Reason> {
        self.queue.offer(event, severity, time_unix_nano, payload, |sequence| self.slot.end_with(sequence))
    }
}
