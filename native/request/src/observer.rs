//! The state of one request while its ASGI messages pass, and the terminal record that ends it.
//!
//! `fields` lists the record's fields. Nothing here parses or waits: a chunk costs a clock reading, a few additions and
//! a capped copy. The record is built once, at the end. A request has exactly one terminal record: the first call of
//! `finish` emits it (P5).

use crate::added::{AddedFields, Recorded};
use crate::capture::{Captured, Content, TextCapture};
use crate::events::{EventReader, Form};
use crate::fields::{
    AfterResponse, Chunk, Duration, End, GenAi, Group, Http, HttpRecord, Identity, ModelRecord, Path, Route, Rpc,
    Stream,
};
use crate::ids::RequestIds;
use crate::in_flight::InFlight;
use crate::in_flight::facts::SHORT_TAIL_BYTES;
use crate::in_flight::terminal::{operation, seconds};
use crate::outcome::{Abort, Answered, Ended, Ending, Outcome, RpcStatus};
use crate::runtime::{Overrides, Runtime};
use crate::sampler::{HeadDecision, Sampler};
use queue::event::{INFO, MODEL_REQUEST, REQUEST, REQUEST_CHUNK};
use queue::producer::Producer;
use queue::record::{BodyText, Scratch};
pub use source::{EngineFacts, ExceptionTexts, ModelFacts, RequestSource, RequestTexts};
use std::sync::Arc;
pub use timeline::Chunks;
use timeline::Timeline;

mod answer;
mod identity;
mod in_flight;
mod plain;
mod sampling;
mod source;
mod timeline;

/// The settings of the observer, the same for all requests of a middleware.
#[derive(Clone, Debug)]
pub struct ObserverSettings {
    pub chunks: Chunks,
    /// The largest number of gaps in one request's timeline.
    pub chunk_timeline_limit: usize,
    pub capture_head_bytes: usize,
    pub capture_tail_bytes: usize,
    /// What happens with the text of bodies: nothing, unless configured.
    pub texts: TextCapture,
    /// What the configuration adds to records.
    pub recorded: Recorded,
    pub sampler: Arc<Sampler>,
}

/// One request under way. What each part of a stream needs comes first, so that it fills few cache lines.
#[derive(Debug)]
#[repr(C)]
pub struct Observer {
    /// Reads the events of the answer; None before a first part that is not the last one.
    events: Option<Box<EventReader>>,
    response_body: Option<Box<Captured>>,
    /// The slot that reports the request if the process dies.
    in_flight: Option<InFlight>,
    bytes_out: u64,
    /// If the request fails, it may be one of the errors that an operator wants whole. Its timeline is kept until then.
    watched: Option<Runtime>,
    /// The chunk mode of this request, if it differs from the configured one.
    chunks: Option<Chunks>,
    /// The last part of the body has passed.
    ended: bool,
    /// The answer's text is kept, and so each part of it; for the facts, usual parts of a stream say nothing new.
    keeps_usual_parts: bool,
    streamed: bool,
    /// The server sent a part of the answer from a file, so the size is not known.
    unknown_size: bool,
    timeline: Timeline,
    status: u16,
    head: HeadDecision,
    started: u64,
    bytes_in: u64,
    /// The application announced trailers, and they have not passed.
    awaits_trailers: bool,
    /// The status of the call over gRPC that the request is.
    rpc: RpcStatus,
    /// When the last part of the answer passed, in monotonic nanoseconds; 0: not yet.
    completed: u64,
    disconnected: bool,
    /// The answer is one JSON document, and its facts are wanted.
    is_json: bool,
    /// The form of the answer's body, as far as it is known.
    form: Form,
    finished: bool,
    forced: bool,
    /// More than `plain` writes has to be said of it.
    unusual: bool,
    /// The request's body is JSON, and its facts are wanted.
    has_facts: bool,
    /// The answer's text is wanted.
    wants_output: bool,
    /// The members are in the slot, and nowhere else.
    members_in_slot: bool,
    /// The body adds the members that the configuration names.
    adds_of_body: bool,
    request_body: Option<Box<Captured>>,
    /// The exception that ended the request, if one did.
    exception: Option<Box<ExceptionTexts>>,
    /// What the configuration and the application add to the record.
    added: Option<Box<AddedFields>>,
    /// The number of bytes that the slot keeps of the body's beginning and end.
    in_flight_limits: (usize, usize),
}

