//! Run-time changes to a queue directory, made by a process that serves no requests.

use listen::overrides::{self, Change, EVENT, Writer};
use listen::settings::{entries, user_name};
use queue::event::{COMMAND, INFO};
use queue::producer::{Producer, QueueSettings};
use queue::queue_file::check_directory;
use queue::system::real_user;
use request::runtime::Runtime;
use request::runtime::settings::Until;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of the queue that carries the records of the changes: the smallest size that is allowed.
const QUEUE_BYTES: u64 = 65_536;
/// How long to wait for another writer, which holds the lock for microseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// The run-time control of an existing queue directory.
pub struct Control {
    directory: PathBuf,
    pub(crate) runtime: Runtime,
    command: &'static str,
}

impl Control {
    /// Opens the control of a directory for a command, which the records of its changes name.
    ///
    /// # Errors
    /// The directory is missing, belongs to another user, or is damaged.
    pub fn open(directory: &Path, command: &'static str) -> io::Result<Self> {
        check_directory(directory)?;
        Ok(Self { directory: directory.to_owned(), runtime: Runtime::open(directory)?, command })
    }

    /// Makes a change for some seconds. Its record is in a queue before the change takes effect.
    ///
    /// # Errors
    /// A sentence: the record could not be written, so there is no change; or another writer keeps the lock.
    pub fn change(&self, change: &Change, for_s: f64) -> Result<(), String> {
        let (now, nano) = (overrides::now(), (for_s * 1e9) as u64);
        let until = Until { monotonic_nano: now.monotonic_nano + nano, unix_nano: now.unix_nano + nano };
        self.write(|writer, who, record| writer.change(change, until, who, record))
    }

    /// Switches recording on again; returns 1 if it was switched off, else 0.
    ///
    /// # Errors
    /// As [`Control::change`].
    pub fn enable(&self) -> Result<usize, String> {
        self.write(|writer, who, record| writer.enable(who, record))
    }

    /// Ends a comparison; returns 1 if there was one, else 0.
    ///
    /// # Errors
    /// As [`Control::change`].
    pub fn end_comparison(&self) -> Result<usize, String> {
        self.write(|writer, who, record| writer.end_comparison(who, record))
    }

    /// Ends all changes that are in force; returns how many there were.
    ///
    /// # Errors
    /// As [`Control::change`].
    pub fn reset(&self) -> Result<usize, String> {
        self.write(|writer, who, record| writer.reset(who, record))
    }

    /// Runs `work` with the writers' lock and a queue of its own. The queue stays for the next listener, or for one
    /// that runs.
    fn write<R>(
        &self,
        work: impl FnOnce(&Writer, &str, &mut dyn FnMut(&[u8]) -> bool) -> Result<R, String>,
    ) -> Result<R, String> {
        let writer = self.lock()?;
        let producer = Producer::open(QueueSettings {
            directory: self.directory.clone(),
            queue_bytes: QUEUE_BYTES,
            in_flight_slots: 0,
            max_record_bytes: QUEUE_BYTES as u32 / 4,
            overflow_info_ratio: 1.0,
            wake_bytes: 0,
            configuration: None,
            events: Vec::new(),
        })
        .map_err(|error| error.to_string())?;
        producer.set_name(&format!("{COMMAND}{}", self.command));
        if let Some(queue) = producer.queue() {
            queue.file.header().only_listens.store(1, Ordering::Relaxed); // it serves nothing
        }
        let done = work(&writer, &who(self.command), &mut |payload| producer.emit(EVENT, INFO, payload));
        producer.close();
        done
    }

    fn lock(&self) -> Result<Writer, String> {
        let started = Instant::now();
        loop {
            if let Some(writer) = Writer::try_lock(&self.directory).map_err(|error| error.to_string())? {
                return Ok(writer);
            }
            if started.elapsed() >= PATIENCE {
                return Err("another process is changing the same for too long; nothing is changed".to_owned());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The user and the process that make a change, as its record names them.
fn who(command: &str) -> String {
    let (user, pid) = (real_user(), std::process::id());
    let name = user_name(user).unwrap_or_else(|| "?".to_owned());
    format!("{name} (uid {user}), inference-logging {command}, pid {pid}")
}

// Removal of queue directories that are out of use: no process has a queue there, and no record waits for a listener.

/// Removes a queue directory, or returns why it has to stay.
///
/// A process that starts at this moment is either seen, or makes the directory anew.
///
/// # Errors
/// The directory is missing, or cannot be removed.
pub fn remove_directory(directory: &Path) -> io::Result<Option<String>> {
    std::fs::read_dir(directory)?;
    if let Some(why) = kept_for(directory) {
        return Ok(Some(why));
    }
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let aside = directory.with_file_name(format!(".{name}.removed"));
    std::fs::rename(directory, &aside)?;
    if let Some(why) = kept_for(&aside) {
        // Another process was quicker. If it has made the directory anew, it does not need this one any more.
        let _ = std::fs::rename(&aside, directory);
        return Ok(Some(why));
    }
    std::fs::remove_dir_all(&aside)?;
    Ok(None)
}

/// The reason why a queue directory has to stay; None: it is out of use.
///
/// Every process that produces or listens keeps a queue file there for as long as it lives.
fn kept_for(directory: &Path) -> Option<String> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = entries(directory).iter().map(|path| name(path)).collect();
    match names.iter().filter(|name| name.ends_with(".queue") || name.ends_with(".new")).count() {
        0 => names.iter().find(|name| !is_own(name)).map(|name| format!("'{name}' is no file of a queue directory")),
        1 => Some("1 queue is in use or waits for a listener".to_owned()),
        queues => Some(format!("{queues} queues are in use or wait for a listener")),
    }
}

/// Whether a queue directory has files of this name beside its queues.
fn is_own(name: &str) -> bool {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let numbered = ["control-", "runtime-", "metrics-"].iter().find_map(|prefix| name.strip_prefix(prefix));
    let locks = ["leader.lock", "totals.lock", "runtime.lock", "comparison.lock", "configuration.lock"];
    let fixed = ["metrics", "configuration.yaml"];
    numbered.is_some_and(is_number)
        || fixed.contains(&name)
        || locks.contains(&name)
        || (name.starts_with("dead-") && name.len() > 5)
}
