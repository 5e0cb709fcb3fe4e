//! `recover`: writes what is left in queues without a server and a listener.
//!
//! A server does the same at its start in its own queue directory. This command is for directories to which no server
//! comes back: after a host's restart, of a renamed service, on a volume that was saved.

use super::application;
use super::command::Host;
use super::command::{self, Failure};
use super::listeners::Listeners;
use super::options::{Options, Syntax};
use crate::options::Configuration;
use listen::settings::Lane;
use queue::configuration;
use queue::inspect::QueueSnapshot;
use queue::layout::Reason;
use queue::lock::Holder;
use queue::queue_file::{self, QueueFile, check_directory};
use queue::system::{ENDING, Signals};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The queues of the audit lane, below the queue directory.
const AUDIT: &str = "audit";
/// A file in each queue directory that ever had a listener.
const LEADER_LOCK: &str = "leader.lock";
const LOOK: Duration = Duration::from_millis(20);
const COLUMNS: [&str; 9] = ["lane", "boot_id", "pid", "state", "accepted", "recovered", "torn", "corrupt", "left"];

static SYNTAX: Syntax = Syntax {
    name: "recover",
    help: HELP,
    valued: &["config", "service-name", "queue-directory", "directory"],
    flags: &["json"],
    most_arguments: 1,
};
const HELP: &str = "\
Usage: inference-logging-listener recover [OPTIONS] [DIR]

  Write the records left in the queue directory DIR (default: this folder's application's) to the sink, once.

  All that a process committed is written, even if it was killed; unfinished records are counted as torn. If a
  listener is at work there, it writes them. --config DIR/configuration.yaml writes to where the servers did and redacts
  as they did; anything else must be asked for by option, environment or file. Queues of servers that still run are
  written up to now, and stay. Audit queues need audit: on. The command gives up if nothing could be written for
  drain_deadline_s; you can run it again at any time.

  Without DIR, it is found as by `ctl`; if there are several, they are listed and nothing is written.

  DIR may be a copy or have been moved. Records that segments already hold are not written again. A copy of a queue
  whose records another listener still writes is left alone.

  Exit code: 1 if something is left or could not be read; 2 if DIR is not a queue directory.

Options:
  --config PATH           File of JSON, or configuration.yaml of a queue directory, as if config_file named it.
  --service-name TEXT     As service_name of the servers.
  --queue-directory PATH  As queue_directory of the servers: as DIR.
  --directory PATH        Where the segments go, as directory of a server.
  --json                  JSON instead of a table.
  -h, --help              Show this message and exit.
";

/// Runs the command to its end.
///
/// # Errors
/// The command line or the configuration is wrong, or the listener cannot start.
pub fn run(host: &Host, arguments: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let options = Options::read(host, &SYNTAX, arguments)?;
    let argument = options.arguments().first().map(|argument| ("queue_directory", argument.as_str()));
    if argument.is_some() && options.text("queue-directory").is_some() {
        return Err(options.wrong("give DIR or --queue-directory, not both"));
    }
    let more: Vec<(&str, &str)> = argument.into_iter().collect();
    let taken = ["config", "service-name", "queue-directory", "directory"];
    let configuration = Configuration::with(host, &options, &taken, &more)?;
    configuration.refuse_foreign_store(host)?;
    let configuration = configuration.of_application(&options)?.swap_remove(0);
    let directory = &configuration.queue_directory;
    if !directory.is_dir() {
        return Err(options.wrong(&application::missing(directory)));
    }
    let lanes = lanes(&configuration).map_err(|error| options.wrong(&format!("{}: {error}", directory.display())))?;
    if !directory.join(LEADER_LOCK).exists() && !lanes.iter().any(Held::has_files) {
        let why = "no queue directory: it holds no queues, and no listener was there";
        return Err(options.wrong(&format!("{}: {why}", directory.display())));
    }
    compare(&options, &configuration)?;
    let signals = Signals::take(&ENDING);
    let Some(found) = recover(host, &lanes, &configuration, &signals)? else {
        return Ok(command::INTERRUPTED);
    };
    let text = if options.has("json") { crate::ascii_text(&found) + "\n" } else { table(&found) };
    let code = if is_left(&found) { command::FAILED } else { command::OK };
    if configuration.settings.writes_to_stdout() {
        // Records that go to stdout are kept apart from the report.
        let _ = std::io::stderr().write_all(text.as_bytes());
        return Ok(code);
    }
    Ok(command::show(&text, code))
}

