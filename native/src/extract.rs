//! Facts of an inference request, read by the listener from capped captures of its bodies (P11).
//!
//! Top-level keys of the OpenAI-compatible APIs become OpenTelemetry attributes; nothing else of a body is kept. Of a
//! body that was longer than its capture, the head is read forwards and the tail backwards, so a key in a text that the
//! client chose is never taken for a key of the document. Linear time, bounded output, never panics.

mod forward;
mod reverse;

use crate::encode::escape;
use crate::record::{Body, BodyKind};
use forward::Value;

/// Longest text that is taken from a body.
const LONGEST_TEXT: usize = 256;
/// Most choices whose finish reasons are kept.
const MOST_CHOICES: usize = 16;

/// Numbers of a request: the key in the body, the attribute. Of several with one attribute, the last wins.
const REQUEST_NUMBERS: [(&[u8], &str); 8] = [
    (b"max_tokens", "gen_ai.request.max_tokens"),
    (b"max_completion_tokens", "gen_ai.request.max_tokens"),
    (b"max_output_tokens", "gen_ai.request.max_tokens"),
    (b"temperature", "gen_ai.request.temperature"),
    (b"top_p", "gen_ai.request.top_p"),
    (b"top_k", "gen_ai.request.top_k"),
    (b"seed", "gen_ai.request.seed"),
    (b"n", "gen_ai.request.choice.count"),
];

/// Appends `,"attribute":value` for each fact in `body`.
pub fn push_facts(out: &mut Vec<u8>, body: &Body<'_>) {
    match body.kind {
        BodyKind::Request => Request::read(body).push(out),
        BodyKind::Response => Response::read_json(body).push(out),
        BodyKind::Stream => Response::read_stream(body).push(out),
    }
}

#[derive(Default)]
struct Request<'a> {
    model: Option<&'a [u8]>,
    stream: Option<bool>,
    numbers: [Option<&'a [u8]>; REQUEST_NUMBERS.len()],
}

impl<'a> Request<'a> {
    fn read(body: &Body<'a>) -> Self {
        let mut request = Self::default();
        forward::members(body.head, |key, value| request.take(key, value));
        if !body.complete {
            reverse::members(body.tail, |key, value| request.take(key, value), |_| ());
        }
        request
    }

    fn take(&mut self, key: &[u8], value: Value<'a>) {
        match (key, value) {
            (b"model", Value::Text(text)) => self.model = Some(text),
            (b"stream", Value::Bool(flag)) => self.stream = Some(flag),
            (key, Value::Number(number)) => {
                if let Some(position) = REQUEST_NUMBERS.iter().position(|(name, _)| *name == key) {
                    self.numbers[position] = Some(number);
                }
            }
            _ => (),
        }
    }

    fn push(&self, out: &mut Vec<u8>) {
        push_text(out, "gen_ai.request.model", self.model);
        if let Some(stream) = self.stream {
            push_raw(out, "gen_ai.request.stream", if stream { b"true" } else { b"false" });
        }
        for (position, (_, attribute)) in REQUEST_NUMBERS.iter().enumerate() {
            let later = REQUEST_NUMBERS.iter().zip(&self.numbers).skip(position + 1);
            let overruled = later.into_iter().any(|((_, other), number)| other == attribute && number.is_some());
            if let Some(number) = self.numbers[position].filter(|_| !overruled) {
                push_raw(out, attribute, number);
            }
        }
    }
}

#[derive(Default)]
struct Response<'a> {
    id: Option<&'a [u8]>,
    model: Option<&'a [u8]>,
    usage: Usage<'a>,
    /// By choice index.
    finish_reasons: [Option<&'a [u8]>; MOST_CHOICES],
}

#[derive(Default)]
struct Usage<'a> {
    input: Option<&'a [u8]>,
    output: Option<&'a [u8]>,
    cache_read: Option<&'a [u8]>,
    reasoning: Option<&'a [u8]>,
}

