//! The answer while it passes: its beginning, the parts of its body, files, trailers, and the responses of a model.

use super::{Chunks, Observer, ObserverSettings};
use crate::capture::{Captured, Content};
use crate::events::{EventReader, Form, are_events};
use crate::outcome::RpcStatus;
use memchr::memmem::Finder;
use ring::slots::Progress;
use std::sync::LazyLock;

impl Observer {
    /// Whether the whole answer has passed.
    #[inline]
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.completed != 0
    }

    /// The server did not take the last part of the answer.
    pub fn take_back_end(&mut self) {
        self.completed = 0;
    }

    /// Whether the answer has begun: its status cannot change any more.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.status != 0
    }

    /// The answer begins. `content` is the kind of its body, where that matters. Servers refuse a second beginning.
    #[inline]
    pub fn response_start(&mut self, status: u16, content: Option<Content<'_>>, settings: &ObserverSettings) {
        if self.status != 0 {
            return;
        }
        self.status = status;
        self.note_answer();
        if let Some(content) = content {
            self.form = Form::of(content);
            self.is_json = self.has_facts && content == Content::Json;
            let facts =
                if self.has_facts { (settings.capture_head_bytes, settings.capture_tail_bytes) } else { (0, 0) };
            let captured = settings.texts.response(content, !self.wants_output, facts);
            self.keeps_usual_parts = captured.as_ref().is_some_and(Captured::keeps_usual_parts);
            self.response_body = captured.map(Box::new);
        }
    }

    /// A part of the answer's body passes at `now`; returns how many chunks ended with it.
    #[inline]
    pub fn response_body(&mut self, bytes: &[u8], more: bool, now: u64, settings: &ObserverSettings) -> u32 {
        if more && self.usual_part(bytes, now, settings) { 1 } else { self.any_part(bytes, more, now, settings) }
    }

    /// As [`Self::response_body`], without the short way for a usual part.
    pub fn any_part(&mut self, bytes: &[u8], more: bool, now: u64, settings: &ObserverSettings) -> u32 {
        if self.ended {
            // Servers refuse messages after the end.
            return 0;
        }
        if !(more && self.events.is_some()) {
            return self.first_or_last_part(bytes, more, now, settings);
        }
        self.bytes_out += bytes.len() as u64;
        if let Some(capture) = &mut self.response_body {
            capture.push(bytes);
        }
        self.pass(bytes, true, now, settings)
    }

    /// A part of the answer's body passes at `now`, and others follow. Takes it if it adds one chunk like an earlier one,
    /// which has no record of its own; returns whether it does.
    #[inline(always)]
    pub fn usual_part(&mut self, bytes: &[u8], now: u64, settings: &ObserverSettings) -> bool {
        let mode = self.chunks(settings);
        if self.ended || mode == Chunks::Events || !self.events.as_ref().is_some_and(|events| events.is_usual(bytes)) {
            return false;
        }
        self.bytes_out += bytes.len() as u64;
        if self.keeps_usual_parts
            && let Some(capture) = &mut self.response_body
        {
            capture.push(bytes);
        }
        let keeps_gap = mode == Chunks::Timeline || self.watched.is_some();
        self.timeline.next_chunk(now, if keeps_gap { settings.chunk_timeline_limit } else { 0 });
        if let Some(in_flight) = &self.in_flight {
            in_flight.next_chunk(Progress { chunks: self.timeline.chunks(), bytes: self.bytes_out, last_chunk: now });
        }
        true
    }

    /// A part of the answer's body before which there was none, or after which there is none.
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    fn first_or_last_part(&mut self, bytes: &[u8], more: bool, now: u64, settings: &ObserverSettings) -> u32 {
        // Events that come in one message are a stream too.
        self.streamed |= !more && !self.streamed && (self.form == Form::Stream || are_events(bytes));
        self.part(bytes.len() as u64, more, now);
        if let Some(capture) = &mut self.response_body {
            capture.push(bytes);
        }
        if self.streamed {
            if self.events.is_none() && !bytes.is_empty() {
                self.events = Some(Self::begin_events(self.form, self.response_body.as_deref(), settings));
            }
            return self.pass(bytes, more, now, settings);
        }
        if self.is_json && names_failure(bytes) {
            self.read_document(bytes);
        }
        if bytes.is_empty() {
            return 0;
        }
        self.chunks_pass(1, now, settings);
        1
    }

    /// Reads a part of a stream.
    fn pass(&mut self, bytes: &[u8], more: bool, now: u64, settings: &ObserverSettings) -> u32 {
        let Some(events) = self.events.as_mut().filter(|_| !more || !bytes.is_empty()) else { return 0 };
        let passed = events.read_any(bytes, !more);
        self.unusual |= passed.has_failed;
        if !bytes.is_empty() {
            self.timeline.bytes(now);
        }
        self.timeline.kinds(&passed, now);
        if passed.chunks > 0 {
            self.chunks_pass(passed.chunks, now, settings);
        } else if !bytes.is_empty() {
            self.bytes_pass(now);
        }
        passed.chunks
    }

    #[cold]
    #[inline(never)]
    fn begin_events(form: Form, body: Option<&Captured>, settings: &ObserverSettings) -> Box<EventReader> {
        // What the listener reads of a body that only its facts are kept of.
        let notes = if matches!(body, Some(Captured::Ends(_))) { settings.capture_head_bytes } else { 0 };
        Box::new(EventReader::new(form, notes))
    }

    /// Reads a body that came in one piece, which may be a document that reports a failure.
    #[cold]
    #[inline(never)]
    fn read_document(&mut self, document: &[u8]) {
        let mut events = Box::new(EventReader::new(Form::Document, 0));
        events.read(document, true);
        self.unusual |= events.has_failed();
        self.events = events.has_failed().then_some(events);
    }

    /// A part of the answer's body passes at `now` that ends no chunk, such as the beginning of a long message.
    pub fn response_part(&mut self, bytes: &[u8], more: bool, now: u64) {
        if self.ended {
            return;
        }
        self.part(bytes.len() as u64, more, now);
        self.bytes_pass(now);
    }

    #[inline]
    pub(super) fn part(&mut self, bytes: u64, more: bool, now: u64) {
        self.ended = !more;
        if !more && !self.awaits_trailers {
            self.completed = now;
        }
        self.streamed |= more;
        self.bytes_out += bytes;
    }

    /// The server sends a part of the answer from a file (the extensions `pathsend` and `zerocopysend`). Its size is
    /// known only if the application reported it, and none of it is captured.
    pub fn response_file(&mut self, bytes: Option<u64>, more: bool, now: u64, settings: &ObserverSettings) {
        if self.ended {
            return;
        }
        self.part(bytes.unwrap_or(0), more, now);
        if bytes.is_none() {
            (self.unknown_size, self.unusual) = (true, true);
        }
        // Half a body is worse than none.
        self.response_body = None;
        self.chunks_pass(1, now, settings);
    }

    /// The answer has begun and ends with trailers.
    pub fn expect_trailers(&mut self) {
        self.awaits_trailers = !self.ended;
    }

    /// The request is a call over gRPC, with this status as far as it is known.
    pub fn call(&mut self, status: RpcStatus) {
        (self.rpc, self.unusual) = (status, true);
    }

    /// Trailers pass at `now`; `more`: others follow.
    pub fn response_trailers(&mut self, more: bool, now: u64) {
        if self.ended && !more {
            self.awaits_trailers = false;
            self.completed = now;
        }
    }
}

/// Whether a document may say that the answer failed: few have these words.
fn names_failure(document: &[u8]) -> bool {
    // Made once: to make one takes as long as a search.
    static WORDS: LazyLock<[Finder<'static>; 2]> =
        LazyLock::new(|| [b"\"failed\"".as_slice(), b"\"error\""].map(Finder::new));
    WORDS.iter().any(|word| word.find(document).is_some())
}

impl Observer {
    /// A model's response passes; without `is_chunk` it only marks the end.
    pub fn model_response(&mut self, is_chunk: bool, more: bool, now: u64, settings: &ObserverSettings) {
        if self.ended {
            return;
        }
        self.part(0, more, now);
        if is_chunk {
            self.chunks_pass(1, now, settings);
        }
    }

    /// The model answers with a response sender, with any number of responses.
    pub const fn stream(&mut self) {
        self.streamed = true;
    }
}
