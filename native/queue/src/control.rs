//! The control page of a queue directory: how producers wake the listener, and what the listener publishes.
//!
//! A few pages in the file `control`, mapped by every process that uses the directory. Producers touch it only when a
//! fill threshold is crossed, and then make one futex call if the listener sleeps.

use crate::layout::RefusedWithoutQueue;
use crate::memory;
use crate::platform::{self, Scope};
use crate::published::housekeeping::HousekeepingWords;
use crate::published::sinks::{SINKS, SinkWords};
use crate::published::totals::TotalsWords;
use crate::shared_page::{self, FileId};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

const NAME: &str = "control";
const MAGIC: u64 = u64::from_le_bytes(*b"INFLOGC\0");
const VERSION: u32 = 5;
/// More than is used: later words need no larger size.
const BYTES: usize = 16_384;
/// Longest segment path that is published; with a longer one a killed listener's last batch can be written twice.
const MAX_PATH_BYTES: usize = 2048;
/// The slots of published writes: the primary sink's and its fallback's.
pub const PRIMARY_SLOT: usize = 0;
pub const FALLBACK_SLOT: usize = 1;
/// The same two, and behind each the slots of earlier parts of the same batch in other files, the newest first: 2 and 4,
/// 3 and 5.
pub const SLOTS_OLDEST_FIRST: [usize; 6] = [4, 2, PRIMARY_SLOT, 5, 3, FALLBACK_SLOT];
const SINKS_THAT_PUBLISH: usize = 2;
/// Why a proxy closes a connection without a request: it was silent for too long, or there were too many.
pub const CLOSED_BY_PROXY: [&str; 2] = ["header_timeout", "max_connections"];
const _: () = assert!(size_of::<ControlPage>() <= BYTES);

crate::shared! {
    /// Shared words; all of them may be read by any process.
    pub struct ControlPage {
        _magic: AtomicU64,
        _version: AtomicU32,
        /// Futex word: changes at every wake-up call.
        wake: AtomicU32,
        /// 1 while the listener waits, so that producers know whether a call is needed.
        sleeping: AtomicU32,
        /// Changes when a process wants everything in the queues written now, without waiting for the interval.
        flush_requests: AtomicU32,
        pub leader_pid: AtomicU32,
        /// How often a listener began to lead the directory (wraps).
        pub leaders: AtomicU32,
        /// Last time the listener went round, Unix nanoseconds.
        pub heartbeat_unix_nano: AtomicU64,
        pub records_written: AtomicU64,
        pub bytes_written: AtomicU64,
        pub batches_written: AtomicU64,
        pub sink_errors: AtomicU64,
        /// Times a listener's thread panicked and began anew.
        pub listener_restarts: AtomicU64,
        /// CPU time of all leading listeners so far, and of their sinks' threads.
        pub listener_cpu_nano: AtomicU64,
        /// Of the primary sink and of its fallback.
        write_places: [WritePlace; SINKS_THAT_PUBLISH],
        /// 1 while the fallback writes instead of the primary sink.
        pub fallback_active: AtomicU32,
        /// Every sink of the leader: the primary first, then its fallback, then the additional ones.
        pub sinks: [SinkWords; SINKS],
        pub totals: TotalsWords,
        /// As `heartbeat_unix_nano`, by the monotonic clock: all processes of a machine share it, and none can set it.
        pub heartbeat_monotonic_nano: AtomicU64,
        pub housekeeping: HousekeepingWords,
        /// Where the batch under way began, if its sink had to continue in another file; then the places before that
        /// one.
        earlier_places: [WritePlace; 2 * SINKS_THAT_PUBLISH],
        /// Records of queues that sinks took; unlike `records_written`, without the listener's own lines.
        pub taken_from_queues: AtomicU64,
        /// The value of `taken_from_queues` when the last batch began.
        pub taken_before_batch: AtomicU64,
        /// Device and inode of this file, written by the leader that settled its content: a copy has others. 0: not
        /// written yet.
        own_device: AtomicU64,
        own_inode: AtomicU64,
        /// Records that were refused in processes without a queue, since there was no room for one. The leader takes
        /// them over into the counts of its own process's queue.
        pub without_queue: RefusedWithoutQueue,
        /// Proxies that began to serve.
        pub proxies: AtomicU64,
        /// Connections of clients that proxies closed before a request came, by [`CLOSED_BY_PROXY`].
        pub closed_by_proxy: [AtomicU64; CLOSED_BY_PROXY.len()],
    }
}