impl<'a> Response<'a> {
    fn read_json(body: &Body<'a>) -> Self {
        let mut response = Self::default();
        response.read_document(body.head);
        if !body.complete {
            response.read_end(body.tail);
        }
        response
    }

    fn read_stream(body: &Body<'a>) -> Self {
        let mut response = Self::default();
        let mut text = if body.complete { body.head } else { body.tail };
        if !body.complete {
            match text.iter().position(|byte| *byte == b'\n') {
                // The first line began before the capture.
                Some(end) => {
                    let (first, rest) = text.split_at(end);
                    if rest.iter().all(u8::is_ascii_whitespace) {
                        response.read_end(first);
                    }
                    text = rest;
                }
                None => response.read_end(text),
            }
        }
        for line in text.split(|byte| *byte == b'\n') {
            if let Some(data) = line.strip_prefix(b"data:") {
                response.read_document(data);
            }
        }
        response
    }

    /// Reads a document from its start. Later documents of a stream overrule earlier ones.
    fn read_document(&mut self, document: &'a [u8]) {
        forward::members(document, |key, value| self.take(key, value));
    }

    /// Reads a document of which only the end is there.
    fn read_end(&mut self, end: &'a [u8]) {
        let mut cut_off: Option<&[u8]> = None;
        reverse::members(end, |key, value| self.take(key, value), |rest| cut_off = Some(rest));
        if let Some(choices) = cut_off {
            // Only `choices` is that long an array of objects; its last ones tell how they ended.
            let mut found = [None; MOST_CHOICES];
            let mut count = 0;
            reverse::elements(choices, |choice| {
                let (mut index, mut reason) = (None, None);
                let visit = |key: &'a [u8], value: Value<'a>| match (key, value) {
                    (b"finish_reason", Value::Text(text)) => reason = Some(text),
                    (b"index", Value::Number(number)) => index = small(number),
                    _ => (),
                };
                reverse::members(choice, visit, |_| ());
                if count < MOST_CHOICES && reason.is_some() {
                    found[count] = Some((index, reason));
                    count += 1;
                }
            });
            self.take_reversed(&found[..count]);
        }
    }

