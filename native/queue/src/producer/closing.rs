//! The end of a process's queues: what listeners have written goes back to the system, and what is left is counted.

use super::{Producer, Queue};
use crate::control::Control;
use crate::layout::Reason;
use crate::published::totals;
use crate::severity::INFO;
use crate::system::now_monotonic_nano;
use std::time::Duration;

/// Checks every millisecond, and keeps asking the listener for a flush, until `reached` or the deadline.
pub fn poll(control: Control, deadline: Duration, reached: impl Fn() -> bool) -> bool {
    let end = now_monotonic_nano().saturating_add(deadline.as_nanos() as u64);
    while !reached() {
        if now_monotonic_nano() >= end {
            return false;
        }
        control.request_flush();
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

impl Producer {
    /// Waits until everything accepted before this call is written, at most `deadline`. Returns whether it is; false in
    /// a process without room for a queue, which accepts nothing.
    #[must_use]
    pub fn flush(&self, deadline: Duration) -> bool {
        let Some(queue) = self.queue() else { return self.refusal().is_none() };
        let ring = queue.file.ring();
        let wanted = ring.head().sequence;
        let is_lost_written = || self.is_replaced_written();
        let reached = || wanted.wrapping_sub(ring.tail().sequence).cast_signed() <= 0 && is_lost_written();
        poll(queue.control, deadline, reached)
    }

    /// Closes the producer. If its queue is being replaced, this waits for the next one, which has a listener too.
    pub fn last_queue(&self, deadline: Duration) -> Option<&Queue> {
        self.close();
        let queue = self.queue()?;
        poll(queue.control, deadline, || !self.is_renewing());
        self.queue()
    }
}

impl Queue {
    /// Counts the records that stay behind, unless another process's listener is writing them.
    pub fn count_left(&self) {
        let counts = self.file.counts();
        let counted: u64 = counts.dropped[Reason::ShutdownDeadline as usize].iter().sum();
        self.file.header().dropped.add(Reason::ShutdownDeadline, INFO, counts.in_queue.saturating_sub(counted));
    }

    /// Ends the ownership of a closed queue, of which everything is written if it is `drained`.
    pub fn finish(&self, drained: bool) {
        if !drained {
            self.count_left();
        } else if self.file.are_drops_reported()
            && self.file.slots().taken() == 0
            && self.file.is_end_reported()
            && totals::add_ended(&self.control.page().totals, &self.file)
        {
            // Usually the leader has removed it. Not if the leader ended between the last write and this process's end.
            self.file.remove_name();
        }
        let is_done = drained && self.file.has_vanished();
        self.file.disown(is_done);
        if is_done {
            self.unlock();
        }
    }
}
