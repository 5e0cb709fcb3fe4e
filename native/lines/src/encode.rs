//! Encodes a record as one line of JSON, with a fixed order of keys.
//!
//! ```text
//! {"timestamp":"2026-11-21T05:00:00.123456789Z","severity_text":"INFO","event_name":"request",
//!  "boot_id":"0123456789abcdef","pid":1,"seq":0 <,"field":value>… }\n          (one line, no blanks)
//! ```
//!
//! * Values follow in the order of the schema. An absent value is left out with its key; values beyond the fields are
//!   checked and left out; fields beyond the values are left out.
//! * Severity 0 or above 24 has no name: `severity_text` is left out.
//! * A Trace becomes `trace_id`, `span_id`, `parent_span_id` (unless zero) and `trace_flags`, instead of its own key;
//!   zero ids are invalid in W3C Trace Context and left out. A Body becomes the `gen_ai.*` keys that `extract` finds.
//!   If there are several Traces, request bodies or response bodies, the first one counts. A field with one of the keys
//!   that the response's usage has taken is left out.
//! * Floats are the shortest text that reads back as the same float; NaN and the infinities are the strings `"NaN"`,
//!   `"Infinity"`, `"-Infinity"`, as in OTLP/JSON. Gaps are an array of integers, microseconds.
//! * Text is escaped as `escape` says. Json is trusted to be JSON, but a raw line break in it (legal between tokens)
//!   becomes a blank, and empty Json is `null`. What readers do not take of it is text (`json::bounded`).
//!
//! Redaction is applied to the finished line (`redact`), and to the values that are counted of it.
//!
//! Invariant: a line is appended whole or not at all, and the only line break in it is its last byte.

use crate::catalogue::{Semconv, derived};
use crate::extract::{self, Declared, Readable, UnknownStreams};
use crate::json::escape;
use crate::json::number::push_integer;
use crate::json::timestamp::SecondCache;
use crate::plan::LinePlan;
use crate::rate::Rate;
use crate::redact::{Redaction, Rules};
use crate::series::observe::{FieldObserver, NoObserver, Observe};
use crate::series::{Reporter, Series};
use queue::event::FIRST_USER_ID;
use queue::record::{BodyKind, BodyText, Malformed, Value, Values, append_short as put};
use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;
use values::{push_trace, push_value};

mod values;

/// Room for the head of a line and some values; saves the output from growing in small steps.
const USUAL_LINE_BYTES: usize = 512;
/// The fields of a line stand within one container: the line.
const IN_LINE: usize = 1;

/// `"severity_text":"…",` by OpenTelemetry severity number.
const SEVERITIES: [&str; 25] = [
    "",
    r#""severity_text":"TRACE","#,
    r#""severity_text":"TRACE2","#,
    r#""severity_text":"TRACE3","#,
    r#""severity_text":"TRACE4","#,
    r#""severity_text":"DEBUG","#,
    r#""severity_text":"DEBUG2","#,
    r#""severity_text":"DEBUG3","#,
    r#""severity_text":"DEBUG4","#,
    r#""severity_text":"INFO","#,
    r#""severity_text":"INFO2","#,
    r#""severity_text":"INFO3","#,
    r#""severity_text":"INFO4","#,
    r#""severity_text":"WARN","#,
    r#""severity_text":"WARN2","#,
    r#""severity_text":"WARN3","#,
    r#""severity_text":"WARN4","#,
    r#""severity_text":"ERROR","#,
    r#""severity_text":"ERROR2","#,
    r#""severity_text":"ERROR3","#,
    r#""severity_text":"ERROR4","#,
    r#""severity_text":"FATAL","#,
    r#""severity_text":"FATAL2","#,
    r#""severity_text":"FATAL3","#,
    r#""severity_text":"FATAL4","#,
];

/// The beginning of each line, apart from the event name.
#[derive(Clone, Copy, Debug)]
pub struct LineHead<'a> {
    /// When the record was made, nanoseconds since the Unix epoch.
    pub time_unix_nano: u64,
    /// OpenTelemetry severity number.
    pub severity: u8,
    /// Boot id of the process: 16 hex digits.
    pub boot_id: &'a str,
    /// Process id, as that process sees it.
    pub pid: u32,
    /// Number of the record within its process; none for a line that the listener itself adds.
    pub seq: Option<u64>,
}

