//! `inference-logging-listener`: the listener of servers that only produce, as a program that needs no Python.

#![forbid(unsafe_code)]

use listener::host::Host;
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(listener::run(&Host::default(), std::env::args_os().skip(1)))
}
