//! One reading of a lane: its queue directory, its listener's page, and this process's own queue.

use super::health::FailingSink;
use crate::service::Service;
use crate::sink::{Now, stdout};
use queue::control::Control;
use queue::inspect::{self, QueueSnapshot};
use queue::lock::Holder;
use queue::published::sinks::{SinkState, SinkWords};
use queue::published::totals;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The data that health and metrics read.
pub trait Source {
    /// Reads the lane as it is now.
    fn read(&self, now: Now) -> LaneState;
}

/// The lane of one process's service: the fast one, or that of audit records.
pub struct Lane {
    pub service: Arc<Service>,
    /// The queue directory.
    pub directory: PathBuf,
    pub control: Control,
}

/// A lane at one moment.
#[derive(Clone, Debug)]
pub struct LaneState {
    pub queues: Vec<QueueSnapshot>,
    /// Which process has the lock of the one listener.
    pub leader: Holder,
    /// Since the listener's last round; None: there was no leader since the machine started.
    pub heartbeat_age_s: Option<f64>,
    pub sink_errors: u64,
    pub records_written: u64,
    pub fallback_active: bool,
    /// Whether listeners cannot find this process's queue.
    pub queue_missing: bool,
    /// Why this process has no queue, if it could not make one.
    pub queue_refused: Option<String>,
    /// How often another queue has replaced this process's.
    pub queue_renewals: u64,
    pub failing: Vec<FailingSink>,
    /// The names of processes that had a name, have died and have no successor of that name.
    pub dead_producers: Vec<String>,
}

impl Source for Lane {
    fn read(&self, now: Now) -> LaneState {
        let producer = &self.service.producer;
        LaneState {
            queue_missing: producer.is_lost_sight_of(),
            queue_refused: producer.refusal(),
            queue_renewals: producer.renewals(),
            ..LaneState::outside(&self.directory, self.control, now)
        }
    }
}

impl LaneState {
    /// Reads a lane as a process sees it that has no queue there.
    pub(super) fn outside(directory: &Path, control: Control, now: Now) -> Self {
        let page = control.page();
        Self {
            queues: inspect::queues(directory),
            leader: inspect::leader(directory),
            heartbeat_age_s: control.heartbeat_age_s(now.monotonic.as_nanos() as u64),
            sink_errors: page.sink_errors.load(Ordering::Relaxed),
            records_written: page.records_written.load(Ordering::Relaxed),
            fallback_active: page.fallback_active.load(Ordering::Relaxed) != 0,
            queue_missing: false,
            queue_refused: None,
            queue_renewals: 0,
            failing: page.sinks.iter().filter_map(|sink| failing(sink, now.unix_nano)).collect(),
            dead_producers: totals::dead_producers(directory),
        }
    }
}

fn failing(sink: &SinkWords, unix_nano: u64) -> Option<FailingSink> {
    sink.role()?;
    if sink.name() == stdout::NAME {
        // Somebody has stopped or closed a terminal.
        return None;
    }
    let state = sink.state();
    let since = Duration::from_nanos(unix_nano.saturating_sub(sink.since_unix_nano()));
    let error = sink.last_error().unwrap_or_default();
    (state != SinkState::Ok).then(|| FailingSink { name: sink.name(), state, for_s: since.as_secs_f64(), error })
}

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
        LaneState::outside(&self.directory, self.control, now)
    }
}
