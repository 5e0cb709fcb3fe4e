//! `inference-logging-listener`: the listener of servers that only produce, as a program that needs no Python.
//!
//! It is a crate of its own, since link-time optimisation works as the last crate is built: this one for speed, as the
//! proxy and the encoder need it, and the commands of `listener` for few bytes.

#![forbid(unsafe_code)]

use listener::command::Host;
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(listener::run(&Host::default(), std::env::args_os().skip(1)))
}
