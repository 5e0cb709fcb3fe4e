//! Replaces a queue that is missing or takes nothing any more: after a fork, or after its file was cut short or its
//! directory removed.
//!
//! The old queue is closed, so that the listener that has it mapped drains it and is done with it. Later records go
//! into the new queue, under a new boot id, where other processes can find it.

use super::replaced::Replaced;
use super::{Producer, Queue};
use crate::event::EventSchema;
use crate::layout::Reason;
use crate::sigbus;
use crate::system::now_monotonic_nano;
use std::io;
use std::sync::atomic::{Ordering, fence};

/// How long a thread waits for another one that is replacing the queue: as long as it would need itself.
const RENEWAL_PATIENCE_NANO: u64 = 100_000_000;
/// The least time between two new queues, and between two checks of a full one.
const RENEWAL_PAUSE_NANO: u64 = 250_000_000;

impl Queue {
    /// Whether a full queue's file has no name any more, so that perhaps no listener drains it. Checks only from time
    /// to time, since a request waits for the answer.
    #[cold]
    pub(super) fn is_gone(&self, now_unix_nano: u64) -> bool {
        let before = self.looked_unix_nano.load(Ordering::Relaxed);
        if now_unix_nano.abs_diff(before) < RENEWAL_PAUSE_NANO {
            return false;
        }
        self.looked_unix_nano.store(now_unix_nano, Ordering::Relaxed);
        self.file.has_vanished()
    }

    fn is_useless(&self) -> bool {
        self.file.is_lost() || self.file.ring().is_closed() || self.file.has_vanished()
    }

    /// Leaves the queue: another one has taken its place.
    fn leave(&self) {
        self.file.ring().close();
        if self.file.is_lost() {
            // No other process can open it any more, and its owner is known to be alive.
            self.file.remove_name();
        }
    }
}

impl Producer {
    /// Offers a record again where no queue takes it: after a fork, after the queue was lost, after the close.
    #[cold]
    pub(super) fn offer_anew(
        &self,
        event: u16,
        severity: u8,
        now: u64,
        payload: &[u8],
    ) -> Result<(&Queue, u32), Reason> {
        if self.queue().is_some_and(Queue::is_useless) {
            self.renew();
        }
        let queue = self.queue_after_fork().ok_or(Reason::NoQueue)?;
        let offered = queue.offer(event, severity, now, payload, |_| ()).map(|sequence| (queue, sequence));
        offered.map_err(|reason| match reason {
            Reason::AlreadyShutdown if !self.closed.load(Ordering::Acquire) => Reason::NoQueue,
            reason => reason,
        })
    }

    /// Takes a new queue, and replaces `old` if there is one.
    pub(super) fn reopen(&self, old: Option<&'static Queue>) {
        let schemas = self.schemas.with(|schemas| schemas.clone());
        let queue = match Queue::create(&self.settings, &schemas) {
            Ok(queue) => queue,
            Err(error) => return self.await_room(&error),
        };
        self.wants_queue.store(false, Ordering::Release);
        // The name is the parent's, not the forked child's.
        if let (Some(name), Some(_)) = (self.name.get(), old) {
            queue.file.header().set_producer_name(name);
        }
        if old.is_some() {
            // Before the new queue is visible: every process that sees it finds it counted.
            self.renewals.fetch_add(1, Ordering::Relaxed);
        }
        self.queue.store(Box::into_raw(Box::new(queue)), Ordering::Release);
        // Pairs with the fence in `close`: either this thread sees the close below, or the closing thread sees this queue.
        fence(Ordering::SeqCst);
        self.schemas.with(|now| self.append_schemas(&now[schemas.len()..]));
        self.room.clear();
        self.count_refused();
        if self.closed.load(Ordering::SeqCst) {
            // The producer was closed meanwhile, and perhaps only the queue before this one.
            self.close();
        }
        // Before another listener follows the old queue's: that one would leave an open queue alone.
        if let Some(old) = old {
            old.leave();
            self.replaced.with(|replaced| {
                replaced.retain(|before| !before.is_done());
                replaced.push(Replaced::new(old));
            });
        }
        if let Some(run) = self.after_reopen.get() {
            run();
        }
    }

    /// Adds the schemas that were registered while the queue was made.
    fn append_schemas(&self, schemas: &[EventSchema]) {
        for schema in schemas {
            // A schema without room stays unknown to the reader, which counts its records.
            let _ = self.queue().map(|queue| queue.file.append_schema(&schema.to_bytes()));
        }
    }

    /// Takes a new queue if this process's own was cut short, was closed by a process that noticed that, or has
    /// vanished with its directory, or if pages that the directory's processes share are lost. Call it from time to
    /// time; a request that meets a lost queue calls it too. Returns whether there is anything to look after later.
    pub fn look_after_queue(&self) -> bool {
        if self.queue().is_some_and(|queue| self.is_useless(queue)) {
            self.renew();
        }
        !self.closed.load(Ordering::SeqCst)
    }

    /// How often a queue of this process was replaced since it began.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Relaxed)
    }

    /// Whether no listener of the queue directory finds the process's records: the directory was removed or moved, and
    /// there is no new queue yet.
    #[must_use]
    pub fn is_lost_sight_of(&self) -> bool {
        self.queue().is_some_and(|queue| !queue.file.ring().is_closed() && queue.file.has_vanished())
    }

    fn is_useless(&self, queue: &Queue) -> bool {
        queue.is_useless() || sigbus::lost_pages(&self.settings.directory) != queue.lost_pages
    }

    /// Whether the queue is being replaced right now.
    #[must_use]
    pub fn is_renewing(&self) -> bool {
        self.renewing.load(Ordering::SeqCst)
    }

    fn await_renewal(&self) {
        let end = now_monotonic_nano() + RENEWAL_PATIENCE_NANO;
        while self.is_renewing() && now_monotonic_nano() < end {
            std::thread::yield_now();
        }
    }

    /// Counts, in the queue that exists now, the records that were refused while there was none.
    fn count_refused(&self) {
        let Some(queue) = self.queue() else { return };
        self.without_queue.move_to(&queue.file.header().dropped);
    }

    /// No queue could be made: the process goes on without one until the next try.
    fn await_room(&self, error: &io::Error) {
        let pause = self.room.fail(error, &self.settings.directory);
        self.room.count_in_page(&self.settings.directory, &self.without_queue);
        self.next_renewal_nano.store(now_monotonic_nano().saturating_add(pause), Ordering::Relaxed);
    }

    /// Replaces the queue; one thread at a time, and after a failure only after a pause.
    pub(super) fn renew(&self) {
        // SeqCst: either this thread sees the close, or the closing thread sees this one.
        if self.renewing.swap(true, Ordering::SeqCst) {
            return self.await_renewal();
        }
        let now = now_monotonic_nano();
        if now >= self.next_renewal_nano.load(Ordering::Relaxed) && !self.closed.load(Ordering::SeqCst) {
            self.next_renewal_nano.store(now + RENEWAL_PAUSE_NANO, Ordering::Relaxed);
            match self.queue() {
                // Another thread may just have replaced or made it.
                Some(old) if self.is_useless(old) => self.reopen(Some(old)),
                None if self.wants_queue.load(Ordering::Acquire) => self.reopen(None),
                _ => (),
            }
        }
        self.renewing.store(false, Ordering::SeqCst);
    }
}
