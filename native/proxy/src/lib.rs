//! A reverse proxy that records the requests of a server which has no hook of its own.
//!
//! Each worker is one thread with its own event loop, its own connections to the server and a copy of the listening
//! socket, so that no request changes threads.
//!
//! It is a crate of its own, since it is built for speed and the command that starts it for few bytes: what a crate makes
//! of hyper's generic functions is built as that crate is.

#![forbid(unsafe_code)]

mod forward;
mod gate;
pub mod heads;
mod upgrade;
mod upstream;
mod worker;

use forward::Forward;
use gate::Gate;
use inferlog::Log;
use inferlog::layer::RequestLayer;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use worker::Worker;

pub use forward::Forwarded;
pub use upstream::Address;

/// How the proxy serves.
pub struct Serving {
    pub threads: usize,
    /// Every request goes to the server by HTTP/2.
    pub http2: bool,
    pub forwarded: Forwarded,
    /// The largest number of connections of clients; more are closed at once.
    pub most_connections: usize,
    /// How long a client may take for the head of a request, and be idle between two.
    pub head_deadline: Duration,
}

/// The running threads.
pub struct Workers {
    gate: Arc<Gate>,
    end: watch::Sender<Option<Instant>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts threads that pass the requests of `socket` on; with a `log` they are recorded.
    ///
    /// # Errors
    /// A sentence: the log takes no requests, or the system has no thread or no copy of the socket for them.
    pub fn start(socket: &TcpListener, to: &Address, log: Option<Log>, serving: &Serving) -> Result<Self, String> {
        let gate = Arc::new(Gate::new(serving.most_connections, serving.head_deadline, log));
        let layer = log.map(RequestLayer::new).transpose().map_err(|error| error.to_string())?;
        let (end, ends) = watch::channel(None);
        let start = |number: usize| {
            let socket = socket.try_clone().map_err(|error| format!("the listening socket: {error}"))?;
            let forward = Forward::new(to, serving.http2, serving.forwarded)?;
            let worker = Worker { socket, forward, layer: layer.clone(), gate: Arc::clone(&gate), ends: ends.clone() };
            let thread = thread::Builder::new().name(format!("proxy-{number}"));
            thread.spawn(move || worker.run()).map_err(|error| format!("no thread can be started: {error}"))
        };
        let threads = (0..serving.threads).map(start).collect::<Result<Vec<_>, String>>()?;
        Ok(Self { gate, end, threads })
    }

    /// Takes no more connections, and drops the requests that have not ended at `deadline`.
    pub fn end_by(&self, deadline: Instant) {
        // An error: all threads have ended.
        let _ = self.end.send(Some(deadline));
    }

    /// Puts on record that the proxy has ended, and the connections that it closed without a request.
    pub fn report_end(&self) {
        self.gate.report_end();
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