impl Observer {
    /// Begins a request at `now` (monotonic nanoseconds) with the sampler's decision.
    #[must_use]
    pub fn begin(now: u64, head: HeadDecision) -> Self {
        Self {
            head,
            started: now,
            timeline: Timeline::new(),
            bytes_in: 0,
            bytes_out: 0,
            status: 0,
            streamed: false,
            ended: false,
            keeps_usual_parts: false,
            awaits_trailers: false,
            rpc: RpcStatus::NoCall,
            unknown_size: false,
            completed: 0,
            disconnected: false,
            is_json: false,
            form: Form::Unknown,
            events: None,
            finished: false,
            forced: false,
            unusual: head.adjusted_count.is_nan(),
            chunks: None,
            watched: None,
            has_facts: false,
            wants_output: false,
            request_body: None,
            response_body: None,
            exception: None,
            members_in_slot: false,
            adds_of_body: false,
            added: None,
            in_flight: None,
            in_flight_limits: (0, 0),
        }
    }

    /// The request has a body. Keeps its capped ends for the listener, if they are wanted, and later those of the
    /// answer. A private request keeps no text.
    pub fn capture_request(&mut self, content: Content<'_>, is_private: bool, settings: &ObserverSettings) {
        let facts = (settings.capture_head_bytes, settings.capture_tail_bytes);
        self.has_facts = content.has_facts() && facts != (0, 0);
        self.wants_output = !is_private && settings.texts.output.text != BodyText::Withheld;
        self.request_body = settings.texts.request(content, is_private, facts).map(Box::new);
        self.in_flight_limits = match content {
            Content::Json => facts,
            // It names the operation; only a listener that has all of it could read more.
            _ if self.has_facts => (facts.0, 0),
            _ => (0, 0),
        };
        if self.members_in_slot || self.added.is_some() {
            self.in_flight_limits.1 = self.in_flight_limits.1.min(SHORT_TAIL_BYTES);
        }
        let is_read = !is_private && content.is_plain();
        self.adds_of_body = is_read && !settings.recorded.of_bodies().is_empty();
    }

    /// The sampler's decision.
    pub const fn head(&self) -> &HeadDecision {
        &self.head
    }

    /// Replaces the sampler's decision: the request belongs to another trace than it seemed to at its beginning.
    pub fn decide(&mut self, head: HeadDecision) {
        self.unusual |= head.adjusted_count.is_nan();
        self.head = head;
    }

    /// Keeps the record whatever the sampler decided.
    pub fn force(&mut self) {
        (self.forced, self.unusual) = (true, true);
    }

    /// Takes over an operator's overrides for this request.
    #[cold]
    pub fn apply(&mut self, overrides: &Overrides, runtime: Runtime) {
        self.unusual = true;
        self.chunks = overrides.chunks.map(Chunks::from_code);
        if overrides.is_captured {
            (self.chunks, self.forced) = (Some(Chunks::Events), true);
        }
        self.watched = overrides.watches_errors.then_some(runtime);
    }

    /// The chunk mode of this request.
    #[inline]
    #[must_use]
    pub fn chunks(&self, settings: &ObserverSettings) -> Chunks {
        self.chunks.unwrap_or(settings.chunks)
    }

    /// The number of gaps that its timeline keeps.
    #[inline]
    fn gaps_limit(&self, settings: &ObserverSettings) -> usize {
        let is_kept = self.chunks(settings) == Chunks::Timeline || self.watched.is_some();
        if is_kept { settings.chunk_timeline_limit } else { 0 }
    }

    /// Whether the answer's content type matters. If only a failure could still put the request on record, it does not:
    /// a failure reports no usage.
    #[inline]
    #[must_use]
    pub fn wants_content_type(&self, settings: &ObserverSettings) -> bool {
        (self.has_facts && (self.head.kept || self.forced || settings.sampler.keeps_slow())) || self.wants_output
    }

