//! What is published about each sink, in the control page: written by the leader's process, read by any.
//!
//! Plain counters in shared memory, so that health and metrics of every process can show the state of each sink, also
//! while the sink's thread hangs.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Sinks that have a place in the table: the primary, its fallback, and additional ones.
pub const SINKS: usize = 8;
const NAME_BYTES: usize = 64;
/// Upper bounds of the buckets of write times, in seconds; the last bucket has none.
pub(crate) const WRITE_BOUNDS_S: [f64; 13] =
    [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];
const WRITE_BUCKETS: usize = WRITE_BOUNDS_S.len() + 1;

/// What a sink is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkRole {
    /// The queue is released when this sink has taken a batch.
    Primary = 1,
    /// Takes over while the primary fails.
    Fallback = 2,
    /// Gets a copy of everything, and never holds anything back.
    Additional = 3,
}

impl SinkRole {
    fn from_word(word: u32) -> Option<Self> {
        [Self::Primary, Self::Fallback, Self::Additional].into_iter().find(|role| *role as u32 == word)
    }

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Fallback => "fallback",
            Self::Additional => "additional",
        }
    }
}

/// How a sink is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkState {
    Ok = 0,
    /// The last write gave an error; it is tried again.
    Failing = 1,
    /// A write has been under way for long and has not returned.
    Hung = 2,
}

impl SinkState {
    fn from_word(word: u32) -> Self {
        [Self::Failing, Self::Hung].into_iter().find(|state| *state as u32 == word).unwrap_or(Self::Ok)
    }

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failing => "failing",
            Self::Hung => "hung",
        }
    }
}

/// The kind of an error, coarse enough for a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkErrorType {
    Full,
    ReadOnly,
    Permission,
    Gone,
    Io,
    Closed,
    TooLarge,
    Other,
}

/// Every error type, in the order of its counters.
pub const SINK_ERROR_TYPES: [SinkErrorType; 8] = [
    SinkErrorType::Full,
    SinkErrorType::ReadOnly,
    SinkErrorType::Permission,
    SinkErrorType::Gone,
    SinkErrorType::Io,
    SinkErrorType::Closed,
    SinkErrorType::TooLarge,
    SinkErrorType::Other,
];

impl SinkErrorType {
    /// Sorts an error.
    #[must_use]
    pub fn of(error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => Self::Gone,
            std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::WriteZero => Self::Closed,
            _ => Self::Other,
        };
        error.raw_os_error().map_or(kind, Self::of_errno)
    }

    fn of_errno(errno: i32) -> Self {
        match errno {
            libc::ENOSPC | libc::EDQUOT => Self::Full,
            libc::EROFS => Self::ReadOnly,
            libc::EACCES | libc::EPERM => Self::Permission,
            libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ESTALE => Self::Gone,
            libc::EIO => Self::Io,
            libc::EPIPE
            | libc::ENXIO
            | libc::ENOTCONN
            | libc::ECONNREFUSED
            | libc::ECONNRESET
            | libc::ECONNABORTED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH => Self::Closed,
            libc::EFBIG | libc::EMSGSIZE => Self::TooLarge,
            _ => Self::Other,
        }
    }

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::ReadOnly => "read_only",
            Self::Permission => "permission",
            Self::Gone => "gone",
            Self::Io => "io",
            Self::Closed => "closed",
            Self::TooLarge => "too_large",
            Self::Other => "other",
        }
    }
}

crate::shared! {
    /// One row of the table. All zeroes: unused.
    pub struct SinkWords {
        name: [AtomicU8; NAME_BYTES],
        role: AtomicU32,
        state: AtomicU32,
        since_unix_nano: AtomicU64,
        /// 0: none yet, or one that the system has no number for.
        pub last_errno: AtomicU32,
        _pad: AtomicU32,
        pub records_written: AtomicU64,
        pub bytes_written: AtomicU64,
        pub records_dropped: AtomicU64,
        errors: [AtomicU64; SINK_ERROR_TYPES.len()],
        write_buckets: [AtomicU64; WRITE_BUCKETS],
        write_nano: AtomicU64,
        writes: AtomicU64,
    }
}

impl SinkWords {
    /// Gives the row to a sink; the counts go on if the row was this sink's already.
    pub fn assign(&self, name: &str, role: SinkRole, now_unix_nano: u64) {
        let name = cut(name);
        if self.role() != Some(role) || self.name() != name {
            self.clear();
            self.name.iter().zip(name.as_bytes()).for_each(|(stored, byte)| stored.store(*byte, Relaxed));
            self.role.store(role as u32, Relaxed);
            self.since_unix_nano.store(now_unix_nano, Relaxed);
        }
        self.set_state(SinkState::Ok, now_unix_nano);
    }

