//! A queue that does not fit. A smaller one is taken where that helps. A process without any queue says so at once,
//! counts what it refuses where the books see it, and tries again after a growing pause.

use super::{Producer, Queue, QueueSettings};
use crate::control::Control;
use crate::layout::{Dropped, MIN_DATA_BYTES, Reason, RefusedWithoutQueue};
use crate::lock::ForkSafe;
use crate::queue_file::QueueSizes;
use crate::system::{file_system_bytes, say};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

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

impl Producer {
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