/// What the configuration says of lines.
#[derive(Default)]
struct Given {
    hash_key: Option<[u8; 32]>,
    unknown_streams: UnknownStreams,
    semconv: Semconv,
    /// The member with the provider; or empty.
    provider: Box<[u8]>,
}

/// Encodes lines; keeps the text of the last second and the last process, since most records share both with the one
/// before.
pub struct Encoder {
    second: SecondCache,
    process: ProcessCache,
    /// Counts the requests among the lines, if present.
    pub series: Option<Series>,
    redaction: Option<Redaction>,
    given: Given,
    /// Members at the end of each line; or empty.
    end: Box<[u8]>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// Make an encoder.
    pub fn new() -> Self {
        Self {
            second: SecondCache::default(),
            process: ProcessCache::default(),
            series: None,
            redaction: None,
            given: Given::default(),
            end: Box::default(),
        }
    }

    /// Make an encoder that counts the requests among its lines, if `series` is available.
    #[must_use]
    pub fn counting(series: Option<Series>) -> Self {
        Self { series, ..Self::default() }
    }

    /// Redact each line by `rules`, if there are any.
    #[must_use]
    pub fn redacting(self, rules: Option<Arc<Rules>>) -> Self {
        let has_patterns = rules.as_ref().is_some_and(|rules| rules.has_patterns());
        let unknown_streams = if has_patterns { UnknownStreams::Withheld } else { UnknownStreams::Written };
        Self { redaction: rules.map(Redaction::new), given: Given { unknown_streams, ..self.given }, ..self }
    }

    /// Use this key for hashes that replace texts.
    #[must_use]
    pub fn hashing(self, hash_key: Option<[u8; 32]>) -> Self {
        Self { given: Given { hash_key, ..self.given }, ..self }
    }

    /// Write the names of these conventions.
    #[must_use]
    pub fn naming(self, semconv: Semconv) -> Self {
        Self { given: Given { semconv, ..self.given }, ..self }
    }

    /// Write this provider on each line that names an operation.
    #[must_use]
    pub fn provided_by(self, name: Option<&str>) -> Self {
        let provider = name.map(|name| {
            let mut member = derived::PROVIDER.member.as_bytes().to_vec();
            escape::push_string(&mut member, name.as_bytes());
            member
        });
        Self { given: Given { provider: provider.unwrap_or_default().into(), ..self.given }, ..self }
    }

    /// Let each line end with these members, trusted JSON led by a comma.
    #[must_use]
    pub fn ending(self, members: &str) -> Self {
        Self { end: members.as_bytes().into(), ..self }
    }

    /// Append one line to `out`.
    ///
    /// # Errors
    /// [`Malformed`] where `payload` cannot be read; `out` is then as it was.
    pub fn line(
        &mut self,
        out: &mut Vec<u8>,
        head: &LineHead<'_>,
        plan: &LinePlan,
        payload: &[u8],
    ) -> Result<(), Malformed> {
        let start = out.len();
        out.reserve(payload.len() + USUAL_LINE_BYTES);
        self.push_head(out, head, plan);
        let fields = out.len();
        let readable = Default::default();
        let pushed = match (&mut self.series, &plan.engine) {
            (Some(series), _) if !plan.roles.is_empty() => {
                let mut observer = FieldObserver::new(&plan.roles);
                let pushed = push_fields(out, plan, payload, &self.given, &readable, &mut observer);
                if pushed.is_ok() {
                    count(series, &mut self.redaction, &observer, head.time_unix_nano, payload);
                }
                pushed
            }
            (Some(series), Some(fields)) => {
                let pushed = push_fields(out, plan, payload, &self.given, &readable, &mut NoObserver);
                if pushed.is_ok() {
                    let LineHead { boot_id, time_unix_nano: unix_nano, .. } = *head;
                    series.engine(fields, Reporter { boot_id, unix_nano }, payload);
                }
                pushed
            }
            _ => push_fields(out, plan, payload, &self.given, &readable, &mut NoObserver),
        };
        match pushed {
            Ok(()) => {
                if !self.end.is_empty() {
                    out.extend_from_slice(&self.end);
                }
                out.extend_from_slice(b"}\n");
                if let Some(redaction) = &mut self.redaction {
                    redaction.line(out, fields);
                }
            }
            Err(_) => out.truncate(start),
        }
        pushed
    }

