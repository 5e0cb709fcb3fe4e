//! Reads the events of an answer while its bytes pass, wherever its messages are cut.
//!
//! A body message is not an event: one message may hold several events, and an event may come in several messages. The
//! reader follows Server-Sent Events (WHATWG, "Parsing an event stream"), newline-delimited JSON, and the array of
//! Gemini's streams. It says which events add content, reasoning or a tool call, which only frame it, which keep the
//! connection alive, and which report a failure. It knows the APIs by the keys of their events, not by the route
//! (`place`); each other event with data is content. It holds no byte back, and its state has one size for any stream.
//!
//! Most events have the shape of the one before, so two comparisons are enough (`template`). Of each other one the JSON
//! is walked once (`walker`). What the listener needs from a stream's beginning is noted (`notes`).

mod form;
mod held;
mod notes;
mod place;
mod seen;
mod template;
mod walker;

pub use form::{Form, are_events, are_lines};
use held::Held;
use notes::Notes;
use seen::Event;
pub use seen::{Failure, Kinds};
use template::Template;
use walker::Walker;

/// Most bytes of a field's name with a mark before it, and of an event's name.
const FIELD: usize = 9;
const NAME: usize = 48;
/// Most bytes of one body that is one document: a longer one is not walked further.
const DOCUMENT: usize = 64 << 10;
const MARK: &[u8] = "\u{FEFF}".as_bytes();

/// The part of a line that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    #[default]
    Start,
    Data,
    Name,
    Ignored,
}

/// What passed with one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Events that add to the answer.
    pub chunks: u32,
    /// What they add, and what the first of them adds.
    pub kinds: Kinds,
    pub first: Kinds,
    /// An event that has passed by now reports that the answer failed; not said with a usual message.
    pub has_failed: bool,
}

impl Passed {
    fn chunk(&mut self, kinds: Kinds) {
        if self.chunks == 0 {
            self.first = kinds;
        }
        self.chunks += 1;
        self.kinds = self.kinds.and(kinds);
    }
}

/// The reader of one answer. What a usual message needs comes first.
#[derive(Debug, Default)]
#[repr(C)]
pub struct EventReader {
    /// Where in the message the event begins; None: in an earlier one.
    start: Option<usize>,
    template: Template,
    form: Form,
    line: Line,
    /// The last line ended in CR: a LF that follows belongs to it.
    after_cr: bool,
    skips_blank: bool,
    field: Held<FIELD>,
    name: Held<NAME>,
    /// The event has a field or a comment; a comment; a name; a field of data.
    is_begun: bool,
    has_comment: bool,
    has_name: bool,
    has_data: bool,
    /// The data has more than blanks; and it is JSON.
    has_ink: bool,
    is_json: bool,
    /// Bytes of the event's data; its first ones.
    data_length: u64,
    begin: Held<6>,
    walker: Walker,
    /// Messages of an array of which nothing is known yet.
    waiting: u32,
    failure: Option<Box<Failure>>,
    keep_alives: u64,
    frames: u64,
}

impl EventReader {
    /// Begins to read a body of this form; notes up to so many bytes of what comes before the content.
    #[must_use]
    pub fn new(form: Form, notes_limit: usize) -> Self {
        let mut reader = Self { form, start: Some(0), ..Self::default() };
        reader.walker.notes = Notes::new(notes_limit);
        reader
    }

    /// Reads a part of a document, which may say that the answer was not made.
    fn read_document(&mut self, part: &[u8]) {
        self.walker.feed(part, 0);
        if self.walker.is_done && self.walker.seen.has_given_up() {
            self.fail();
        }
    }

    /// Reads the next message of the body; `is_last`: no other follows.
    pub fn read(&mut self, bytes: &[u8], is_last: bool) -> Passed {
        if self.is_usual(bytes) {
            let kinds = self.template.kinds;
            return Passed { chunks: 1, kinds, first: kinds, has_failed: false };
        }
        self.read_any(bytes, is_last)
    }

    /// Whether the next message is one event that adds the same kind of text as one before it, and says nothing else.
    /// Most are. Such a message need not be read.
    #[inline(always)]
    pub fn is_usual(&self, bytes: &[u8]) -> bool {
        self.start == Some(0) && self.template.is_like(bytes)
    }

