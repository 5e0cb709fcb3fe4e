//! The commands of `inference-logging` that need no Python: `listen`, `recover`, `verify`, `ctl`, `proxy`,
//! `supervise`, `install`.
//!
//! The program `inference-logging-listener` contains them. `inference-logging` reads the configuration and calls them.
//!
//! ```text
//! listen                       the command: leads or waits, reports its status, drains at the end
//!   ├ http                     a bounded HTTP server, and what it answers: /metrics, /health, /live, /producers
//!   ├ listeners                the listener of each lane, the pace of its rounds, and its lines on stderr
//!   └ each                     the listeners of many queue directories in one process, their metrics and health as one
//!       ├ pattern              which directories those are
//!       ├ served               one directory and its listeners, as the user that owns it
//!       └ ended                the segments of directories that are gone
//! recover                      the command: lets the listeners write what is left
//! verify                       the command: reads segments and queues
//!   └ report                   what was found, in words
//! ctl                          the command: changes what running servers do, for a while
//!   └ control                  run-time changes to a queue directory, and the removal of one that is out of use
//! comparison                   the servers' side of `ab`: recording off and on in slices
//! proxy                        the command: starts the proxy for a server that has no hook (feature `proxy`)
//! supervise                    the command: starts a listener or a shipper again when it ends; `install`
//! application                  the queue directories that a command means
//! options                      the command line; options, environment and file as one configuration
//! command                      the program that runs a command; what ends one, and its exit code
//! ```

#![forbid(unsafe_code)]

use command::{Failure, Host, OK, USAGE};
use parameters::json;
use queue::platform;
use serde_json::Value;
use std::ffi::OsString;

pub mod application;
pub mod command;
pub mod comparison;
mod control;
mod ctl;
mod each;
mod http;
mod listen;
mod listeners;
mod options;
#[cfg(feature = "proxy")]
mod proxy;
mod recover;
mod report;
mod supervise;
mod verify;

const NAME: &str = "inference-logging-listener";
const HELP: &str = "\
Usage: inference-logging-listener COMMAND [OPTIONS]

  The listener of inference servers that only produce, without Python.

Options:
  -V, --version  Show the version and exit.
  -h, --help     Show this message and exit.

Commands:
  listen     Be the listener of servers that only produce: a sidecar.
  recover    Write what dead servers left in their queues.
  verify     Prove that no record is missing, or name each gap.
  ctl        Change level, sampling and capture while the servers run.
  proxy      Record the requests of a server that has no hook.
  supervise  Be the parent of a listener or a shipper in a container, and start it again when it ends.
  install    Copy this program into a directory, to be a parent in a container of another image.

Exit codes:
  0    done; a check found nothing
  1    failed, a check found something, or something is left
  2    wrong command line or configuration, or nothing there to read: nothing was done
  130  ended by Ctrl-C
  141  the reader of the output went away
";

/// Runs a command line to its end, and returns the exit code.
pub fn run(host: &Host, mut arguments: impl Iterator<Item = OsString>) -> u8 {
    let command = arguments.next().unwrap_or_default().to_string_lossy().into_owned();
    let ended = match command.as_str() {
        "listen" => listen::run(host, arguments),
        "recover" => recover::run(host, arguments),
        "verify" => verify::run(host, arguments),
        "ctl" => ctl::run(host, arguments),
        #[cfg(feature = "proxy")]
        "proxy" => self::proxy::run(host, arguments),
        "supervise" => supervise::run(host, arguments),
        "install" => supervise::install(host, arguments),
        "-h" | "--help" => Ok(command::show(HELP, OK)),
        "-V" | "--version" => Ok(command::show(&version(), OK)),
        "" => {
            eprint!("{HELP}");
            Ok(USAGE)
        }
        other => Err(Failure::usage(NAME, &format!("no such command: '{other}'"))),
    };
    ended.unwrap_or_else(|failure| failure.show())
}

/// The answer to `--version`: of a build for development it names the half of `platform` that it has.
fn version() -> String {
    let platform = if platform::NAME == "linux" { "" } else { " (portable)" };
    format!("{NAME} {}{platform}\n", env!("CARGO_PKG_VERSION"))
}

/// The text of a value.
fn ascii_text(value: &Value) -> String {
    json::ascii(&value.to_string()).unwrap_or_default()
}
