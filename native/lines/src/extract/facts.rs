//! The facts of a request or response: collected from scalars with their paths, written as members of a line.

use super::keys::Key;
use super::keys::Visit;
use super::{Declared, ExtractedFacts};
use crate::catalogue::{Semconv, derived};
use crate::json::escape;
use crate::json::lex::Scalar;
use std::ops::Range;
use usage::{Number, Usage, push_number};

mod usage;

/// Longest string taken from a body; the rest is cut.
pub const MAX_TEXT_BYTES: usize = 256;
/// Most finish reasons, stop sequences and tools; choices with a higher index are skipped.
pub const MAX_CHOICES: usize = 16;

/// Facts of a request. If a key is there twice, the last one counts, as in JSON readers; null is no value.
#[derive(Default)]
pub struct RequestFacts<'a> {
    pub model: Option<&'a [u8]>,
    stream: Option<bool>,
    max_tokens: Option<Number>,
    temperature: Option<Number>,
    top_p: Option<Number>,
    top_k: Option<Number>,
    seed: Option<Number>,
    choice_count: Option<Number>,
    frequency_penalty: Option<Number>,
    presence_penalty: Option<Number>,
    stops: Few<&'a [u8]>,
    output_type: Option<&'a [u8]>,
    tools: Few<Tool<'a>>,
    open_tool: Tool<'a>,
}

/// The first values of a list.
struct Few<T>([Option<T>; MAX_CHOICES]);

impl<T: Copy> Default for Few<T> {
    fn default() -> Self {
        Self([None; MAX_CHOICES])
    }
}

impl<T> Few<T> {
    fn add(&mut self, value: T) {
        if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
            *place = Some(value);
        }
    }
}

/// A tool that the model may call: `function` has its name, or it has one itself.
#[derive(Clone, Copy, Default)]
struct Tool<'a> {
    kind: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
}

impl<'a> Visit<'a, Key> for RequestFacts<'a> {
    fn scalar(&mut self, path: &[Key], value: Scalar<'a>) {
        match path {
            [Key::Stop, Key::Item] => {
                if let Some(stop) = as_text(value) {
                    self.stops.add(stop);
                }
            }
            [Key::ResponseFormat, Key::Type] | [Key::Text, Key::Format, Key::Type] => {
                set(&mut self.output_type, as_text(value));
            }
            [Key::Tools, Key::Item, Key::Type] => set(&mut self.open_tool.kind, as_text(value)),
            [Key::Tools, Key::Item, Key::Name] | [Key::Tools, Key::Item, Key::Function, Key::Name] => {
                set(&mut self.open_tool.name, as_text(value));
            }
            _ => {}
        }
        let [key] = path else { return };
        match key {
            Key::FrequencyPenalty => set(&mut self.frequency_penalty, Number::of(value)),
            Key::PresencePenalty => set(&mut self.presence_penalty, Number::of(value)),
            Key::Stop => {
                if let Some(stop) = as_text(value) {
                    self.stops.add(stop);
                }
            }
            Key::Model => set(&mut self.model, as_text(value)),
            Key::Stream => set(&mut self.stream, as_bool(value)),
            Key::MaxTokens => set(&mut self.max_tokens, Number::whole(value)),
            Key::Temperature => set(&mut self.temperature, Number::of(value)),
            Key::TopP => set(&mut self.top_p, Number::of(value)),
            Key::TopK => set(&mut self.top_k, Number::of(value)),
            Key::Seed => set(&mut self.seed, Number::whole(value)),
            Key::ChoiceCount => set(&mut self.choice_count, Number::whole(value)),
            _ => {}
        }
    }

    fn open(&mut self, path: &[Key]) {
        if let [Key::Tools, Key::Item] = path {
            self.open_tool = Tool::default();
        }
    }

    fn close(&mut self, path: &[Key]) {
        if let [Key::Tools, Key::Item] = path {
            self.tools.add(std::mem::take(&mut self.open_tool));
        }
    }
}

