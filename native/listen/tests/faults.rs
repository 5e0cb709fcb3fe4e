//! Damage from outside while everything runs: files cut short, removed or overwritten, clocks that jump. The name of
//! each test states the property that still holds.

mod clock;
mod cut;
mod external;
mod gone;
mod noise;
mod readers;

use crate::support::{
    INFO, dense, emit, listener_settings, numbers, queue_settings, register, segment_lines, wait_until,
};
use listen::leader::ListenerSettings;
use listen::service::Service;
use listen::sink::{FileSinkConfig, SinkSettings};
use queue::queue_file;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A directory for queues and one for segments.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn queues(&self) -> PathBuf {
        self.path().join("queues")
    }

    /// The queue files; none while there is no directory.
    fn queue_files(&self) -> Vec<PathBuf> {
        queue_file::list(&self.queues()).unwrap_or_default()
    }

    /// A file of the queue directory, by how its name begins.
    fn file(&self, prefix: &str) -> PathBuf {
        let mut paths = fs::read_dir(self.queues()).unwrap().map(|entry| entry.unwrap().path());
        paths.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix)).unwrap()
    }

    /// The lines of all segments.
    fn lines(&self) -> Vec<Value> {
        segment_lines(&self.path().join("segments"))
    }

    /// Every record of a thread is written once, in whatever order.
    fn assert_written(&self, thread: u64, count: u64) {
        let mut written = numbers(&self.lines(), thread);
        written.sort_unstable();
        assert_eq!(written, dense(count));
    }
}

/// A process's logging, with an interval so long that only a flush writes.
fn open(path: &Path) -> Arc<Service> {
    open_either(path, true)
}

/// As `open`; a process that does not listen leaves that to another one.
fn open_either(path: &Path, listens: bool) -> Arc<Service> {
    let queues = path.join("queues");
    let listener = ListenerSettings { flush_interval: Duration::from_secs(3600), ..listener_settings(&queues) };
    let sink = SinkSettings::File(FileSinkConfig::new(path.join("segments"), "test", "0000000000000000"));
    Service::open(queue_settings(&queues), listener, sink, listens).unwrap()
}

fn emit_span(service: &Service, thread: u64, span: std::ops::Range<u64>) {
    let event = register(&service.producer);
    // A record that comes while another thread replaces the queue is refused, and counted, where that takes long.
    span.for_each(|n| wait_until("the record is accepted", || emit(&service.producer, event, INFO, thread, n)));
}

fn cut(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}