    fn take_reversed(&mut self, found: &[Option<(Option<usize>, Option<&'a [u8]>)>]) {
        for (position, (index, reason)) in found.iter().rev().flatten().enumerate() {
            if let Some(slot) = self.finish_reasons.get_mut(index.unwrap_or(position)) {
                *slot = *reason;
            }
        }
    }

    fn take(&mut self, key: &[u8], value: Value<'a>) {
        match (key, value) {
            (b"id", Value::Text(text)) => self.id = Some(text),
            (b"model", Value::Text(text)) => self.model = Some(text),
            (b"usage", Value::Object(text)) => self.usage.read(text),
            (b"choices", Value::Array(text)) => self.take_choices(text),
            // The Responses API: the last event of a stream carries the whole response.
            (b"response", Value::Object(text)) => self.read_document_inside(text),
            _ => (),
        }
    }

    fn read_document_inside(&mut self, text: &'a [u8]) {
        forward::members(text, |key, value| match (key, value) {
            (b"response", _) => (),
            (key, value) => self.take(key, value),
        });
    }

    fn take_choices(&mut self, text: &'a [u8]) {
        let mut position = 0;
        forward::elements(text, |choice| {
            let Value::Object(choice) = choice else { return };
            let (mut index, mut reason) = (position, None);
            forward::members(choice, |key, value| match (key, value) {
                (b"index", Value::Number(number)) => index = small(number).unwrap_or(MOST_CHOICES),
                (b"finish_reason", Value::Text(text)) => reason = Some(text),
                _ => (),
            });
            if let Some(slot) = self.finish_reasons.get_mut(index) {
                *slot = reason.or(*slot);
            }
            position += 1;
        });
    }

    fn push(&self, out: &mut Vec<u8>) {
        push_text(out, "gen_ai.response.id", self.id);
        push_text(out, "gen_ai.response.model", self.model);
        let usage = &self.usage;
        let numbers = [
            ("gen_ai.usage.input_tokens", usage.input),
            ("gen_ai.usage.output_tokens", usage.output),
            ("gen_ai.usage.cache_read.input_tokens", usage.cache_read),
            ("gen_ai.usage.reasoning.output_tokens", usage.reasoning),
        ];
        for (attribute, number) in numbers {
            if let Some(number) = number {
                push_raw(out, attribute, number);
            }
        }
        self.push_finish_reasons(out);
        if usage.input.is_some() || usage.output.is_some() {
            push_raw(out, "usage_source", b"\"response\"");
        }
    }

    fn push_finish_reasons(&self, out: &mut Vec<u8>) {
        let mut reasons = self.finish_reasons.iter().flatten().peekable();
        if reasons.peek().is_none() {
            return;
        }
        push_raw(out, "gen_ai.response.finish_reasons", b"[");
        for (position, reason) in reasons.enumerate() {
            if position > 0 {
                out.push(b',');
            }
            escape::push_string(out, &unescape(reason));
        }
        out.push(b']');
    }
}

impl<'a> Usage<'a> {
    fn read(&mut self, text: &'a [u8]) {
        forward::members(text, |key, value| match (key, value) {
            (b"prompt_tokens" | b"input_tokens", Value::Number(number)) => self.input = Some(number),
            (b"completion_tokens" | b"output_tokens", Value::Number(number)) => self.output = Some(number),
            (b"prompt_tokens_details" | b"input_tokens_details", Value::Object(details)) => {
                self.cache_read = number_in(details, b"cached_tokens").or(self.cache_read);
            }
            (b"completion_tokens_details" | b"output_tokens_details", Value::Object(details)) => {
                self.reasoning = number_in(details, b"reasoning_tokens").or(self.reasoning);
            }
            _ => (),
        });
    }
}

fn number_in<'a>(object: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut found = None;
    forward::members(object, |key, value| match value {
        Value::Number(number) if key == name => found = Some(number),
        _ => (),
    });
    found
}

fn small(number: &[u8]) -> Option<usize> {
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn push_raw(out: &mut Vec<u8>, attribute: &str, json: &[u8]) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(attribute.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(json);
}

fn push_text(out: &mut Vec<u8>, attribute: &str, raw: Option<&[u8]>) {
    if let Some(raw) = raw {
        push_raw(out, attribute, b"");
        escape::push_string(out, &unescape(raw));
    }
}

/// Undoes JSON's escapes, capped; what is not an escape stays as it is, and the escaper makes it valid again.
fn unescape(raw: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(raw.len().min(LONGEST_TEXT));
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first().filter(|_| text.len() < LONGEST_TEXT) {
        rest = after;
        let Some((&escaped, after)) = after.split_first().filter(|_| byte == b'\\') else {
            text.push(byte);
            continue;
        };
        rest = after;
        match escaped {
            b'n' => text.push(b'\n'),
            b't' => text.push(b'\t'),
            b'r' => text.push(b'\r'),
            b'b' => text.push(8),
            b'f' => text.push(12),
            b'u' => rest = push_unicode(&mut text, after),
            other => text.push(other),
        }
    }
    text
}

/// Appends the character of a `\u` escape (a pair of surrogates is one) and returns what follows it.
fn push_unicode<'a>(text: &mut Vec<u8>, after: &'a [u8]) -> &'a [u8] {
    let unit = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits.get(..4)?).ok()?, 16).ok();
    let Some(first) = unit(after) else { return after };
    let mut rest = &after[4..];
    let mut code = first;
    if let (0xd800..0xdc00, Some(low)) = (first, rest.strip_prefix(b"\\u").and_then(unit)) {
        if (0xdc00..0xe000).contains(&low) {
            code = 0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00);
            rest = &rest[6..];
        }
    }
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    rest
}