/// Looks at every queue of the directory before a listener of this process does.
fn lanes(configuration: &Configuration) -> std::io::Result<Vec<Held>> {
    let directory = &configuration.queue_directory;
    let mut lanes = vec![Held::open("fast", directory, true)?];
    let audit: PathBuf = directory.join(AUDIT);
    if audit.is_dir() {
        lanes.push(Held::open("audit", &audit, configuration.settings.lanes().contains(&Lane::Audit))?);
    }
    Ok(lanes)
}

/// Refuses to write elsewhere, or to redact otherwise, than the producers were configured to, unless the options ask
/// for it.
fn compare(options: &Options, configuration: &Configuration) -> Result<(), Failure> {
    let (directory, settings) = (&configuration.queue_directory, &configuration.settings);
    let noted = configuration::read(directory).map_err(|error| Failure::Open(error.to_string()))?;
    let Some(noted) = noted else { return Ok(()) };
    let is_silent = |sentence: &String| {
        let name = sentence.split(' ').next().unwrap_or_default();
        // Only one of them has the audit lane on; else its directory is below the other one.
        !name.starts_with(AUDIT) && !settings.gives(name) && !settings.gives(&format!("{name}_file"))
    };
    let differences = configuration::differences(&noted, &settings.configuration());
    let silent: Vec<String> = differences.into_iter().filter(is_silent).collect();
    if silent.is_empty() {
        return Ok(());
    }
    Err(options.wrong(&format!(
        "{} is another configuration's: {}. --config {} writes its records as their producers said",
        directory.display(),
        silent.join("; "),
        directory.join(configuration::NAME).display()
    )))
}

/// Returns the report; None: a signal ended the command.
fn recover(
    host: &Host,
    lanes: &[Held],
    configuration: &Configuration,
    signals: &Signals,
) -> Result<Option<Value>, Failure> {
    let before: Vec<Vec<QueueSnapshot>> = lanes.iter().map(Held::queues).collect();
    let mut kept = Vec::new();
    if lanes.iter().zip(&before).any(|(lane, queues)| lane.is_served && !queues.is_empty()) {
        let listeners = Listeners::open(host, configuration, false).map_err(Failure::Open)?;
        let patience = configuration.settings.values.drain_deadline_s;
        let is_done = wait(lanes, &before, patience, signals);
        // After a signal it waits for nothing: what is left stays in the queues.
        kept = listeners.close_each(if is_done { patience } else { Duration::ZERO });
        if !is_done {
            return Ok(None);
        }
    }
    let processes: Vec<Value> = lanes.iter().zip(&before).flat_map(|(lane, before)| lane.report(before)).collect();
    let unreadable = lanes.iter().flat_map(|lane| &lane.unreadable);
    Ok(Some(json!({
        "queue_directory": configuration.queue_directory.display().to_string(),
        "recovered": processes.iter().filter_map(|process| process["recovered"].as_u64()).sum::<u64>(),
        "processes": processes,
        "kept": kept,
        "unreadable": unreadable.map(|(file, why)| json!({"file": file, "why": why})).collect::<Vec<_>>(),
    })))
}

/// Waits until the queues are done or make no progress; false: a signal asks for the end.
fn wait(lanes: &[Held], before: &[Vec<QueueSnapshot>], patience: Duration, signals: &Signals) -> bool {
    let (mut waiting, mut end) = (None, Instant::now());
    loop {
        let served = lanes.iter().zip(before).filter(|(lane, _)| lane.is_served);
        let waiting_now = served.map(|(lane, before)| lane.waiting(before));
        let now = waiting_now.fold((0, 0), |(queues, records), lane| (queues + lane.0, records + lane.1));
        if now.0 == 0 {
            return true;
        }
        if waiting.replace(now) != Some(now) {
            end = Instant::now() + patience;
        } else if Instant::now() >= end {
            return true;
        }
        if signals.wait(LOOK).is_some() {
            return false;
        }
    }
}

fn is_left(found: &Value) -> bool {
    let has = |name: &str| found[name].as_array().is_some_and(|list| !list.is_empty());
    let processes = found["processes"].as_array().into_iter().flatten();
    let mut not_written = processes.flat_map(|process| [&process["left"], &process["corrupt"]]);
    not_written.any(|count| count != &json!(0)) || has("unreadable") || has("kept")
}

