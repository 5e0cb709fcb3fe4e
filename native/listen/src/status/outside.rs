//! A lane as a process sees it that takes no part in it: no queue of its own, and no listener.

use super::lane::{LaneState, Source, failing_of};
use crate::sink::Now;
use queue::control::Control;
use queue::inspect;
use queue::published::totals;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The lane of a queue directory, from outside.
pub struct Outside {
    /// The queue directory.
    pub directory: PathBuf,
    pub control: Control,
}

impl Outside {
    /// Opens what the directory's processes publish.
    ///
    /// # Errors
    /// `NotFound`: no process of this version has used the directory; otherwise its page cannot be mapped.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Ok(Self { directory: directory.to_owned(), control: Control::find(directory)? })
    }
}

impl Source for Outside {
    fn read(&self, now: Now) -> LaneState {
        let page = self.control.page();
        LaneState {
            queues: inspect::queues(&self.directory),
            leader: inspect::leader(&self.directory),
            heartbeat_age_s: self.control.heartbeat_age_s(now.monotonic.as_nanos() as u64),
            sink_errors: page.sink_errors.load(Ordering::Relaxed),
            records_written: page.records_written.load(Ordering::Relaxed),
            fallback_active: page.fallback_active.load(Ordering::Relaxed) != 0,
            queue_missing: false,
            queue_refused: None,
            queue_renewals: 0,
            failing: failing_of(page, now.unix_nano),
            dead_producers: totals::dead_producers(&self.directory),
        }
    }
}
