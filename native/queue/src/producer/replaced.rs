//! Queues that were replaced, until nothing waits in them.
//!
//! A listener that has one mapped reads it to its end. If no listener has, because the directory was gone before it
//! looked or because it died, the producer gives the rest a name again.

use super::{Producer, Queue};
use crate::claim::{Claim, ReaderId};
use crate::control::Control;
use crate::event::INFO;
use crate::layout::Reason;
use crate::published::totals;
use crate::queue_file::QueueFile;
use crate::system::now_monotonic_nano;
use std::sync::Arc;
use std::time::Duration;

/// A replaced queue.
pub(super) struct Replaced {
    queue: &'static Queue,
    /// The queue's file, or the last copy of it.
    file: Arc<QueueFile>,
}

impl Replaced {
    pub(super) fn new(queue: &'static Queue) -> Self {
        Self { queue, file: Arc::clone(&queue.file) }
    }

    pub(super) fn before_close(&self, run: impl Fn(&Queue)) {
        self.queue.before_close(run);
    }

    fn is_written(&self) -> bool {
        self.file.ring().is_drained() || self.file.is_lost()
    }

    /// Whether no process needs it any more; then its memory goes back to the system.
    pub(super) fn is_done(&self) -> bool {
        let is_done = self.is_written() && self.file.is_end_reported() && self.queue.file.slots().taken() == 0;
        if is_done && !self.queue.file.is_lost() {
            self.queue.file.disown(true);
            self.queue.unlock();
        }
        is_done
    }

    /// Makes sure that listeners find what is left; returns whether they do, or nothing is left.
    fn save(&mut self) -> bool {
        if self.is_written() && self.file.is_end_reported() || self.file.is_lost() || !self.file.has_vanished() {
            return true;
        }
        let now = Duration::from_nanos(now_monotonic_nano());
        let Some(_claim) = Claim::take(&self.file, ReaderId::OWNER, now) else { return false };
        let copied = self.file.copy_to_name();
        if let Ok(copy) = copied {
            self.file = copy;
            return true;
        }
        false
    }
}

impl Producer {
    /// Makes sure that no record waits where listeners cannot find it; for a process whose listener is elsewhere.
    /// Returns whether that is so.
    #[must_use]
    pub fn save_replaced(&self) -> bool {
        self.replaced.with(|replaced| {
            replaced.retain(|one| !one.is_done());
            // Each is tried, whatever the others returned.
            replaced.iter_mut().filter_map(|one| (!one.save()).then_some(())).count() == 0
        })
    }

    /// As `save_replaced`, once the producer is closed: the last queue can have lost its name too. Returns whether all is
    /// written.
    #[must_use]
    pub fn save_all(&self) -> bool {
        let Some(last) = self.queue() else { return true };
        let is_known = |replaced: &Vec<Replaced>| replaced.iter().any(|one| std::ptr::eq(one.queue, last));
        if !last.file.ring().is_drained() && last.file.has_vanished() {
            self.replaced.with(|replaced| {
                if !is_known(replaced) {
                    replaced.push(Replaced::new(last));
                }
            });
        }
        let is_drained = last.file.ring().is_drained() || self.replaced.with(|replaced| is_known(replaced));
        self.save_replaced() && is_drained && self.is_replaced_written()
    }

    /// Whether every record that was accepted before the queue was replaced is written.
    #[must_use]
    pub fn is_replaced_written(&self) -> bool {
        self.replaced.with(|replaced| replaced.iter().all(Replaced::is_written))
    }

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

// The end of a process's queues: what listeners have written goes back to the system, and what is left is counted.

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
