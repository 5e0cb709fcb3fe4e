//! Replaces a queue that is missing or takes nothing any more: after a fork, or after its file was cut short or its
//! directory removed.
//!
//! The old queue is closed, so that the listener that has it mapped drains it and is done with it. Later records go
//! into the new queue, under a new boot id, where other processes can find it.

use super::replaced::Replaced;
use super::{Producer, Queue, QueueSettings};
use crate::control::Control;
use crate::event::EventSchema;
use crate::layout::{Dropped, MIN_DATA_BYTES, Reason, RefusedWithoutQueue};
use crate::lock::ForkSafe;
use crate::queue_file::QueueSizes;
use crate::sigbus;
use crate::system::{file_system_bytes, now_monotonic_nano, say};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};

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

    /// Counts a record that was refused before it reached the queue. Returns false, for the caller to pass on.
    #[cold]
    pub fn refuse(&self, reason: Reason, severity: u8) -> bool {
        // A queue that was closed for this process has final counts, or is about to have them.
        let takes = |queue: &&Queue| !queue.file.ring().is_closed() || self.closed.load(Ordering::Acquire);
        match (self.queue().filter(takes), self.room.refusals()) {
            (Some(queue), _) => queue.file.header().dropped.add(reason, severity, 1),
            (None, Some(page)) => page.add(severity),
            (None, None) => self.without_queue.add(reason, severity, 1),
        }
        false
    }

    /// Why this process has no queue, if none could be made: its records are refused and counted.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.room.error()
    }
}

// A queue that does not fit. A smaller one is taken where that helps. A process without any queue says so at once,
// counts what it refuses where the books see it, and tries again after a growing pause.

/// How long a process that could not make its queue waits for the next try: at first, and at most.
const FIRST_PAUSE_NANO: u64 = 250_000_000;
const LONGEST_PAUSE_NANO: u64 = 32_000_000_000;
/// The file system whose size a container limits, to 64 MiB by default.
const SHARED_MEMORY: &str = "/dev/shm";
/// What a smaller queue leaves free. A listener that starts needs a queue of its own: without room for that nobody
/// would write what is in the queues, and so make room.
const LISTENERS_BYTES: u64 = 512 << 10;
/// The fewest slots of a smaller queue.
const FEWEST_SLOTS: u32 = 16;

/// What is known of a process that could not make its queue.
pub(super) struct Room {
    /// Tries that failed since the last queue was made.
    failures: AtomicU32,
    /// Why the last one did.
    error: ForkSafe<String>,
    /// Where refusals are counted meanwhile: words of the control page. Null: nowhere yet.
    refusals: AtomicPtr<RefusedWithoutQueue>,
}

impl Room {
    pub(super) const fn new() -> Self {
        Self {
            failures: AtomicU32::new(0),
            error: ForkSafe::new(String::new()),
            refusals: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// A queue was made, or the process has just been forked.
    pub(super) fn clear(&self) {
        self.refusals.store(std::ptr::null_mut(), Ordering::Release);
        if self.failures.swap(0, Ordering::AcqRel) > 0 {
            self.error.with(String::clear);
        }
    }

    /// A queue could not be made: says so, unless that was said. Returns the pause before the next try.
    #[cold]
    pub(super) fn fail(&self, error: &io::Error, directory: &Path) -> u64 {
        let failures = self.failures.fetch_add(1, Ordering::AcqRel);
        let text = format!("no queue can be made in {}: {error}", directory.display());
        if failures == 0 {
            say(&format!("{text}; until one can, records that find no queue are refused and counted"));
        }
        self.error.with(|known| *known = text);
        (FIRST_PAUSE_NANO << failures.min(16)).min(LONGEST_PAUSE_NANO)
    }

    /// Counts refusals in the directory's control page from now on, and moves those there that were `counted` before.
    pub(super) fn count_in_page(&self, directory: &Path, counted: &Dropped) {
        // Without room even for the page, they stay in this process until a queue or a page can be made.
        if let Ok(control) = Control::open(directory) {
            let refusals = &control.page().without_queue;
            refusals.take_from(counted);
            self.refusals.store(std::ptr::from_ref(refusals).cast_mut(), Ordering::Release);
        }
    }

    /// Why there is no queue; None: there is one, or nothing has needed it yet.
    pub(super) fn error(&self) -> Option<String> {
        (self.failures.load(Ordering::Acquire) > 0).then(|| self.error.with(|error| error.clone()))
    }

    /// Where refusals are counted while there is no queue.
    pub(super) fn refusals(&self) -> Option<&'static RefusedWithoutQueue> {
        // SAFETY: null, or words of a control page, which is never unmapped.
        unsafe { self.refusals.load(Ordering::Acquire).as_ref() }
    }
}

/// Makes the queue, or the largest smaller one that there is room for, which is said.
///
/// # Errors
/// `make` fails for another reason than the room, or with the smallest queue.
pub(super) fn make_largest<T>(
    settings: &QueueSettings,
    make: impl Fn(QueueSizes) -> io::Result<T>,
) -> io::Result<(T, QueueSizes)> {
    let QueueSettings { directory, queue_bytes, in_flight_slots, .. } = settings;
    let least = MIN_DATA_BYTES.max((u64::from(settings.max_record_bytes) * 4).next_power_of_two());
    let wanted = QueueSizes { data_bytes: *queue_bytes, slot_count: *in_flight_slots };
    let smaller = |sizes: &QueueSizes| {
        (sizes.data_bytes / 2 >= least).then(|| QueueSizes {
            data_bytes: sizes.data_bytes / 2,
            slot_count: (sizes.slot_count / 2).max(FEWEST_SLOTS.min(sizes.slot_count)),
        })
    };
    let (most, mut why) = most_bytes(directory);
    let (mut sizes, mut is_share) = (wanted, true);
    while sizes.file_bytes() > most
        && let Some(next) = smaller(&sizes)
    {
        sizes = next;
    }
    let make_beside_a_listener = |sizes: QueueSizes| {
        let free = file_system_bytes(directory).map_or(u64::MAX, |(_, free)| free);
        if sizes != wanted && sizes.file_bytes().saturating_add(LISTENERS_BYTES) > free {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        make(sizes)
    };
    let made = loop {
        match (make_beside_a_listener(sizes), smaller(&sizes)) {
            (Err(error), Some(next)) if is_full(&error) => {
                (sizes, why, is_share) = (next, format!("{error}"), false);
            }
            (made, _) => break made?,
        }
    };
    // The share is the same for all children of a process, which have inherited the word.
    static SHARE_IS_SAID: AtomicBool = AtomicBool::new(false);
    if sizes != wanted && !(is_share && SHARE_IS_SAID.swap(true, Ordering::Relaxed)) {
        let (directory, bytes) = (directory.display(), sizes.data_bytes);
        say(&format!("the queue of this process in {directory} has {bytes} bytes instead of {queue_bytes}: {why}"));
    }
    Ok((made, sizes))
}

/// The most bytes of a queue file in a directory, and the reason. Other programs of a container use its shared memory
/// too, and so do all processes of a server: a queue takes at most a tenth of it.
fn most_bytes(directory: &Path) -> (u64, String) {
    let total = directory.starts_with(SHARED_MEMORY).then(|| file_system_bytes(Path::new(SHARED_MEMORY)));
    match total.flatten() {
        Some((total, _)) => (total / 10, format!("a tenth of {SHARED_MEMORY}, which has {total} bytes")),
        None => (u64::MAX, String::new()),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
