//! The terminal record of a request that its process did not end: the process has died, or has closed its queue (P5).
//!
//! The record is built from the slot's facts, field by field, as the queue's own schema names them. The schema may be
//! another build's.

use super::facts::Facts;
use crate::added::Members;
use crate::fields::{CHUNKS_S, Group, MEMBERS, Served};
use crate::in_flight::facts::SlotFacts;
use crate::outcome::Outcome;
use queue::event::{EventSchema, MODEL_REQUEST, REQUEST};
use queue::hex;
use queue::record::{Body, BodyKind, BodyText, Scratch};
use ring::slots::{LastRecord, Progress, Slot};

/// Builds the record of the request in `slot`, with `until` (monotonic) as its last sign of life. `schemas` are the
/// queue's.
#[must_use]
pub fn record(slot: Slot<'_>, outcome: Outcome, until: u64, schemas: &[EventSchema]) -> LastRecord {
    let open = Open { facts: slot.read_facts(), progress: slot.read_progress(), outcome, until };
    let of_id = |id| schemas.iter().find(|schema| schema.id == id);
    // Earlier builds had one field list for both kinds.
    let schema = of_id(MODEL_REQUEST).filter(|_| open.facts.is_model).or_else(|| of_id(REQUEST));
    let mut payload = Scratch::new();
    for field in schema.map_or(&[][..], |schema| &schema.fields) {
        if open.facts.is_model && field == Served::FIELDS[0].name {
            payload.push_values(&open.facts.body_head);
            break;
        }
        open.push(field, &mut payload);
    }
    LastRecord {
        event: schema.map_or(REQUEST, |schema| schema.id),
        severity: outcome.severity(),
        time_unix_nano: open.facts.started_unix_nano.saturating_add(open.duration_nano()),
        payload: payload.as_slice().to_vec(),
    }
}

struct Open {
    facts: Facts,
    progress: Progress,
    outcome: Outcome,
    until: u64,
}

impl Open {
    fn duration_nano(&self) -> u64 {
        self.until.saturating_sub(self.facts.started)
    }

    fn push(&self, field: &str, to: &mut Scratch) {
        let facts = &self.facts;
        match field {
            "trace" => to.push_trace(&facts.trace),
            "request_id" => to.push_bytes(&hex::of_id(facts.own_id)),
            "client_request_id" => push_text(to, &facts.client_id),
            "url.path" | "http.request.body.size" | "http.response.body.size" | "request_body" if facts.is_model => {
                to.push_absent();
            }
            "outcome" => to.push_str(self.outcome.name()),
            "error.type" if self.outcome == Outcome::ProcessDied => to.push_str(self.outcome.name()),
            "http.request.method" => push_text(to, &facts.method),
            "url.path" => to.push_bytes(&facts.path),
            "http.route" => push_text(to, &facts.route),
            "network.protocol.version" => push_text(to, &facts.protocol_version),
            "client.address" => push_text(to, &facts.client_address),
            "http.response.status_code" if facts.answer.status > 0 => to.push_uint(u64::from(facts.answer.status)),
            "http.request.body.size" => to.push_uint(facts.bytes_in),
            "http.response.body.size" if !facts.answer.unknown_size => to.push_uint(self.progress.bytes),
            "duration_s" => to.push_float(seconds(self.duration_nano())),
            "gen_ai.operation.name" if !facts.body_head.is_empty() && !facts.is_model => match operation(&facts.path) {
                "" => to.push_absent(),
                name => to.push_str(name),
            },
            "request_body" => self.push_body(to),
            MEMBERS if !facts.members.is_empty() => to.push_body(&Members::body(&facts.members)),
            "sampled_by" => to.push_str(if self.outcome == Outcome::ProcessDied { "error" } else { "abort" }),
            "adjusted_count" => to.push_float(1.0),
            _ if facts.answer.streamed && self.progress.chunks > 0 => self.push_chunks(field, to),
            _ => to.push_absent(),
        }
    }

    fn push_chunks(&self, field: &str, to: &mut Scratch) {
        let (progress, first) = (&self.progress, self.facts.first_chunk);
        match field {
            "chunks" => to.push_uint(progress.chunks),
            "gen_ai.response.time_to_first_chunk" => to.push_float(seconds(first.saturating_sub(self.facts.started))),
            "chunk_gap_mean_us" if progress.chunks > 1 => {
                to.push_uint(progress.last_chunk.saturating_sub(first) / 1000 / (progress.chunks - 1));
            }
            CHUNKS_S if progress.chunks > 1 => to.push_float(seconds(progress.last_chunk.saturating_sub(first))),
            _ => to.push_absent(),
        }
    }

    fn push_body(&self, to: &mut Scratch) {
        let Facts { body_head: head, body_tail: tail, bytes_in, .. } = &self.facts;
        let complete = (head.len() + tail.len()) as u64 == *bytes_in;
        if head.is_empty() {
            to.push_absent();
        } else if complete {
            let whole = [&head[..], tail].concat();
            to.push_body(&Body {
                kind: BodyKind::Request,
                head: &whole,
                tail: &[],
                complete,
                text: BodyText::Withheld,
            });
        } else {
            to.push_body(&Body { kind: BodyKind::Request, head, tail, complete, text: BodyText::Withheld });
        }
    }
}

fn push_text(to: &mut Scratch, text: &[u8]) {
    if text.is_empty() { to.push_absent() } else { to.push_bytes(text) }
}

/// Seconds as records carry them.
#[inline]
pub fn seconds(nanoseconds: u64) -> f64 {
    // Whole microseconds are as exact as a clock reading, and shorter in the line.
    (nanoseconds / 1000) as f64 / 1e6
}

/// OpenTelemetry's name of the operation behind a path of an inference server. If there is none, the path's own word;
/// empty for any other path.
pub fn operation(path: &[u8]) -> &'static str {
    const OPERATIONS: [(&[u8], &str); 13] = [
        (b"/chat/completions", "chat"),
        (b"/completions", "text_completion"),
        (b"/embeddings", "embeddings"),
        (b"/responses", "chat"),
        // Anthropic's API.
        (b"/v1/messages", "chat"),
        (b"/chat/completions/batch", "chat"),
        // Cohere's API.
        (b"/v2/embed", "embeddings"),
        (b"/inference/v1/generate", "text_completion"),
        (b"/score", "score"),
        (b"/rerank", "rerank"),
        (b"/classify", "classify"),
        (b"/pooling", "pooling"),
        (b"/generative_scoring", "score"),
    ];
    OPERATIONS.iter().find(|(suffix, _)| path.ends_with(suffix)).map_or("", |(_, name)| name)
}
