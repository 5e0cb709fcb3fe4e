//! Shared by the tests of queues, here and in the crate above: settings, records of an event of their own, and child
//! processes.

use queue::producer::{Producer, QueueSettings};
use queue::record::Scratch;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const INFO: u8 = 9;
pub const QUEUE_BYTES: u64 = 65_536;
pub const SLOTS: u32 = 5;
const CHILD_DIRECTORY: &str = "INFERENCE_LOGGING_TEST_DIRECTORY";

pub fn queue_settings(directory: &Path) -> QueueSettings {
    QueueSettings {
        directory: directory.to_owned(),
        queue_bytes: QUEUE_BYTES,
        in_flight_slots: SLOTS,
        max_record_bytes: 8192,
        overflow_info_ratio: 0.8,
        wake_bytes: QUEUE_BYTES / 4,
        configuration: None,
        events: Vec::new(),
    }
}

/// The test's own event: which thread, and the number of its record.
pub fn register(producer: &Producer) -> u16 {
    producer.register("test", &["thread".to_owned(), "n".to_owned()]).unwrap()
}

pub fn emit(producer: &Producer, event: u16, severity: u8, thread: u64, n: u64) -> bool {
    producer.emit(event, severity, payload(thread, n).as_slice())
}

pub fn payload(thread: u64, n: u64) -> Scratch {
    let mut scratch = Scratch::new();
    scratch.push_uint(thread);
    scratch.push_uint(n);
    scratch
}

/// Runs one test of this binary again, in a process of its own, in which [`child_directory`] is set.
pub fn child(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(CHILD_DIRECTORY, directory);
    command
}

pub fn child_directory() -> Option<PathBuf> {
    std::env::var_os(CHILD_DIRECTORY).map(PathBuf::from)
}

/// Ends this process as an out-of-memory kill does.
pub fn die() -> ! {
    // SAFETY: plain calls; the process does not live to see the second one.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
        libc::_exit(1)
    }
}