    /// Bytes of the request arrive.
    #[inline]
    pub fn request_bytes(&mut self, bytes: &[u8]) {
        self.bytes_in += bytes.len() as u64;
        self.note_bytes_in(bytes);
        if let Some(capture) = &mut self.request_body {
            capture.push(bytes);
        }
    }

    /// The client went away. After the complete answer this is the usual end.
    #[inline]
    pub fn disconnect(&mut self) {
        self.disconnected |= !self.is_complete();
        self.unusual |= self.disconnected;
    }

    /// Emits a `request.chunk` record for each of the last `chunks`, if the answer is a stream and its request is
    /// sampled; `bytes` is the size of the message that had them, if known.
    pub fn emit_chunks(&self, ids: &RequestIds, producer: &Producer, chunks: u32, bytes: Option<usize>) {
        if !self.streamed || !(self.head.kept || self.forced) {
            return;
        }
        let (last, since_start_s) = self.timeline.last(self.started);
        let (trace, request_id) = (&ids.trace, ids.request_id());
        let bytes = bytes.map(|bytes| bytes as u64).filter(|_| chunks == 1);
        for number in last.saturating_sub(u64::from(chunks)) + 1..=last {
            let mut scratch = Scratch::new();
            Chunk { trace, request_id, number, bytes, since_start_s }.push(&mut scratch);
            producer.emit(REQUEST_CHUNK, INFO, scratch.as_slice());
        }
    }

    /// Ends without a record: it was no request. Returns when it began.
    pub fn discard(&mut self) -> u64 {
        self.finished = true;
        drop(self.in_flight.take().map(InFlight::end));
        self.started
    }

