//! A reverse proxy that records the requests of a server which has no hook of its own.
//!
//! Each worker is one thread with its own event loop, its own connections to the server and a copy of the listening
//! socket, so that no request changes threads.
//!
//! It is a crate of its own, since it is built for speed and the command that starts it for few bytes: what a crate makes
//! of hyper's generic functions is built as that crate is.

#![forbid(unsafe_code)]

mod address;
mod forward;
mod passed;
mod upgrade;
mod upstream;
mod worker;

use forward::Forward;
use inferlog::Log;
use inferlog::layer::RequestLayer;
use std::net::TcpListener;
use std::thread::{self, JoinHandle};
use std::time::Instant;
use tokio::sync::watch;
use worker::Worker;

pub use address::Address;

/// The running threads.
pub struct Workers {
    end: watch::Sender<Option<Instant>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `threads` that pass the requests of `socket` on; with a `log` they are recorded.
    ///
    /// # Errors
    /// A sentence: the log takes no requests, or the system has no thread or no copy of the socket for them.
    pub fn start(
        socket: &TcpListener,
        to: &Address,
        log: Option<Log>,
        threads: usize,
        http2: bool,
    ) -> Result<Self, String> {
        let layer = log.map(RequestLayer::new).transpose().map_err(|error| error.to_string())?;
        let (end, ends) = watch::channel(None);
        let start = |number: usize| {
            let socket = socket.try_clone().map_err(|error| format!("the listening socket: {error}"))?;
            let forward = Forward::new(to, http2)?;
            let worker = Worker { socket, forward, layer: layer.clone(), ends: ends.clone() };
            let thread = thread::Builder::new().name(format!("proxy-{number}"));
            thread.spawn(move || worker.run()).map_err(|error| format!("no thread can be started: {error}"))
        };
        let threads = (0..threads).map(start).collect::<Result<Vec<_>, String>>()?;
        Ok(Self { end, threads })
    }

    /// Takes no more connections, and drops the requests that have not ended at `deadline`.
    pub fn end_by(&self, deadline: Instant) {
        // An error: all threads have ended.
        let _ = self.end.send(Some(deadline));
    }

    /// Whether every thread has ended.
    #[must_use]
    pub fn have_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

/// Writes a line to stderr.
pub fn say(line: &str) {
    eprintln!("inference-logging proxy: {line}");
}