fn table(found: &Value) -> String {
    let cell = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let processes = found["processes"].as_array().map_or(&[][..], Vec::as_slice);
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(processes.iter().map(|process| COLUMNS.map(|column| cell(&process[column]))));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let line = |row: &[String; COLUMNS.len()]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines: Vec<String> = if processes.is_empty() { Vec::new() } else { rows.iter().map(line).collect() };
    let unreadable = found["unreadable"].as_array().into_iter().flatten();
    lines.extend(unreadable.map(|queue| format!("{}: not recovered: {}", cell(&queue["file"]), cell(&queue["why"]))));
    lines.extend(found["kept"].as_array().into_iter().flatten().map(cell));
    let directory = cell(&found["queue_directory"]);
    lines.push(format!("recovered={} processes={} from {directory}", found["recovered"], processes.len()));
    lines.join("\n") + "\n"
}

// The queues that a directory had at one time; their counts stay readable after the files are gone.

/// The queues of one lane. Open them before a listener of this process, which may take the locks of their files.
pub struct Held {
    pub lane: &'static str,
    /// Whether the configuration has a listener for them.
    pub is_served: bool,
    files: Vec<Arc<QueueFile>>,
    /// The names of files that are no queues of this version, each with what is wrong with it.
    pub unreadable: Vec<(String, String)>,
}

impl Held {
    /// Maps every queue of an existing queue directory.
    ///
    /// # Errors
    /// The directory is missing, or belongs to another user.
    pub fn open(lane: &'static str, directory: &Path, is_served: bool) -> io::Result<Self> {
        check_directory(directory)?;
        let mut held = Self { lane, is_served, files: Vec::new(), unreadable: Vec::new() };
        for path in queue_file::list(directory)? {
            match QueueFile::open(&path) {
                Ok(file) => held.files.push(file),
                Err(error) => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    held.unreadable.push((name, error.to_string()));
                }
            }
        }
        Ok(held)
    }

    /// Whether the directory has files.
    pub fn has_files(&self) -> bool {
        !self.files.is_empty() || !self.unreadable.is_empty()
    }

    /// The queues as they are now.
    pub fn queues(&self) -> Vec<QueueSnapshot> {
        self.files.iter().map(|file| QueueSnapshot::of(file)).collect()
    }

    /// The number of queues that are not done, and of the records that wait in them. Of a dead process's, all is to be
    /// written and the file to go; of another's, what waited in it in `before`.
    pub fn waiting(&self, before: &[QueueSnapshot]) -> (usize, u64) {
        let there = self.files.iter().zip(before).filter(|(file, _)| file.path.exists());
        let left = there.map(|(file, then)| left(then, &QueueSnapshot::of(file)));
        let undone = left.filter(|(is_dead, records)| *is_dead || *records > 0);
        undone.fold((0, 0), |(queues, all), (_, records)| (queues + 1, all + records))
    }

    /// The result for each queue, compared with its state in `before`.
    pub fn report(&self, before: &[QueueSnapshot]) -> Vec<Value> {
        before.iter().zip(self.queues()).map(|(then, now)| process(self.lane, then, &now)).collect()
    }
}

/// Whether the process is dead, and the number of records that are left to write, as [`Held::waiting`] says.
fn left(then: &QueueSnapshot, now: &QueueSnapshot) -> (bool, u64) {
    let is_dead = now.producer == Holder::Nobody;
    let of_before = then.counts.in_queue.saturating_sub(now.counts.written - then.counts.written);
    (is_dead, if is_dead { now.counts.in_queue } else { of_before.min(now.counts.in_queue) })
}

fn process(lane: &str, then: &QueueSnapshot, now: &QueueSnapshot) -> Value {
    let count = |reason: Reason| now.counts.dropped[reason as usize].iter().sum::<u64>();
    json!({
        "lane": lane,
        "boot_id": format!("{:016x}", now.counts.boot_id),
        "pid": now.counts.pid,
        "state": if now.producer == Holder::AnotherProcess { "alive" } else { "ended" },
        "accepted": now.counts.accepted,
        "recovered": now.counts.written - then.counts.written,
        "torn": count(Reason::Torn),
        "corrupt": count(Reason::Corrupt),
        "left": left(then, now).1,
    })
}