    /// Reads any message.
    #[inline(never)]
    pub fn read_any(&mut self, bytes: &[u8], is_last: bool) -> Passed {
        let mut passed = Passed::default();
        if matches!(self.form, Form::Unknown | Form::Stream) && !bytes.is_empty() {
            self.form = self.form.of_first(bytes);
        }
        match self.form {
            Form::Events | Form::Lines => {
                if self.start == Some(0) && is_blank(bytes) {
                    self.keep_alives += 1;
                } else {
                    self.read_lines(bytes, &mut passed);
                }
                if is_last {
                    self.end_last(bytes, &mut passed);
                }
                self.start = self.start.filter(|_| self.is_at_boundary()).and(Some(0));
            }
            Form::Array { is_known } => self.read_array(bytes, is_last, is_known, &mut passed),
            _ if bytes.is_empty() => {}
            // Line ends before the first event.
            Form::Stream => self.keep_alives += 1,
            Form::Document => {
                passed.chunk(Kinds::CONTENT);
                if self.failure.is_none() && self.data_length < DOCUMENT as u64 {
                    self.data_length += bytes.len() as u64;
                    self.read_document(bytes);
                }
            }
            Form::Unknown | Form::Parts | Form::Compressed => passed.chunk(Kinds::CONTENT),
        }
        if passed.chunks > 0 {
            self.walker.notes.stop();
        }
        passed.has_failed = self.has_failed();
        passed
    }

    /// Whether an event has reported that the answer failed.
    #[inline]
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The first failure, in the server's words.
    pub fn take_failure(&mut self) -> Option<Box<Failure>> {
        self.failure.take()
    }

    fn fail(&mut self) {
        let failure = self.walker.seen.failure.take().unwrap_or_default();
        self.failure.get_or_insert(failure);
    }

    /// How many messages kept the connection alive.
    #[must_use]
    pub const fn keep_alives(&self) -> u64 {
        self.keep_alives
    }

