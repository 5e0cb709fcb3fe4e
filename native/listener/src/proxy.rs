//! `proxy`: starts the reverse proxy of the crate `proxy`, and ends it when a signal says so.

use super::command::Host;
use super::command::{FAILED, Failure, OK};
use super::options::{Options, Syntax};
use crate::options::Configuration;
use inferlog::Log;
use libc::{SIGINT, SIGTERM};
use proxy::{Address, Forwarded, Serving, Workers, say};
use queue::system::{Signals, raise_file_limit};
use std::ffi::OsString;
use std::net::TcpListener;
use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(500);
/// The share of the deadline in which requests may end; the rest is for their records.
const SHARE_OF_REQUESTS: f64 = 0.8;
const MOST_THREADS: i64 = 256;
const MOST_CONNECTIONS: i64 = 1_000_000;
const HEAD_DEADLINE_S: i64 = 30;
const MOST_DEADLINE_S: i64 = 3600;
/// Descriptors that are no connections.
const OTHER_FILES: u64 = 64;

static SYNTAX: Syntax = Syntax {
    name: "proxy",
    help: HELP,
    valued: &[
        "listen", "to", "threads", "forwarded", "max-connections", "header-timeout", "config", "service-name",
        "queue-directory", "directory",
    ],
    flags: &["http2"],
    most_arguments: 0,
};
const HELP: &str = "\
Usage: inference-logging-listener proxy --listen ADDRESS --to ADDRESS [OPTIONS]

  Record the requests of a server that has no hook: pass them on, and the answers back.

  HTTP/1.1 and HTTP/2 without TLS, gRPC, streams and WebSockets. Bodies pass unchanged and as they come. On SIGTERM or
  SIGINT it takes no more connections, lets requests end within drain_deadline_s, and writes what is left; a second
  signal ends it at once.

  Parameters come from options, from variables such as INFERENCE_LOGGING_DIRECTORY, and from the file.

  Exit code: 0 if everything is written, 1 if something is left or it could not start, 2 if the command line or the
  configuration is wrong.

Options:
  --listen ADDRESS        Where clients connect: host:port.  [required]
  --to ADDRESS            The server: host:port, or http://host:port.  [required]
  --http2                 Speak HTTP/2 to the server for every request, not only for gRPC.
  --threads INTEGER       Threads that pass requests on.  [default: one per core; 1<=x<=256]
  --forwarded WHAT        X-Forwarded-For, -Proto and Forwarded of clients: replace them, append to them when what is in
                          front can be trusted, or keep them.  [default: replace]
  --max-connections INTEGER
                          Connections of clients; above it the oldest without a request goes, or the new
                          one.   [default: half of the open files allowed]
  --header-timeout SECONDS
                          How long a client may take for the head of a request, or be idle.  [default: 30; 1<=x<=3600]
  --config PATH           JSON file, as if config_file named it.
  --service-name TEXT     The name of the service in files and records.
  --queue-directory PATH  Where the queue is.
  --directory PATH        Where the segments are written.
  -h, --help              Show this message and exit.
";

/// Runs the command to its end.
///
/// # Errors
/// The command line or the configuration is wrong, or the proxy cannot start.
pub fn run(host: &Host, arguments: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let options = Options::read(host, &SYNTAX, arguments)?;
    let address = |name: &str| {
        let text = options.text(name).ok_or_else(|| options.wrong(&format!("Missing option '--{name}'.")))?;
        Address::parse(text).map_err(|why| options.wrong(&format!("Invalid value for '--{name}': {why}")))
    };
    let (from, to) = (address("listen")?, address("to")?);
    let threads = options.number("threads", "integer range", 1..=MOST_THREADS)?;
    let threads =
        threads.map_or_else(|| thread::available_parallelism().map_or(1, NonZero::get), |given| given as usize);
    let forwarded = options.text("forwarded").unwrap_or("replace").parse::<Forwarded>();
    let forwarded = forwarded.map_err(|why| options.wrong(&format!("Invalid value for '--forwarded': {why}")))?;
    let most_connections = options.number("max-connections", "integer range", 1..=MOST_CONNECTIONS)?;
    let head_deadline_s = options.number("header-timeout", "integer range", 1..=MOST_DEADLINE_S)?;
    let taken = ["config", "service-name", "queue-directory", "directory"];
    let configuration = Configuration::read(host, &options, &taken)?;
    // Signals come first: the first process of a container receives no signal that it does not handle, and threads
    // take over their mask.
    let signals = Signals::take(&[SIGTERM, SIGINT]);
    let most_files = raise_file_limit();
    let socket = TcpListener::bind((from.host(), from.port()))
        .map_err(|error| Failure::Open(format!("--listen {from}: {error}")))?;
    let bound = socket.local_addr().map_err(|error| Failure::Open(format!("--listen {from}: {error}")))?;
    let deadline = configuration.settings.values.drain_deadline_s;
    let log = match configuration.settings.enabled {
        true => Some(Log::with(configuration.resolved()).map_err(|error| Failure::Open(error.to_string()))?),
        false => None,
    };
    let serving = Serving {
        threads,
        http2: options.has("http2"),
        forwarded,
        // Each request has a connection to the server as well.
        most_connections: most_connections.unwrap_or_else(|| (most_files.saturating_sub(OTHER_FILES) / 2).max(1) as i64)
            as usize,
        head_deadline: Duration::from_secs(head_deadline_s.unwrap_or(HEAD_DEADLINE_S) as u64),
    };
    let started = Workers::start(&socket, &to, log, &serving);
    let workers = started.map_err(|sentence| {
        let _ = log.map(|log| log.close(Duration::ZERO));
        Failure::Open(sentence)
    })?;
    drop(socket);
    say(&format!("listens on {bound}, passes requests to {to}"));
    while signals.wait(LOOK).is_none() {}
    say("takes no more connections");
    let stopped = Instant::now();
    workers.end_by(stopped + deadline.mul_f64(SHARE_OF_REQUESTS));
    while !workers.have_ended() && signals.wait(Duration::from_millis(5)).is_none() {}
    workers.report_end();
    let is_written = log.is_none_or(|log| log.close(deadline.saturating_sub(stopped.elapsed())));
    say(if is_written { "ended" } else { "ended; records are left in the queue" });
    Ok(if is_written { OK } else { FAILED })
}
