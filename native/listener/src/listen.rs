//! `listen`: the listener as a process of its own, beside servers that only produce.
//!
//! The listener finds the servers by their queue directory, and knows that they live by locks that the kernel releases,
//! since a sidecar does not see the pids of another container. Any number of listeners may run: one leads, the others
//! wait to take over.

use super::command::Host;
use super::command::{FAILED, Failure, OK};
use super::each;
use super::listeners::Listeners;
use super::options::{Options, Syntax};
use crate::http;
use crate::listeners::{DRAIN_LOOK, LONGEST_INTERVAL_S, LOOK, SHARE_OF_LAST_ROUND, say, say_port};
use crate::options::Configuration;
use libc::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use queue::system::{ENDING, Signals};
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const STATUS_INTERVAL_S: f64 = 60.0;
const METRICS_ADDRESS: &str = "0.0.0.0";

static SYNTAX: Syntax = Syntax {
    name: "listen",
    help: HELP,
    valued: &[
        "config", "service-name", "queue-directory", "each", "forget-after-s", "ended-bytes", "make",
        "status-interval-s", "metrics-port", "metrics-address",
    ],
    flags: &["console"],
    most_arguments: 0,
};
const HELP: &str = "\
Usage: inference-logging-listener listen [OPTIONS]

  Listen for servers that only produce (listener: external), or until another listener fails.

  It starts before or after them, and goes on when they are restarted. On SIGTERM or SIGINT it drains: it goes on as
  long as a server produces, at most drain_deadline_s, writes what is left and ends; a second signal ends it at once.
  SIGUSR1 and SIGHUP ask for a status line (SIGHUP of a closed terminal ends it).

  With --each it is the listener of many queue directories, such as those of all pods of a node: a listener for each,
  in one process. What producers say of their service and their redaction holds for their own directory; all else is
  this command's, and each has the quota for itself. Started as root, it reads and writes each directory as the user that
  owns it.

  Parameters come from options, from variables such as INFERENCE_LOGGING_DIRECTORY, and from the file.

  Exit code: 0 if nothing is left in the queues or another listener goes on, 1 if something is or it could not start,
  2 if the configuration is wrong.

Options:
  --config PATH              JSON file, as if config_file named it.
  --service-name TEXT        As service_name of the servers.
  --queue-directory PATH     As queue_directory of the servers.
  --each PATTERN             Listen in each directory of this form, such as
                             /queues/{k8s.namespace.name}/{k8s.pod.name}/queues: found as they come, drained and removed
                             when their servers have ended. Names in braces become attributes of the resource; segments
                             lie below directory, in a directory for each.
  --forget-after-s FLOAT     With --each: how long no server runs and nothing waits before a directory is forgotten.
                             [default: 60.0; 0<=x<=86400]
  --ended-bytes INTEGER      With --each: most bytes that the segments of forgotten directories have together; the oldest
                             directory's go first. Without it only retention_s limits them.  [0<=x<=2^63]
  --make PATH                With --each: make this directory first, of mode 1777, for others to make theirs in. May be
                             given several times.
  --status-interval-s FLOAT  Time between two status lines on stderr; 0: only on SIGUSR1, and when this process begins
                             to lead.  [default: 60.0; 0<=x<=86400]
  --metrics-port INTEGER     Serve /metrics, /health, /live and /producers there; 0: a free port, which is reported.
                             [0<=x<=65535]
  --metrics-address TEXT     Where to serve them.  [default: 0.0.0.0]
  --console                  Show the records on stderr, as console: on, while this process leads.
  -h, --help                 Show this message and exit.
";

/// Runs the command to its end.
///
/// # Errors
/// The command line or the configuration is wrong, or the listener cannot start.
pub fn run(host: &Host, arguments: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let options = Options::read(host, &SYNTAX, arguments)?;
    let interval_s = options.number("status-interval-s", "float range", 0.0..=LONGEST_INTERVAL_S)?;
    let interval_s = interval_s.unwrap_or(STATUS_INTERVAL_S);
    let port = options.number("metrics-port", "integer range", 0..=i64::from(u16::MAX))?;
    let console: &[(&str, &str)] = if options.has("console") { &[("console", "on")] } else { &[] };
    let taken = ["config", "service-name", "queue-directory"];
    let configuration = Configuration::with(host, &options, &taken, console)?;
    configuration.refuse_foreign_store(host)?;
    // Signals come first: the first process of a container receives no signal that it does not handle.
    let signals = Signals::take(&[SIGTERM, SIGINT, SIGUSR1, SIGHUP]);
    let address = options.text("metrics-address").unwrap_or(METRICS_ADDRESS);
    let port = port.map(|port| (address, port as u16));
    if options.text("each").is_some() {
        return each::run(&options, configuration, &signals, interval_s, port);
    }
    let listeners = Listeners::open(host, &configuration, true).map_err(Failure::Open)?;
    if let Some((address, port)) = port {
        serve_status(&configuration, &listeners, address, port)?;
    }
    listen(&configuration, &listeners, &signals, interval_s);
    Ok(drain(&listeners, &signals, configuration.settings.values.drain_deadline_s))
}

/// Serves health and metrics until the process ends, also while the last records are drained.
fn serve_status(configuration: &Configuration, listeners: &Listeners, address: &str, port: u16) -> Result<(), Failure> {
    match http::open(listeners.watch(configuration), address, port) {
        Ok(port) => say_port(port),
        Err(sentence) => {
            listeners.close(Instant::now());
            return Err(Failure::Open(sentence));
        }
    }
    Ok(())
}

/// Reports the status until a signal asks for the end.
fn listen(configuration: &Configuration, listeners: &Listeners, signals: &Signals, interval_s: f64) {
    let (mut roles, mut due) = (String::new(), Instant::now());
    let mut reported = HashSet::<PathBuf>::new();
    loop {
        // Repeated each round: if the directory was deleted, the process has a new queue.
        listeners.set_only_listens();
        let before = std::mem::replace(&mut roles, listeners.roles());
        if roles != before || (interval_s > 0.0 && Instant::now() >= due) {
            say(&format!("{roles} {}", listeners.counts()));
            due = Instant::now() + Duration::from_secs_f64(interval_s);
        }
        for other in configuration.settings.of_others(&configuration.queue_directory) {
            if reported.insert(other.path) {
                say(&other.sentence);
            }
        }
        match signals.wait(LOOK) {
            Some(number) if ENDING.contains(&number) => return,
            Some(SIGHUP) if std::io::stderr().is_terminal() => return,
            Some(_) => say(&format!("{} {}", listeners.roles(), listeners.counts())),
            None => {}
        }
    }
}

/// Goes on while servers produce, writes what is left, and returns the exit code.
fn drain(listeners: &Listeners, signals: &Signals, deadline: Duration) -> u8 {
    say(&format!("draining {}", listeners.counts()));
    let mut end = Instant::now() + deadline;
    let last_round = end - deadline.mul_f64(SHARE_OF_LAST_ROUND);
    while listeners.is_needed() && Instant::now() < last_round {
        if signals.wait(DRAIN_LOOK).is_some_and(|number| ENDING.contains(&number)) {
            end = Instant::now();
            break;
        }
    }
    listeners.close(end);
    let left = listeners.left();
    say(&format!("ended {} left={left}", listeners.counts()));
    if left > 0 { FAILED } else { OK }
}