impl RequestFacts<'_> {
    /// Append the facts as `,"key":value`; return where in `out` the tools are.
    pub fn push(&self, out: &mut Vec<u8>) -> Range<usize> {
        push_text(out, derived::REQUEST_MODEL.member, self.model);
        if let Some(stream) = self.stream {
            derived::REQUEST_STREAM.push(out, if stream { "true" } else { "false" });
        }
        push_number(out, derived::MAX_TOKENS.member, self.max_tokens);
        push_number(out, derived::TEMPERATURE.member, self.temperature);
        push_number(out, derived::TOP_P.member, self.top_p);
        push_number(out, derived::TOP_K.member, self.top_k);
        push_number(out, derived::SEED.member, self.seed);
        push_number(out, derived::CHOICE_COUNT.member, self.choice_count);
        push_number(out, derived::FREQUENCY_PENALTY.member, self.frequency_penalty);
        push_number(out, derived::PRESENCE_PENALTY.member, self.presence_penalty);
        push_texts(out, derived::STOP_SEQUENCES, self.stops.0.iter().flatten());
        match self.output_type {
            Some(b"json_object" | b"json_schema" | b"json") => {
                derived::OUTPUT_TYPE.push(out, r#""json""#);
            }
            Some(b"text") => derived::OUTPUT_TYPE.push(out, r#""text""#),
            _ => {}
        }
        let start = out.len();
        self.push_tools(out);
        start..out.len()
    }

    /// Append the tools, without what describes them.
    fn push_tools(&self, out: &mut Vec<u8>) {
        push_list(
            out,
            derived::TOOLS,
            self.tools.0.iter().flatten().filter(|tool| tool.name.is_some()),
            |out, tool| {
                push_text(out, r#"{"type":"#, Some(tool.kind.unwrap_or(b"function")));
                push_text(out, r#","name":"#, tool.name);
                out.push(b'}');
            },
        );
    }
}

/// Facts of a response, over all of its events if it is a stream: the last ones count.
#[derive(Default)]
pub struct ResponseFacts<'a> {
    id: Option<&'a [u8]>,
    model: Option<&'a [u8]>,
    usage: Usage,
    /// The usage object that is being read; it replaces `usage` if there is anything in it.
    open_usage: Usage,
    finish_reasons: [Option<&'a [u8]>; MAX_CHOICES],
    /// The index of a choice without an index: one after the choice before.
    next_index: usize,
    open_choice: Choice<'a>,
    /// The usage that is being read is that of a begin; none is being read.
    open_usage_is_begin: Option<bool>,
    /// Events come, which may wrap the body.
    stream: bool,
    /// The usage is that of a begin, whose output is not known yet.
    is_begun: bool,
    /// The wrapper of the usage is lost: it is that of a begin if another event follows.
    is_doubtful: bool,
}

#[derive(Clone, Copy, Default)]
struct Choice<'a> {
    index: Option<usize>,
    finish_reason: Option<&'a [u8]>,
}

impl<'a> ResponseFacts<'a> {
    /// Begin without facts; `stream` says that events come, not one body.
    pub fn new(stream: bool) -> Self {
        Self { stream, ..Self::default() }
    }

    /// Take over the open facts of a document that was cut.
    pub fn end_document(&mut self) {
        let open = self.open_usage_is_begin.take();
        if open.is_some() {
            self.open_usage.cut();
        }
        self.take_usage(open.unwrap_or(false));
        if self.open_choice.finish_reason.is_some() {
            self.take_choice();
        }
        self.open_choice = Choice::default();
    }

    /// Let choices without an index count from 0 again: another event begins.
    pub fn begin_event(&mut self) {
        self.next_index = 0;
    }

    /// Append the facts as `,"key":value`, in the names of `semconv`.
    pub fn push(&self, out: &mut Vec<u8>, semconv: Semconv) {
        push_text(out, derived::RESPONSE_ID.member, self.id);
        push_text(out, derived::RESPONSE_MODEL.member, self.model);
        push_texts(out, derived::FINISH_REASONS, self.finish_reasons.iter().flatten());
        self.usage.push(out, semconv);
        if self.usage.has_tokens() && !self.is_begun {
            derived::USAGE_SOURCE.push(out, r#""response""#);
        }
    }

    /// The facts, for the counts of requests.
    pub fn extracted(&self) -> ExtractedFacts<'a> {
        let usage = &self.usage;
        ExtractedFacts {
            model: self.model,
            usage: usage.has_tokens().then_some(if self.is_begun { Declared::Begin } else { Declared::All }),
            cached: usage.all_cached().is_some(),
            tokens: [usage.all_input(), usage.all_output()].map(|tokens| tokens.and_then(Number::unsigned)),
            tools: 0..0,
        }
    }

    /// Take over a usage: that of a begin, or the final one.
    fn take_usage(&mut self, is_begin: bool) {
        let mut usage = std::mem::take(&mut self.open_usage);
        if usage.is_empty() {
            return;
        }
        if is_begin {
            usage.begin();
        }
        // The Messages API reports some of it only at the beginning of a stream.
        let is_more = self.is_begun || !usage.has_input();
        self.usage = if is_more { usage.or(self.usage) } else { usage };
        (self.is_begun, self.is_doubtful) = (is_begin, false);
    }

    fn take_choice(&mut self) {
        let choice = std::mem::take(&mut self.open_choice);
        let index = choice.index.unwrap_or(self.next_index);
        self.next_index = index.saturating_add(1);
        if let Some(slot) = self.finish_reasons.get_mut(index) {
            set(slot, choice.finish_reason);
        }
    }

    /// Return the path from the body on, without the wrapper that events may have.
    fn in_body<'p>(&self, path: &'p [Key]) -> &'p [Key] {
        match path {
            // A stream as one array, or a list of answers.
            [Key::Item, body @ ..] => self.unwrapped(body),
            _ => self.unwrapped(path),
        }
    }

    fn unwrapped<'p>(&self, path: &'p [Key]) -> &'p [Key] {
        match path {
            [Key::Response | Key::Message | Key::Delta, body @ ..] if self.stream => body,
            // Groq and Moonshot wrap the usage.
            [Key::Groq, body @ ..] | [Key::Choices, Key::Item, body @ ..]
                if self.stream && matches!(body, [Key::Usage, ..]) =>
            {
                body
            }
            // The wrapper's key is in the missing part; its end, with the usage, is here.
            [Key::Lost, Key::Usage, ..] if self.stream => &path[1..],
            _ => path,
        }
    }
}

