//! Reads inference facts from captured bodies: model, parameters, usage and finish reasons, never the text.
//!
//! It runs in the listener, on a body that is whole or whose first and last bytes were kept. A string that a client or
//! a model wrote can never pass for a fact: the head is read forwards from its first byte, and the tail backwards from
//! the end of the document to the first byte that is certainly structure (`lex`), and from there forwards with the
//! paths that are still known (`scan`). In a stream, each `data:` line is such a document, and so is a line of JSON.
//!
//! | body     | keys read | members written |
//! |----------|-----------|-----------------|
//! | request  | top level: `model`, `stream`, `max_tokens` (also `max_completion_tokens`, `max_output_tokens`), `temperature`, `top_p`, `top_k`, `seed`, `n`, both penalties, `stop`, the format's type, names of `tools` | `gen_ai.request.*`, `gen_ai.output.type`, `gen_ai.tool.definitions` |
//! | form     | `model`, `stream` and other small parts by name, name, type and size of the file | `gen_ai.request.*`, `form.*`, `file.*` |
//! | response | `id`, `model`, `choices[].finish_reason`, `usage`, in the names of the Chat, the Responses and the Messages API, of Cohere's, Gemini's, Ollama's, llama.cpp's and TGI's | `gen_ai.response.*`, `gen_ai.usage.*`, `audio_input_s`, `usage_source` |
//! | stream   | the same in each event, or in its `response`, `message` or `delta` | the same, the last ones count; but the output of a begin is no final usage |
//!
//! Invariants: no input makes it panic; time is linear in the capture; strings are cut at 256 bytes, finish reasons at
//! 16, and everything is escaped again; facts that are missing, null, or of another type are left out.

use crate::catalogue::Semconv;
use crate::json::lex;
use facts::{RequestFacts, ResponseFacts};
use form::Form;
use keys::{Key, LEVELS};
use keys::{Visit, scan};
use queue::record::{Body, BodyKind};
use request::events::{are_events, are_lines};
use std::ops::Range;

pub use members::push_members;
pub use messages::{UnknownStreams, push_texts};
pub use readable::Readable;

mod facts;
mod form;
mod keys;
mod members;
mod messages;
mod readable;

type Resume = lex::Resume<LEVELS>;

/// The facts of a body, for the counts of requests.
#[derive(Default)]
pub struct ExtractedFacts<'a> {
    /// The model, in the form between its quotes.
    pub model: Option<&'a [u8]>,
    /// What the body declares of the tokens that it took.
    pub usage: Option<Declared>,
    /// And how many of them were in a cache.
    pub cached: bool,
    /// The tokens of the input and of the output, as far as the body declares them.
    pub tokens: [Option<u64>; 2],
    /// Where the names of the tools are in the line; empty: there are none.
    pub tools: Range<usize>,
}

/// How much of its usage an answer declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// What is known at the begin of a stream: the input.
    Begin,
    /// All that it says.
    All,
}

/// Append the facts in `body` to `out`, each as `,"key":value`, in the names of `semconv`.
pub fn push_facts<'a>(out: &mut Vec<u8>, body: &Body<'a>, semconv: Semconv) -> ExtractedFacts<'a> {
    let body = &as_stream(*body);
    match body.kind {
        BodyKind::Request => {
            let mut facts = RequestFacts::default();
            scan(without_mark(body.head), Resume::default(), &mut facts);
            scan_end(body.tail, &mut facts);
            let tools = facts.push(out);
            ExtractedFacts { model: facts.model, tools, ..ExtractedFacts::default() }
        }
        BodyKind::Response => {
            let mut facts = ResponseFacts::new(false);
            scan(without_mark(body.head), Resume::default(), &mut facts);
            facts.end_document();
            scan_end(last_element(body), &mut facts);
            facts.end_document();
            facts.push(out, semconv);
            facts.extracted()
        }
        BodyKind::Stream => {
            let mut facts = ResponseFacts::new(true);
            scan_events(without_mark(body.head), &mut facts);
            scan_last_events(body.tail, &mut facts);
            facts.push(out, semconv);
            facts.extracted()
        }
        BodyKind::RequestForm => push_form(out, body, None),
        // Not JSON, or a body that must be put together first.
        _ => ExtractedFacts::default(),
    }
}

/// A body that its type calls a text or a document is a stream too, if it begins as events or lines of JSON do.
fn as_stream(body: Body<'_>) -> Body<'_> {
    let is_other = matches!(body.kind, BodyKind::Response | BodyKind::ResponseText);
    if is_other && (are_events(body.head) || are_lines(body.head)) {
        Body { kind: BodyKind::Stream, ..body }
    } else {
        body
    }
}

/// As [`push_facts`], of a form that had this many bytes in all.
#[cold]
pub fn push_form<'a>(out: &mut Vec<u8>, body: &Body<'a>, bytes: Option<u64>) -> ExtractedFacts<'a> {
    ExtractedFacts { model: Form::of(body, bytes).push(out), ..ExtractedFacts::default() }
}

/// Scan the end of a document whose beginning may be missing.
fn scan_end<'a>(bytes: &'a [u8], visit: &mut impl Visit<'a, Key>) {
    if let Some(start) = lex::resume_point::<LEVELS>(bytes) {
        scan(bytes, start, visit);
    }
}

/// The tail of a document; that of an array ends with its last element.
fn last_element<'a>(body: &Body<'a>) -> &'a [u8] {
    let is_array = without_mark(body.head).trim_ascii_start().starts_with(b"[");
    let tail = body.tail.trim_ascii_end();
    if is_array { tail.strip_suffix(b"]").unwrap_or(tail) } else { tail }
}

fn scan_events<'a>(events: &'a [u8], facts: &mut ResponseFacts<'a>) {
    // A line may end in LF, CRLF or CR; the empty lines that a CRLF causes hold nothing.
    for document in documents(events) {
        facts.begin_event();
        scan(document, Resume::default(), facts);
        facts.end_document();
    }
}

/// Scan events whose first line may have lost its beginning.
fn scan_last_events<'a>(events: &'a [u8], facts: &mut ResponseFacts<'a>) {
    let first_end = events.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(events.len());
    let (first, rest) = events.split_at(first_end);
    facts.begin_event();
    scan_end(first, facts);
    facts.end_document();
    scan_events(rest, facts);
}

/// The documents of a stream: what stands behind `data:`, and lines that are JSON.
fn documents(events: &[u8]) -> impl Iterator<Item = &[u8]> {
    events.split(|byte| matches!(byte, b'\n' | b'\r')).filter_map(|line| match line {
        [b'd', b'a', b't', b'a', b':', data @ ..] => Some(data),
        // A line of an array's elements, as Gemini streams them.
        [b'[' | b',', rest @ ..] => Some(rest.trim_ascii_start()).filter(|rest| rest.starts_with(b"{")),
        [b'{', ..] => Some(line),
        _ => None,
    })
}

fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(bytes)
}