    /// How many events framed the content.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        self.frames
    }

    /// What was noted of the stream's beginning.
    #[must_use]
    pub fn notes(&self) -> &[u8] {
        self.walker.notes.as_bytes()
    }

    fn is_at_boundary(&self) -> bool {
        self.line == Line::Start && self.field.is_empty() && !self.is_begun && !self.after_cr
    }

    fn read_lines(&mut self, bytes: &[u8], passed: &mut Passed) {
        let mut at = 0;
        while at < bytes.len() {
            if self.start == Some(at)
                && let Some(length) = self.template.event(&bytes[at..])
            {
                passed.chunk(self.template.kinds);
                at += length;
                self.start = Some(at);
                continue;
            }
            if std::mem::take(&mut self.after_cr) && bytes[at] == b'\n' {
                at += 1;
                continue;
            }
            let rest = &bytes[at..];
            let is_empty = matches!(rest[0], b'\n' | b'\r');
            let length = if is_empty { Some(0) } else { memchr::memchr2(b'\n', b'\r', rest) };
            let line = &rest[..length.unwrap_or(rest.len())];
            if !line.is_empty() {
                self.part(line, at);
            }
            let Some(length) = length else { return };
            at += length + 1;
            if rest[length] == b'\r' {
                match rest.get(length + 1) {
                    Some(b'\n') => at += 1,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            self.end_line(bytes, at, passed);
        }
    }

    /// A part of a line, without its end.
    fn part(&mut self, part: &[u8], at: usize) {
        match self.line {
            Line::Start if self.form == Form::Lines => {
                self.line = Line::Data;
                self.data(part, at);
            }
            Line::Start => {
                // Most lines.
                if self.field.is_empty()
                    && let Some(data) = part.strip_prefix(b"data: ")
                {
                    (self.is_begun, self.skips_blank, self.line) = (true, false, Line::Data);
                    self.begin_data();
                    return self.data(data, at + 6);
                }
                let colon = memchr::memchr(b':', part);
                let is_longer = !self.field.push(&part[..colon.unwrap_or(part.len())]);
                if let Some(colon) = colon {
                    self.begin_value(is_longer);
                    self.part(&part[colon + 1..], at + colon + 1);
                } else if is_longer {
                    self.line = Line::Ignored;
                }
            }
            Line::Data => {
                let skipped = self.blank(part);
                self.data(&part[skipped..], at + skipped);
            }
            Line::Name => {
                let skipped = self.blank(part);
                self.name.push(&part[skipped..]);
            }
            Line::Ignored => {}
        }
    }

    /// A field's name has ended.
    fn begin_value(&mut self, is_longer: bool) {
        (self.skips_blank, self.is_begun) = (true, true);
        let name = self.field.get();
        let name = name.strip_prefix(MARK).unwrap_or(name);
        self.line = match name {
            _ if is_longer => Line::Ignored,
            b"" => {
                self.has_comment = true;
                Line::Ignored
            }
            b"data" => {
                self.begin_data();
                Line::Data
            }
            // llama.cpp's server has such a field; the standard ignores it.
            b"error" => {
                self.walker.seen.set_name(b"error");
                self.begin_data();
                Line::Data
            }
            b"event" => {
                self.has_name = true;
                self.name.clear();
                Line::Name
            }
            _ => Line::Ignored,
        };
    }

    /// Another line of data begins.
    fn begin_data(&mut self) {
        self.has_data = true;
        if self.data_length > 0 {
            self.data(b"\n", usize::MAX);
        }
    }

    /// The number of blanks to skip: at most one, at a value's beginning.
    fn blank(&mut self, part: &[u8]) -> usize {
        if part.is_empty() || !std::mem::take(&mut self.skips_blank) {
            return 0;
        }
        usize::from(part[0] == b' ')
    }

    fn data(&mut self, part: &[u8], at: usize) {
        self.begin.push(part);
        if !self.has_ink
            && let Some(first) = part.trim_ascii_start().first()
        {
            (self.has_ink, self.is_json) = (true, matches!(first, b'{' | b'['));
            if self.is_json {
                self.walker.notes.begin_event();
            }
        }
        self.data_length += part.len() as u64;
        if self.is_json {
            self.walker.feed(part, at);
        }
    }

    /// A line has ended; the next one begins at `at` in the message.
    fn end_line(&mut self, bytes: &[u8], at: usize, passed: &mut Passed) {
        let is_blank = self.line == Line::Start && self.field.is_empty();
        if self.line == Line::Start && !is_blank {
            // A field without a value.
            self.begin_value(false);
        }
        let is_data = self.line == Line::Data;
        self.line = Line::Start;
        self.field.clear();
        if is_blank || (self.form == Form::Lines && is_data) {
            self.end_event(bytes, at, passed);
        }
    }

    /// An event has ended; the next one begins at `at` in the message.
    fn end_event(&mut self, bytes: &[u8], at: usize, passed: &mut Passed) {
        if self.has_name {
            self.walker.seen.set_name(self.name.get());
        }
        if let Some(event) = self.event() {
            self.count(event, passed);
            if let Event::Chunk(kinds) = event {
                let is_usual =
                    self.walker.seen.texts == 1 && !self.walker.seen.is_singular && !self.walker.seen.has_failed();
                match (self.start, self.walker.text_at.clone()) {
                    (Some(start), Some(text)) if is_usual && text.start >= start && !self.after_cr => {
                        self.template.learn(&bytes[start..at], text.start - start..text.end - start, kinds);
                    }
                    _ => {}
                }
            }
        }
        if self.is_json {
            self.walker.notes.end_event();
        }
        self.start = Some(at);
        self.begin_event();
    }

    fn count(&mut self, event: Event, passed: &mut Passed) {
        match event {
            Event::KeepAlive => self.keep_alives += 1,
            Event::Frame => self.frames += 1,
            Event::Chunk(kinds) => passed.chunk(kinds),
        }
    }

    fn begin_event(&mut self) {
        if self.walker.seen.has_failed() {
            self.fail();
        }
        self.walker.clear();
        (self.data_length, self.has_ink, self.is_json) = (0, false, false);
        (self.is_begun, self.has_comment, self.has_name, self.has_data) = (false, false, false, false);
        self.begin.clear();
    }

    /// Whether the data is the end mark of OpenAI's APIs.
    fn is_end(&self) -> bool {
        self.data_length == 6 && self.begin.get() == b"[DONE]"
    }

    /// What has ended; None: nothing.
    fn event(&self) -> Option<Event> {
        if self.data_length > 0 && (self.has_ink || self.form == Form::Events) {
            return Some(if self.is_end() { Event::Frame } else { self.walker.seen.event() });
        }
        if self.walker.seen.has_failed() {
            return Some(Event::Frame);
        }
        (self.has_comment || self.has_data || self.walker.seen.is_keep_alive()).then_some(Event::KeepAlive)
    }

    /// The body has ended. Its last event may lack its empty line: it counts if it is whole, since it may be a failure.
    fn end_last(&mut self, bytes: &[u8], passed: &mut Passed) {
        if self.is_json && !self.walker.is_done {
            return;
        }
        if self.line != Line::Start || !self.field.is_empty() {
            self.end_line(bytes, bytes.len(), passed);
        }
        if self.is_begun && (self.is_json || self.is_end() || self.has_name || !self.has_ink) {
            self.end_event(bytes, bytes.len(), passed);
        }
    }
}

/// Whether a message has nothing but line ends.
fn is_blank(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| matches!(byte, b'\n' | b'\r'))
}
