//! Reads inference facts from captured bodies: model, parameters, usage and finish reasons, never the text.
//!
//! It runs in the listener, on a body that is whole or whose first and last bytes were kept. A string that a client or
//! a model wrote can never pass for a fact: the head is read forwards from its first byte, and the tail backwards from
//! the end of the document to the first byte that is certainly structure (`lex`), and from there forwards with the
//! paths that are still known (`scan`). In a stream, each `data:` line is such a document.
//!
//! | body     | keys read | members written |
//! |----------|-----------|-----------------|
//! | request  | top level: `model`, `stream`, `max_tokens` (also `max_completion_tokens`, `max_output_tokens`), `temperature`, `top_p`, `top_k`, `seed`, `n`, both penalties, `stop`, the format's type, names of `tools` | `gen_ai.request.*`, `gen_ai.output.type`, `gen_ai.tool.definitions` |
//! | response | `id`, `model`, `choices[].finish_reason` or `stop_reason`, `usage` in the names of the Chat, the Responses and the Messages API | `gen_ai.response.*`, `gen_ai.usage.*`, `usage_source` |
//! | stream   | the same in each event, or in its `response` or `message`; `delta.stop_reason` | the same, the last ones count |
//!
//! Invariants: no input makes it panic; time is linear in the capture; strings are cut at 256 bytes, finish reasons at
//! 16, and everything is escaped again; facts that are missing, null, or of another type are left out.

use facts::{RequestFacts, ResponseFacts};
use keys::{Key, LEVELS};
use scan::{Visit, scan};

use queue::record::{Body, BodyKind};
use std::ops::Range;

mod facts;
mod keys;
mod members;
mod messages;
mod scan;

pub use members::push_members;
pub use messages::push_texts;

use crate::json::lex;
use crate::names::Semconv;

type Resume = lex::Resume<LEVELS>;

/// The facts of a body, for the counts of requests.
#[derive(Default)]
pub struct ExtractedFacts<'a> {
    /// The model, in the form between its quotes.
    pub model: Option<&'a [u8]>,
    /// The body declares how many tokens it took.
    pub usage: bool,
    /// And how many of them were in a cache.
    pub cached: bool,
    /// The tokens of the input and of the output, as far as the body declares them.
    pub tokens: [Option<u64>; 2],
    /// Where the names of the tools are in the line; empty: there are none.
    pub tools: Range<usize>,
}

/// Append the facts in `body` to `out`, each as `,"key":value`, in the names of `semconv`.
pub fn push_facts<'a>(out: &mut Vec<u8>, body: &Body<'a>, semconv: Semconv) -> ExtractedFacts<'a> {
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
            scan_end(body.tail, &mut facts);
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
        // Not JSON, or a stream that must be unpacked first.
        _ => ExtractedFacts::default(),
    }
}

/// Scan the end of a document whose beginning may be missing.
fn scan_end<'a>(bytes: &'a [u8], visit: &mut impl Visit<'a, Key>) {
    if let Some(start) = lex::resume_point::<LEVELS>(bytes) {
        scan(bytes, start, visit);
    }
}

fn scan_events<'a>(events: &'a [u8], facts: &mut ResponseFacts<'a>) {
    // A line may end in LF, CRLF or CR; the empty lines that a CRLF causes hold nothing.
    for line in events.split(|byte| matches!(byte, b'\n' | b'\r')) {
        if let Some(data) = line.strip_prefix(b"data:") {
            facts.begin_event();
            scan(data, Resume::default(), facts);
            facts.end_document();
        }
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

fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(bytes)
}
