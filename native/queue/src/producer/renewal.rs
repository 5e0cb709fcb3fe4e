//! Another queue in the place of one that is not there or takes nothing any more: after a fork, after its file was cut
//! short or its directory removed.
//!
//! The old queue is closed, so that whoever has it mapped drains it and is done with it; what comes from then on goes
//! into the new one, under a new boot id, where others can find it.

use super::replaced::Replaced;
use super::{Producer, Queue};
use crate::event::EventSchema;
use crate::layout::Reason;
use crate::sigbus;
use crate::system::now_monotonic_nano;
use std::sync::atomic::Ordering;

/// How long a thread waits for another one that is replacing the queue: as long as it would take itself.
const RENEWAL_PATIENCE_NANO: u64 = 100_000_000;
/// How long a process that could not replace its queue waits for the next try, and between two looks at a full one.
const RENEWAL_PAUSE_NANO: u64 = 250_000_000;

impl Queue {
    /// Whether the file of a queue that is full has no name any more, so that perhaps nobody drains it: looks only from
    /// time to time, since this is on the way of a request.
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

    /// Another queue has taken this one's place.
    fn leave(&self) {
        self.file.ring().close();
        if self.file.is_lost() {
            // Nobody can open it any more, and its owner is known to be alive.
            self.file.remove_name();
        }
    }
}

impl Producer {
    /// Goes on where there is no queue that takes it: after a fork, after the queue was lost, after the close.
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

    /// Takes a new queue, in the place of `old` if there is one.
    pub(super) fn reopen(&self, old: Option<&'static Queue>) {
        let schemas = self.schemas.with(|schemas| schemas.clone());
        let Ok(queue) = Queue::create(&self.settings, &schemas) else { return };
        // A forked child is not who its parent is.
        if let (Some(name), Some(_)) = (self.name.get(), old) {
            queue.file.header().set_producer_name(name);
        }
        if old.is_some() {
            // Before the queue is there: who sees the new one finds it counted.
            self.renewals.fetch_add(1, Ordering::Relaxed);
        }
        self.queue.store(Box::into_raw(Box::new(queue)), Ordering::Release);
        self.schemas.with(|now| self.append_schemas(&now[schemas.len()..]));
        self.count_refused();
        if self.closed.load(Ordering::SeqCst) {
            // Closed meanwhile, and perhaps only the queue before this one.
            self.close();
        }
        // Before another listener follows that of the old one, which would take an open queue for one to leave alone.
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

    /// Adds what was registered while the queue was made.
    fn append_schemas(&self, schemas: &[EventSchema]) {
        for schema in schemas {
            // One that has no room is unknown to the reader, which counts its records.
            let _ = self.queue().map(|queue| queue.file.append_schema(&schema.to_bytes()));
        }
    }

    /// Takes a new queue if this process's own is cut short, closed by whoever saw that, or has vanished with its
    /// directory, or if pages that the directory's processes share are gone. Call it now and then; a request that meets a
    /// lost queue calls it too. Returns whether there is anything to look after later on.
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

    /// Whether the process's records go where no listener of the queue directory finds them: the directory was removed
    /// or moved, and there is no new queue yet.
    #[must_use]
    pub fn is_lost_sight_of(&self) -> bool {
        self.queue().is_some_and(|queue| !queue.file.ring().is_closed() && queue.file.has_vanished())
    }

    fn is_useless(&self, queue: &Queue) -> bool {
        queue.is_useless() || sigbus::lost_pages(&self.settings.directory) != queue.lost_pages
    }

    /// Whether the queue is just being replaced.
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

    /// Counts in the queue that is there now what was refused while there was none.
    fn count_refused(&self) {
        let Some(queue) = self.queue() else { return };
        for (counted, sum) in self.without_queue.0.iter().flatten().zip(queue.file.header().dropped.0.iter().flatten())
        {
            sum.fetch_add(counted.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Replaces the queue; one thread at a time, and after a failure not at once again.
    fn renew(&self) {
        // SeqCst: either this thread sees the close, or who closes sees this thread.
        if self.renewing.swap(true, Ordering::SeqCst) {
            return self.await_renewal();
        }
        let now = now_monotonic_nano();
        if now >= self.next_renewal_nano.load(Ordering::Relaxed)
            && !self.closed.load(Ordering::SeqCst)
            // Another thread may just have replaced it.
            && let Some(old) = self.queue().filter(|queue| self.is_useless(queue))
        {
            self.next_renewal_nano.store(now + RENEWAL_PAUSE_NANO, Ordering::Relaxed);
            self.reopen(Some(old));
        }
        self.renewing.store(false, Ordering::SeqCst);
    }
}
