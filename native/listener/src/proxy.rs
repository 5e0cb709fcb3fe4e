//! `proxy`: starts the reverse proxy of the crate `proxy`, and ends it when a signal says so.

use super::configuration::Configuration;
use super::failure::{FAILED, Failure, OK};
use super::host::Host;
use super::options::{Options, Syntax};
use inferlog::Log;
use libc::{SIGINT, SIGTERM};
use proxy::{Address, Workers, say};
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

static SYNTAX: Syntax = Syntax {
    name: "proxy",
    help: HELP,
    valued: &["listen", "to", "threads", "config", "service-name", "queue-directory", "directory"],
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
    let taken = ["config", "service-name", "queue-directory", "directory"];
    let configuration = Configuration::read(host, &options, &taken)?;
    // Signals come first: the first process of a container receives no signal that it does not handle, and threads
    // take over their mask.
    let signals = Signals::take(&[SIGTERM, SIGINT]);
    raise_file_limit();
    let socket = TcpListener::bind((from.host(), from.port()))
        .map_err(|error| Failure::Open(format!("--listen {from}: {error}")))?;
    let bound = socket.local_addr().map_err(|error| Failure::Open(format!("--listen {from}: {error}")))?;
    let deadline = configuration.settings.drain_deadline();
    let log = match configuration.settings.is_enabled() {
        true => Some(Log::with(configuration.resolved()).map_err(|error| Failure::Open(error.to_string()))?),
        false => None,
    };
    let started = Workers::start(&socket, &to, log, threads, options.has("http2"));
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
    let is_written = log.is_none_or(|log| log.close(deadline.saturating_sub(stopped.elapsed())));
    say(if is_written { "ended" } else { "ended; records are left in the queue" });
    Ok(if is_written { OK } else { FAILED })
}