    /// Empties the row.
    pub fn clear(&self) {
        self.role.store(0, Relaxed);
        self.name.iter().for_each(|byte| byte.store(0, Relaxed));
        [&self.state, &self.last_errno].iter().for_each(|word| word.store(0, Relaxed));
        let words = [&self.since_unix_nano, &self.records_written, &self.bytes_written, &self.records_dropped];
        words.into_iter().for_each(|word| word.store(0, Relaxed));
        let counts = self.errors.iter().chain(&self.write_buckets).chain([&self.write_nano, &self.writes]);
        counts.for_each(|word| word.store(0, Relaxed));
    }

    /// What the sink is for; None: the row is unused.
    #[must_use]
    pub fn role(&self) -> Option<SinkRole> {
        SinkRole::from_word(self.role.load(Relaxed))
    }

    /// The sink's name in the configuration, cut in its middle to 63 bytes.
    #[must_use]
    pub fn name(&self) -> String {
        let bytes: Vec<u8> = self.name.iter().map(|byte| byte.load(Relaxed)).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The state of the sink.
    #[must_use]
    pub fn state(&self) -> SinkState {
        SinkState::from_word(self.state.load(Relaxed))
    }

    /// The time of the last change of state, in Unix nanoseconds.
    #[must_use]
    pub fn since_unix_nano(&self) -> u64 {
        self.since_unix_nano.load(Relaxed)
    }

    /// The system's text of the last error; None: there was none, or one that the system has no number for.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        let errno = self.last_errno.load(Relaxed).cast_signed();
        (errno != 0).then(|| std::io::Error::from_raw_os_error(errno).to_string())
    }

    /// Notes a change of state; without a change, the time stays.
    pub fn set_state(&self, state: SinkState, now_unix_nano: u64) {
        if self.state.swap(state as u32, Relaxed) != state as u32 {
            self.since_unix_nano.store(now_unix_nano, Relaxed);
        }
    }

    /// Counts an error.
    pub fn count_error(&self, error: &std::io::Error) {
        self.last_errno.store(error.raw_os_error().unwrap_or(0) as u32, Relaxed);
        self.errors[SinkErrorType::of(error) as usize].fetch_add(1, Relaxed);
    }

    /// Counts records that this sink can never take.
    pub fn count_refused(&self, records: u64) {
        self.records_dropped.fetch_add(records, Relaxed);
        self.errors[SinkErrorType::TooLarge as usize].fetch_add(records, Relaxed);
    }

    /// Errors so far, with their types.
    pub fn errors(&self) -> impl Iterator<Item = (SinkErrorType, u64)> + '_ {
        SINK_ERROR_TYPES.into_iter().zip(&self.errors).map(|(kind, count)| (kind, count.load(Relaxed)))
    }

    /// Counts the records, bytes and duration of a write, also of one that failed.
    pub fn count_write(&self, records: u64, bytes: usize, took: Duration) {
        self.records_written.fetch_add(records, Relaxed);
        self.bytes_written.fetch_add(bytes as u64, Relaxed);
        let seconds = took.as_secs_f64();
        let bucket = WRITE_BOUNDS_S.iter().position(|bound| seconds <= *bound).unwrap_or(WRITE_BUCKETS - 1);
        self.write_buckets[bucket].fetch_add(1, Relaxed);
        self.write_nano.fetch_add(took.as_nanos() as u64, Relaxed);
        self.writes.fetch_add(1, Relaxed);
    }

    /// Write times so far: upper bound in seconds and number of writes up to it, the sum in nanoseconds, and all.
    #[must_use]
    pub fn write_times(&self) -> (Vec<(f64, u64)>, u64, u64) {
        let bounds = WRITE_BOUNDS_S.into_iter().chain([f64::INFINITY]);
        let mut total = 0;
        let counts = self.write_buckets.iter().map(|count| {
            total += count.load(Relaxed);
            total
        });
        (bounds.zip(counts).collect(), self.write_nano.load(Relaxed), self.writes.load(Relaxed))
    }
}

/// Shortens a name in its middle: the kind of the sink stands at the beginning, and the difference between two of a
/// kind at the end.
fn cut(name: &str) -> String {
    let most = NAME_BYTES - 1;
    if name.len() <= most {
        return name.to_owned();
    }
    let begin = (0..=most / 3).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    let room = most - begin - "…".len();
    let end = (name.len() - room..=name.len()).find(|at| name.is_char_boundary(*at)).unwrap_or(name.len());
    format!("{}…{}", &name[..begin], &name[end..])
}
