//! `inference-logging-listener`: the listener of servers that only produce, as a program that needs no Python.
//!
//! Its commands take the options, write the lines and end with the codes of `inference-logging`, which has the same
//! commands among others.
//!
//! ```text
//! listen                       the command: leads or waits, tells how it goes, drains at the end
//!   ├ endpoint                 /metrics, /health, /live, /producers
//!   │   └ http                 a bounded HTTP server: connections, time, bytes
//!   ├ listeners                the listener of each lane
//!   └ signals                  waits that a signal ends
//! recover                      the command: has the listeners write what is left
//!   └ held                     queues that can be read after their files are gone
//! verify                       the command: reads segments and queues
//!   └ report                   what was found, in words
//! configuration                options, environment and file as one configuration
//! options                      the command line
//! failure                      what ends a command, and its exit code
//! ```

#![forbid(unsafe_code)]

use failure::Failure;
use std::process::ExitCode;

mod configuration;
mod endpoint;
mod failure;
mod held;
mod http;
mod listen;
mod listeners;
mod options;
mod recover;
mod report;
mod signals;
mod verify;

const NAME: &str = "inference-logging-listener";
const HELP: &str = "\
Usage: inference-logging-listener COMMAND [OPTIONS]

  The listener of inference servers that only produce, without Python.

Options:
  -V, --version  Show the version and exit.
  -h, --help     Show this message and exit.

Commands:
  listen   Be the listener of servers that only produce: a sidecar.
  recover  Write what dead servers left in their queues.
  verify   Prove that no record is missing, or name each gap.

Exit codes:
  0    done; a check found nothing
  1    failed, a check found something, or something is left
  2    wrong command line or configuration, or nothing there to read: nothing was done
  130  ended by Ctrl-C
  141  the reader of the output went away
";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().unwrap_or_default().to_string_lossy().into_owned();
    let ended = match command.as_str() {
        "listen" => listen::run(arguments),
        "recover" => recover::run(arguments),
        "verify" => verify::run(arguments),
        "-h" | "--help" => Ok(failure::show(HELP, failure::OK)),
        "-V" | "--version" => Ok(failure::show(&format!("{NAME} {}\n", env!("CARGO_PKG_VERSION")), failure::OK)),
        "" => {
            eprint!("{HELP}");
            return ExitCode::from(failure::USAGE);
        }
        other => Err(Failure::usage(NAME, &format!("no such command: '{other}'"))),
    };
    ended.unwrap_or_else(|failure| failure.show())
}
