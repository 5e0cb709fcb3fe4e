//! The beginning of a request, whichever server it came through: the sampler's decision, an operator's overrides, and
//! the slot of the flight recorder.

use crate::ids::RequestIds;
use crate::in_flight::InFlight;
use crate::in_flight::facts::Begun;
use crate::observer::{Observer, ObserverSettings};
use crate::runtime::{Overrides, Runtime};
use crate::sampler::{HeadDecision, Sampler};
use queue::layout::SampledOut;
use queue::producer::{Producer, QueueSettings};
use queue::system::WallClock;
use std::io;
use std::sync::Arc;

/// The requests of one middleware or one model: the destination of their records, and what is observed of them.
pub struct Requests {
    pub producer: Arc<Producer>,
    pub runtime: Runtime,
    pub settings: ObserverSettings,
    pub clock: WallClock,
}

/// Opens the queue of a process that has requests, and the page of an operator's overrides.
///
/// # Errors
/// A sentence that names what cannot be created.
pub fn open_producer(queue: QueueSettings) -> Result<(Producer, Runtime), String> {
    let (directory, bytes) = (queue.directory.clone(), queue.queue_bytes);
    let producer = Producer::open(queue).map_err(|error| match error.kind() {
        // The directory belongs to another configuration.
        io::ErrorKind::AddrInUse => format!("queue_directory={error}"),
        _ => {
            format!("a queue of {bytes} bytes cannot be created in queue_directory={}: {error}", directory.display())
        }
    })?;
    InFlight::end_with(&producer);
    let runtime = Runtime::open(&directory)
        .map_err(|error| format!("run-time control in queue_directory={}: {error}", directory.display()))?;
    Ok((producer, runtime))
}

/// A request's path. Patterns of the configuration are compared with all of it and with the part behind the prefix.
#[derive(Clone, Copy, Debug)]
pub struct ServedPath<'a> {
    pub whole: &'a [u8],
    /// The length of the prefix that a proxy has put in front; 0: there is none.
    pub prefix: usize,
}

impl<'a> ServedPath<'a> {
    /// The path as the application knows it.
    #[inline]
    #[must_use]
    pub fn within(self) -> &'a [u8] {
        self.whole.get(self.prefix..).unwrap_or_default()
    }

    /// The part that the sampler's patterns are compared with: all of it where one of them names it so.
    #[inline]
    #[must_use]
    pub fn sampled(self, sampler: &Sampler) -> &'a [u8] {
        if self.prefix == 0 || sampler.names(self.whole) { self.whole } else { self.within() }
    }
}

/// The facts about a request at its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Monotonic nanoseconds.
    pub now: u64,
    pub method: &'a [u8],
    /// The path that decides about sampling and captures; the request's own, unless a model serves it.
    pub path: &'a [u8],
    /// As [`ServedPath::prefix`].
    pub prefix: usize,
    /// Version of HTTP; empty for a model.
    pub protocol_version: &'a [u8],
    /// As the server reports it; empty for a model.
    pub client_address: &'a [u8],
    /// As [`Begun::model`].
    pub model: &'a [u8],
}

impl Requests {
    /// Begins a request. `trusts_caller` is called to find out whether the sender of its trace may decide, if any
    /// caller may.
    #[inline]
    pub fn begin(
        &self,
        ids: &mut RequestIds,
        start: &Start<'_>,
        trusts_caller: impl FnOnce(&Sampler) -> bool,
    ) -> Observer {
        let (head, overrides) =
            self.decide(ids, ServedPath { whole: start.path, prefix: start.prefix }, start.now, trusts_caller);
        let mut observer = Observer::begin(start.now, head);
        if let Some(overrides) = &overrides {
            observer.apply(overrides, self.runtime);
        }
        let begun = Begun {
            started: start.now,
            started_unix_nano: self.clock.unix_nano_at(start.now),
            ids,
            method: start.method,
            path: if start.model.is_empty() { start.path } else { b"" },
            protocol_version: start.protocol_version,
            client_address: start.client_address,
            is_probe: !head.kept && head.left_out_by == SampledOut::Skipped,
            model: start.model,
        };
        if let Some(in_flight) = InFlight::begin(&self.producer, &begun) {
            observer.enter(in_flight, begun.is_whole());
            ids.take_changed();
        }
        observer
    }

    /// Asks the sampler about a request, and writes its decision into the trace unless another party decides it. Also
    /// returns the operator's overrides.
    #[inline]
    pub fn decide(
        &self,
        ids: &mut RequestIds,
        path: ServedPath<'_>,
        now: u64,
        trusts_caller: impl FnOnce(&Sampler) -> bool,
    ) -> (HeadDecision, Option<Overrides>) {
        let (sampler, runtime) = (&self.settings.sampler, &self.runtime);
        let caller = ids.caller(|| sampler.trusts_anybody() && trusts_caller(sampler));
        let trace_id = &ids.trace.trace_id;
        let overrides = runtime.overrides_requests().then(|| {
            let mut found = runtime.of_request(trace_id, path.whole, now);
            if path.prefix > 0 {
                found.is_captured |= runtime.of_request(trace_id, path.within(), now).is_captured;
            }
            found
        });
        let path = path.sampled(sampler);
        let head = match overrides.and_then(|overrides| overrides.ratio) {
            None => sampler.head(trace_id, caller, path, now),
            Some(ratio) => sampler.head_at_ratio(ratio, trace_id, caller, path, now),
        };
        ids.set_decision(caller, &head);
        (head, overrides)
    }
}