    /// Emits the terminal record, unless it was emitted before or the sampler leaves it out.
    pub fn finish(
        &mut self,
        ids: &RequestIds,
        ending: Ending<'_>,
        source: &RequestSource<'_>,
        now: u64,
        producer: &Producer,
        settings: &ObserverSettings,
    ) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        if self.members_in_slot || self.adds_of_body {
            self.own_all_members(settings);
        }
        let in_flight = match self.in_flight.take().map(InFlight::end) {
            Some(None) => return,
            ending => ending.flatten(),
        };
        let mut scratch = Scratch::new();
        let pushed = self.push_values(&mut scratch, ids, ending, source, now, producer, settings);
        let Some((event, severity)) = pushed else { return };
        match in_flight {
            Some(ending) => ending.record(producer, now, event, severity, scratch.as_slice()),
            None => producer.emit(event, severity, scratch.as_slice()),
        };
    }

    /// Appends the record's values; returns event and severity, or None if the sampler leaves it out.
    #[expect(clippy::too_many_arguments, reason = "as `finish`")]
    fn push_values(
        &mut self,
        to: &mut Scratch,
        ids: &RequestIds,
        ending: Ending<'_>,
        source: &RequestSource<'_>,
        now: u64,
        producer: &Producer,
        settings: &ObserverSettings,
    ) -> Option<(u16, u8)> {
        // Copies, since the groups of this request borrow the rest of its state.
        let (exception, added) = (self.exception.take(), self.added.take());
        let failure = self.events.as_mut().and_then(|events| events.take_failure());
        let failed = failure.as_ref().map(|failure| failure.kind());
        let ended = match source {
            RequestSource::Http { engine, .. } => {
                let aborted = engine.map_or(Abort::No, |engine| engine.aborted);
                let ended = Ended::of(ending, &self.answered(failed, aborted));
                if self.status == 0 && matches!(ended.outcome, Outcome::Error | Outcome::Timeout) {
                    // Every server answers so, also if an application returns without an answer; this happens outside
                    // of the observer.
                    (self.status, self.unknown_size) = (500, true);
                }
                ended
            }
            RequestSource::Model(_) => {
                let (outcome, error_type) = Outcome::of(ending, &self.answered(None, Abort::No));
                Ended { outcome, error_type, after_response: None }
            }
        };
        self.end_watch(&ended, now, settings);
        let last = if self.is_complete() { self.completed } else { now };
        let duration_nano = last.saturating_sub(self.started);
        let Some(sampling) = self.kept(&ended, duration_nano, &settings.sampler) else {
            if let Some(queue) = producer.queue() {
                queue.file.header().count_sampled_out(self.head.left_out_by);
            }
            return None;
        };
        let identity = Identity { trace: &ids.trace, request_id: ids.request_id(), client_request_id: ids.client() };
        let end = End { outcome: ended.outcome, error_type: ended.error_type };
        let duration = Duration { seconds: seconds(duration_nano) };
        let exception = exception.as_ref().map(|exception| exception.within(producer.max_record_bytes()));
        let event = match *source {
            RequestSource::Http { texts, engine } => {
                let http = Http {
                    method: texts.method,
                    path: Path(texts.path),
                    route: Route { prefix: texts.route_prefix, template: texts.route },
                    protocol_version: texts.protocol_version,
                    client_address: texts.client_address,
                    status: (self.status > 0).then_some(u64::from(self.status)),
                    request_bytes: self.bytes_in,
                    response_bytes: (!self.unknown_size).then_some(self.bytes_out),
                };
                let after_response = AfterResponse {
                    seconds: self.is_complete().then(|| seconds(now.saturating_sub(last))),
                    outcome: ended.after_response.map(|(outcome, _)| outcome),
                    error_type: ended.after_response.map_or("", |(_, error_type)| error_type),
                };
                let rpc = (self.rpc != RpcStatus::NoCall).then(|| Rpc {
                    system: "grpc",
                    method: Path(texts.path.strip_prefix(b"/").unwrap_or(texts.path)),
                    status: self.rpc.name(),
                });
                let code = failure.as_ref().and_then(|failure| failure.code()).unwrap_or_default();
                let (stream, gen_ai) = self.stream_and_bodies(texts.path, code, settings);
                let (usage, engine) = (engine.map(|engine| &engine.usage), engine.map(|engine| &engine.engine));
                HttpRecord {
                    identity,
                    end,
                    http,
                    duration,
                    after_response,
                    stream,
                    gen_ai,
                    sampling,
                    added: Self::added(added.as_deref(), producer),
                    usage,
                    engine,
                    exception,
                    rpc,
                }
                .push(to);
                REQUEST
            }
            RequestSource::Model(ModelFacts { served, tensors, usage }) => {
                let (stream, _) = self.stream_and_bodies(b"", "", settings);
                let added = Self::added(added.as_deref(), producer);
                ModelRecord { identity, end, duration, stream, sampling, added, usage, served, tensors, exception }
                    .push(to);
                MODEL_REQUEST
            }
        };
        Some((event, ended.severity()))
    }

    /// The chunks of the answer, and what is kept of the bodies.
    fn stream_and_bodies<'a>(
        &'a mut self,
        path: &[u8],
        error_code: &'a str,
        settings: &ObserverSettings,
    ) -> (Option<Stream<'a>>, GenAi<'a>) {
        if let (Some(events), Some(body)) = (&self.events, &mut self.response_body) {
            body.note(events.notes());
        }
        let is_timed = self.streamed && self.chunks(settings) != Chunks::Off;
        let counted = |count: fn(&EventReader) -> u64| self.events.as_deref().map(count).filter(|count| *count > 0);
        let (keep_alives, frames) = (counted(EventReader::keep_alives), counted(EventReader::frames));
        let stream = if is_timed {
            let is_compressed = (self.form == Form::Compressed).then_some(true);
            let timeline = self.timeline.fields(self.started, is_compressed.is_none());
            Some(Stream { keep_alives, frames, error_code, is_compressed, ..timeline })
        } else {
            (!error_code.is_empty()).then(|| Stream { error_code, ..Stream::default() })
        };
        let gen_ai = GenAi {
            operation: if self.has_facts { operation(path) } else { "" },
            request: self.request_body.as_deref_mut(),
            response: self.response_body.as_deref_mut(),
        };
        (stream, gen_ai)
    }

    /// Whether a part of the answer has not reached the client.
    #[inline]
    #[must_use]
    pub fn broke_off(&self) -> bool {
        self.disconnected || !self.is_complete()
    }

    fn answered<'a>(&self, failed: Option<&'a str>, aborted: Abort) -> Answered<'a> {
        Answered {
            status: self.status,
            complete: self.is_complete(),
            disconnected: self.disconnected,
            failed,
            aborted,
            rpc: self.rpc,
        }
    }
}