crate::shared! {
    /// Where a sink's write under way, or its last one, began in its live segment.
    struct WritePlace {
        offset: AtomicU64,
        /// Bytes of `path` that are valid; 0 while there is no live segment.
        path_len: AtomicU32,
        path: [AtomicU8; MAX_PATH_BYTES],
        /// 1 once a sink that survives the loss of power has reported the write as on the device.
        committed: AtomicU32,
    }
}

/// A mapped control page. Never unmapped: producers may be about to use it, and there is one page per directory.
#[derive(Clone, Copy)]
pub struct Control(&'static ControlPage, FileId);

impl Control {
    /// Maps the control page of `directory`, creating it if needed.
    ///
    /// # Errors
    /// As [`shared_page::map`].
    pub fn open(directory: &Path) -> io::Result<Self> {
        shared_page::map(directory, NAME, BYTES, MAGIC, VERSION).map(|(page, file)| Self(page, file))
    }

    /// Maps the control page of `directory` for a process that only looks: it creates none.
    ///
    /// # Errors
    /// `NotFound`: no process of this version has used the directory; otherwise as [`shared_page::map`].
    pub fn find(directory: &Path) -> io::Result<Self> {
        let path = directory.join(format!("{NAME}-{VERSION}"));
        let facts = path.symlink_metadata()?;
        // A page that is cut short would be made whole.
        if !facts.is_file() || facts.len() != BYTES as u64 {
            let reason = format!("{} is not a {NAME} file of version {VERSION}", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Self::open(directory)
    }

    /// A page of this process alone, with the places of the last leader's writes. A leader that works beside the leader
    /// of the directory uses it, since it must not change that leader's words. Never unmapped either.
    #[must_use]
    pub fn apart(self) -> Self {
        let page = Self(Box::leak(memory::zeroed()), self.1);
        page.0.own_device.store(self.0.own_device.load(Ordering::Relaxed), Ordering::Relaxed);
        page.0.own_inode.store(self.0.own_inode.load(Ordering::Relaxed), Ordering::Relaxed);
        for slot in SLOTS_OLDEST_FIRST {
            let place = self.published_write(slot);
            page.publish_write(slot, place.as_ref().map(|(path, offset)| (path.as_path(), *offset)));
            let committed = self.place(slot).committed.load(Ordering::Acquire);
            page.place(slot).committed.store(committed, Ordering::Release);
        }
        page
    }

    /// The shared words.
    #[must_use]
    pub fn page(&self) -> &'static ControlPage {
        self.0
    }

    /// Whether the file is a copy of the one that listeners have used: its content describes the original, whose
    /// listener may be at work.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        // The inode first: `adopt` stores it last.
        let inode = self.0.own_inode.load(Ordering::Acquire);
        inode != 0 && (self.0.own_device.load(Ordering::Relaxed), inode) != self.1
    }

    /// Notes that the content of the file is settled, and describes this file from now on.
    pub fn adopt(&self) {
        if self.is_copy() {
            SLOTS_OLDEST_FIRST.into_iter().for_each(|slot| self.publish_write(slot, None));
        }
        self.0.own_device.store(self.1.0, Ordering::Relaxed);
        self.0.own_inode.store(self.1.1, Ordering::Release);
    }

    /// Seconds since the listener's last round, at `now_monotonic_nano`; None if there was none, or the machine has
    /// been restarted since.
    #[must_use]
    pub fn heartbeat_age_s(&self, now_monotonic_nano: u64) -> Option<f64> {
        let last = self.0.heartbeat_monotonic_nano.load(Ordering::Relaxed);
        // The listener may have gone round since the clock was read. A longer time ahead comes from before a restart of
        // the machine.
        let is_new = last.checked_sub(now_monotonic_nano).is_some_and(|ahead| ahead < 1_000_000_000);
        let age = if is_new { 0 } else { now_monotonic_nano.checked_sub(last).filter(|_| last > 0)? };
        Some(Duration::from_nanos(age).as_secs_f64())
    }

    fn place(&self, slot: usize) -> &'static WritePlace {
        self.0.write_places.get(slot).unwrap_or_else(|| &self.0.earlier_places[slot - SINKS_THAT_PUBLISH])
    }

    /// The rest of a batch goes to another file: remembers the place of the part before it, whose records are still in
    /// the queues.
    pub fn keep_write(&self, slot: usize) {
        for (from, to) in
            [(slot + SINKS_THAT_PUBLISH, slot + 2 * SINKS_THAT_PUBLISH), (slot, slot + SINKS_THAT_PUBLISH)]
        {
            let place = self.published_write(from);
            self.publish_write(to, place.as_ref().map(|(path, offset)| (path.as_path(), *offset)));
        }
    }

    /// A batch begins: the places of the last batch's parts are not needed any more.
    pub fn forget_kept(&self, slot: usize) {
        for slot in [slot + SINKS_THAT_PUBLISH, slot + 2 * SINKS_THAT_PUBLISH] {
            self.place(slot).path_len.store(0, Ordering::Release);
        }
    }

    /// Publishes where a sink's next write goes, before the write begins; None: the sink has no live segment any more.
    /// `slot` is [`PRIMARY_SLOT`] or [`FALLBACK_SLOT`], or one of those behind them.
    pub fn publish_write(&self, slot: usize, place: Option<(&Path, u64)>) {
        let words = self.place(slot);
        let (path, offset) = place.map_or((&b""[..], 0), |(path, offset)| (path.as_os_str().as_bytes(), offset));
        let path = if path.len() <= MAX_PATH_BYTES { path } else { b"" };
        // The next leader, if this one is killed here, sees no place, rather than half of one.
        words.path_len.store(0, Ordering::Release);
        words.committed.store(0, Ordering::Release);
        words.offset.store(offset, Ordering::Release);
        for (stored, byte) in words.path.iter().zip(path) {
            stored.store(*byte, Ordering::Relaxed);
        }
        words.path_len.store(path.len() as u32, Ordering::Release);
    }

    /// Where the last leader's last write to a sink went, unless that leader ended its output.
    #[must_use]
    pub fn published_write(&self, slot: usize) -> Option<(PathBuf, u64)> {
        let words = self.place(slot);
        let len = words.path_len.load(Ordering::Acquire) as usize;
        let stored = words.path.get(..len).filter(|path| !path.is_empty())?;
        let path: Vec<u8> = stored.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        Some((PathBuf::from(OsString::from_vec(path)), words.offset.load(Ordering::Acquire)))
    }

    /// Publishes that the write is on the device, for a sink that survives the loss of power: its records may be
    /// released only from now on.
    pub fn publish_committed(&self, slot: usize) {
        self.0.write_places[slot].committed.store(1, Ordering::Release);
    }

    /// Whether the published write is on the device.
    #[must_use]
    pub fn is_committed(&self, slot: usize) -> bool {
        self.0.write_places[slot].committed.load(Ordering::Acquire) != 0
    }

    /// Wakes the listener if it sleeps; otherwise costs one load.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.0.sleeping.load(Ordering::Relaxed) != 0 {
            self.wake_sleeper();
        }
    }

    #[cold]
    fn wake_sleeper(&self) {
        // Of all producers that see the flag, one makes the call.
        if self.0.sleeping.swap(0, Ordering::Relaxed) != 0 {
            self.0.wake.fetch_add(1, Ordering::Release);
            platform::wake_all(&self.0.wake, Scope::Shared);
        }
    }

    /// Asks for a flush of everything that is in the queues now.
    pub fn request_flush(&self) {
        self.0.flush_requests.fetch_add(1, Ordering::Release);
        // Pairs with the fence in `wait`: either this call sees the sleeping flag, or the sleeper sees the request.
        fence(Ordering::SeqCst);
        self.wake();
    }

    /// Reads the number of flush requests so far (wraps).
    #[must_use]
    pub fn flush_requests(&self) -> u32 {
        self.0.flush_requests.load(Ordering::Acquire)
    }

    /// Sleeps until a wake-up or `timeout`; returns at once if `ready` says so after the sleeping flag is up.
    pub fn wait(&self, timeout: Duration, ready: impl FnOnce() -> bool) {
        let seen = self.0.wake.load(Ordering::Acquire);
        self.0.sleeping.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            platform::wait(&self.0.wake, Scope::Shared, seen, timeout);
        }
        self.0.sleeping.store(0, Ordering::Relaxed);
    }
}