impl<'a> Visit<'a, Key> for ResponseFacts<'a> {
    fn scalar(&mut self, path: &[Key], value: Scalar<'a>) {
        match *self.in_body(path) {
            [Key::Id] => set(&mut self.id, as_text(value)),
            [Key::Model] => set(&mut self.model, as_text(value)),
            [Key::Type] if self.is_doubtful => {
                self.usage.begin();
                (self.is_begun, self.is_doubtful) = (true, false);
            }
            [Key::StopReason | Key::FinishReason]
            | [Key::Details, Key::FinishReason]
            | [Key::IncompleteDetails, Key::Reason] => {
                // llama.cpp's word for an answer that goes on.
                set(&mut self.finish_reasons[0], as_text(value).filter(|reason| *reason != b"none"));
            }
            [Key::Choices, Key::Item, Key::Index] => {
                set(&mut self.open_choice.index, Number::count(value).and_then(Number::index));
            }
            // Often only the end of a long choice was kept; nothing else in a response has this key.
            [Key::Choices | Key::Lost, Key::Item, Key::FinishReason] => {
                set(&mut self.open_choice.finish_reason, as_text(value));
            }
            ref path => self.open_usage.take(path, value),
        }
    }

    fn open(&mut self, path: &[Key]) {
        match self.in_body(path) {
            [Key::Usage] => {
                self.open_usage = Usage::default();
                self.open_usage_is_begin = Some(matches!(path, [Key::Message, _]));
            }
            [Key::Choices | Key::Lost, Key::Item] => self.open_choice = Choice::default(),
            _ => {}
        }
    }

    fn close(&mut self, path: &[Key]) {
        match self.in_body(path) {
            [Key::Usage] => {
                let is_begin = self.open_usage_is_begin.take().unwrap_or(false);
                self.take_usage(is_begin);
                self.is_doubtful = matches!(path, [Key::Lost, _]);
            }
            [Key::Choices, Key::Item] => self.take_choice(),
            // Not every lost array is that of the choices: only a finish reason shows it.
            [Key::Lost, Key::Item] if self.open_choice.finish_reason.is_some() => self.take_choice(),
            _ => {}
        }
    }
}

fn set<T>(slot: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *slot = value;
    }
}

fn as_text(value: Scalar<'_>) -> Option<&[u8]> {
    match value {
        Scalar::Text(text) => Some(text),
        Scalar::Word(_) => None,
    }
}

fn as_bool(value: Scalar<'_>) -> Option<bool> {
    match value {
        Scalar::Word(b"true") => Some(true),
        Scalar::Word(b"false") => Some(false),
        _ => None,
    }
}

fn push_text(out: &mut Vec<u8>, key: &str, raw: Option<&[u8]>) {
    let Some(raw) = raw else { return };
    out.extend_from_slice(key.as_bytes());
    let mut plain = [0; MAX_TEXT_BYTES];
    let (len, _) = escape::unescape(raw, &mut plain);
    escape::push_string(out, &plain[..len]);
}

fn push_texts<'a>(out: &mut Vec<u8>, key: derived::Key, texts: impl Iterator<Item = &'a &'a [u8]>) {
    push_list(out, key, texts, |out, text| push_text(out, "", Some(text)));
}

/// Append a list; nothing if it is empty.
fn push_list<T>(out: &mut Vec<u8>, key: derived::Key, items: impl Iterator<Item = T>, push: impl Fn(&mut Vec<u8>, T)) {
    let mut before = key.member;
    for item in items {
        out.extend_from_slice(before.as_bytes());
        if before != "," {
            out.push(b'[');
        }
        push(out, item);
        before = ",";
    }
    if before == "," {
        out.push(b']');
    }
}