    /// How many requests wait to be counted.
    #[inline]
    #[must_use]
    pub fn observed(&self) -> usize {
        self.series.as_ref().map_or(0, Series::pending)
    }

    /// Forgets all but the first `len` of these.
    #[cold]
    pub fn forget_observed(&mut self, len: usize) {
        if let Some(series) = &mut self.series {
            series.truncate(len);
        }
    }

    #[inline]
    fn push_head(&mut self, out: &mut Vec<u8>, head: &LineHead<'_>, plan: &LinePlan) {
        out.extend_from_slice(br#"{"timestamp":""#);
        self.second.push_timestamp(out, head.time_unix_nano);
        out.extend_from_slice(br#"","#);
        put(out, severity(head.severity).as_bytes());
        out.extend_from_slice(br#""event_name":"#);
        match &mut self.redaction {
            Some(redaction) if plan.schema.id >= FIRST_USER_ID => redaction.push_event_name(out, &plan.name_json),
            _ => put(out, &plan.name_json),
        }
        put(out, self.process.text(head));
        if let Some(seq) = head.seq {
            out.extend_from_slice(br#","seq":"#);
            push_integer(out, seq);
        }
    }
}

fn severity(number: u8) -> &'static str {
    SEVERITIES.get(usize::from(number)).unwrap_or(&"")
}

/// Which of the values that expand to fixed keys are in the line already: a key must not be there twice.
#[derive(Default)]
struct Expanded {
    trace: bool,
    request: bool,
    response: bool,
    /// The usage that the response declares: it takes precedence over the engine's.
    usage: Option<Declared>,
    cached: bool,
    /// A part of a body is still compressed.
    compressed: bool,
    /// Where the names of a request's tools are in the line.
    tools: Range<usize>,
}

impl Expanded {
    /// Return whether this is the first body of its side.
    fn first_body(&mut self, kind: BodyKind) -> bool {
        let seen = if kind.is_request() { &mut self.request } else { &mut self.response };
        !std::mem::replace(seen, true)
    }

    /// Return whether the response declares this field of the usage. What only the begin of a stream declares is no
    /// final usage: the engine's count of the output completes it.
    fn declares(&mut self, field: &str) -> bool {
        match field {
            "gen_ai.usage.input_tokens" => true,
            "gen_ai.usage.output_tokens" => self.usage == Some(Declared::All),
            "gen_ai.usage.cache_read.input_tokens" => self.cached,
            "usage_source" => self.usage.replace(Declared::All) == Some(Declared::All),
            _ => false,
        }
    }
}

fn push_fields<'a>(
    out: &mut Vec<u8>,
    plan: &LinePlan,
    payload: &'a [u8],
    given: &Given,
    readable: &'a [OnceCell<Option<Readable>>; 2],
    watch: &mut impl Observe<'a>,
) -> Result<(), Malformed> {
    let (mut expanded, mut rate) = (Expanded::default(), Rate::default());
    let hash_key = given.hash_key.as_ref();
    let (mut values, mut request) = (Values::new(payload), None);
    for (position, key) in plan.keys.iter().enumerate() {
        match values.next() {
            None => break,
            Some(Err(error)) => return Err(error),
            Some(Ok(Value::Absent)) => {}
            Some(Ok(Value::Trace(trace))) => {
                if !std::mem::replace(&mut expanded.trace, true) {
                    push_trace(out, &trace);
                }
            }
            Some(Ok(Value::Body(body))) if plan.members == Some(position) => {
                let seen = |name, text| watch.member(name, text);
                if extract::push_members(out, body.head, request.as_ref(), hash_key, seen) {
                    out.drain(std::mem::take(&mut expanded.tools));
                }
            }
            Some(Ok(Value::Body(body))) => {
                if body.kind.is_request() {
                    request = Some(body);
                }
                if expanded.first_body(body.kind) {
                    let own = &readable[usize::from(body.kind.is_request())];
                    let own = own.get_or_init(|| Readable::of(&body)).as_ref();
                    let (body, text) = own.map_or((body, body), |own| (own.body(), own.text()));
                    let extracted = match body.kind {
                        BodyKind::RequestForm => extract::push_form(out, &body, request_bytes(plan, payload)),
                        _ => extract::push_facts(out, &body, given.semconv),
                    };
                    watch.extracted(body.kind, &extracted);
                    if body.kind.is_request() {
                        expanded.tools = extracted.tools;
                    }
                    rate.set_answer_tokens(extracted.tokens[1]);
                    if extracted.usage.is_some() {
                        (expanded.usage, expanded.cached) = (extracted.usage, extracted.cached);
                    }
                    if own.is_some_and(|own| own.is_compressed) && !std::mem::replace(&mut expanded.compressed, true) {
                        derived::BODY_FACTS.push(out, r#""compressed""#);
                    }
                    if text.text != BodyText::Withheld && !(text.head.is_empty() && text.tail.is_empty()) {
                        extract::push_texts(out, &text, hash_key, given.unknown_streams);
                    }
                }
            }
            Some(Ok(_)) if expanded.usage.is_some() && expanded.declares(&plan.schema.fields[position]) => {}
            Some(Ok(value)) => {
                if !(key.is_counted && take(watch, &mut rate, plan, position, value)) {
                    key.push(out);
                    push_value(out, value, IN_LINE);
                }
            }
        }
    }
    if expanded.usage == Some(Declared::Begin) {
        derived::USAGE_SOURCE.push(out, r#""response""#);
    }
    rate.push(out);
    if rate.is_of_operation() {
        out.extend_from_slice(&given.provider);
    }
    values.try_for_each(|value| value.map(drop))
}

/// How many bytes the body of a request had.
#[cold]
fn request_bytes(plan: &LinePlan, payload: &[u8]) -> Option<u64> {
    let position = plan.schema.fields.iter().position(|field| field == "http.request.body.size")?;
    match Values::new(payload).nth(position)? {
        Ok(Value::Uint(bytes)) => Some(bytes),
        _ => None,
    }
}

/// Take note of a value that counts; return whether the line leaves it out.
#[inline(never)]
fn take<'a>(watch: &mut impl Observe<'a>, rate: &mut Rate, plan: &LinePlan, position: usize, value: Value<'a>) -> bool {
    watch.value(position, &value);
    rate.take(&plan.rates, position, &value)
}

/// Take note of a request: of what redaction leaves of it, since its labels leave the listener outside of lines.
#[inline]
fn count(
    series: &mut Series,
    redaction: &mut Option<Redaction>,
    seen: &FieldObserver<'_, '_>,
    unix_nano: u64,
    payload: &[u8],
) {
    let (answer, tenant) = (seen.answer(), seen.tenant());
    let served = match redaction {
        None => series.served(answer, answer.route),
        Some(redaction) => series.served(answer, redaction.route(answer.route)),
    };
    match (seen.inference(payload), redaction) {
        (None, _) => series.count(seen.outcome(), seen.weight(), tenant, served),
        (Some(seen), None) => series.observe(&seen, unix_nano, tenant, served),
        (Some(seen), Some(redaction)) => {
            redaction.labels(&seen, |seen| series.observe(seen, unix_nano, tenant, served));
        }
    }
}

/// `,"boot_id":"…","pid":…` of the process that wrote the last line.
#[derive(Clone, Debug, Default)]
struct ProcessCache {
    boot_id: String,
    pid: u32,
    text: Vec<u8>,
}

impl ProcessCache {
    /// Return the text for the process of `head`.
    #[inline]
    pub fn text(&mut self, head: &LineHead<'_>) -> &[u8] {
        if self.pid != head.pid || self.boot_id != head.boot_id || self.text.is_empty() {
            self.format(head);
        }
        &self.text
    }

    #[cold]
    fn format(&mut self, head: &LineHead<'_>) {
        self.boot_id.clear();
        self.boot_id.push_str(head.boot_id);
        self.pid = head.pid;
        self.text.clear();
        self.text.extend_from_slice(br#","boot_id":"#);
        escape::push_string(&mut self.text, head.boot_id.as_bytes());
        self.text.extend_from_slice(br#","pid":"#);
        self.text.extend_from_slice(head.pid.to_string().as_bytes());
    }
}
