//! The values of a request's record that are counted.
//!
//! While the record is encoded, a few of its values and of the facts of its bodies are picked up: outcome and weight
//! count for every request. Most requests are not for inference, have neither an operation nor tokens, and cost next to
//! nothing more. For the others the values are read again.

use super::histogram::{ENGINE_KINDS, KINDS, TOKEN_TYPES};
use crate::extract::ExtractedFacts;
use crate::rate::per_token;
use queue::record::{BodyKind, Trace, Value, Values};
use request::added::TENANT;
use request::fields::CHUNKS_S;

/// What stands for a name that is not known.
pub const OTHER_NAME: &str = "_OTHER";

/// More tokens than any request has: a larger number is not a count, and would spoil the sum for good.
const MAX_TOKENS: u64 = u32::MAX as u64;

/// The meaning of a field of a request's record here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Other,
    Outcome,
    ErrorType,
    Status,
    Duration,
    FirstChunk,
    MeanGap,
    Chunks,
    Operation,
    AdjustedCount,
    InputTokens,
    OutputTokens,
    ServedModel,
    Method,
    Route,
    Queued,
    Prefill,
    Decode,
}

impl Role {
    fn of(field: &str) -> Self {
        match field {
            "outcome" => Self::Outcome,
            "error.type" => Self::ErrorType,
            "http.response.status_code" => Self::Status,
            "duration_s" => Self::Duration,
            "gen_ai.response.time_to_first_chunk" => Self::FirstChunk,
            "chunk_gap_mean_us" => Self::MeanGap,
            CHUNKS_S => Self::Chunks,
            "gen_ai.operation.name" => Self::Operation,
            "adjusted_count" => Self::AdjustedCount,
            "gen_ai.usage.input_tokens" => Self::InputTokens,
            "gen_ai.usage.output_tokens" => Self::OutputTokens,
            "triton.model_name" => Self::ServedModel,
            "http.request.method" => Self::Method,
            "http.route" => Self::Route,
            "engine.queued_s" => Self::Queued,
            "engine.prefill_s" => Self::Prefill,
            "engine.decode_s" => Self::Decode,
            _ => Self::Other,
        }
    }

    /// Whether its value is picked up while the record is encoded.
    const fn is_observed(self) -> bool {
        matches!(
            self,
            Self::Outcome
                | Self::AdjustedCount
                | Self::Operation
                | Self::InputTokens
                | Self::OutputTokens
                | Self::ServedModel
                | Self::Method
                | Self::Route
                | Self::Status
                | Self::Duration
        )
    }
}

/// The roles of an event's fields; none for events other than requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles(Box<[Role]>);

impl Roles {
    /// The roles of a request's fields.
    #[must_use]
    pub fn of_request(fields: &[String]) -> Self {
        Self(fields.iter().map(|field| Role::of(field)).collect())
    }

    /// Whether the value at this position is picked up while the record is encoded.
    #[must_use]
    pub fn are_observed_at(&self, position: usize) -> bool {
        self.0.get(position).is_some_and(|role| role.is_observed())
    }

    /// Whether no field has a role.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Sees the values that go into a line.
pub trait Observe<'a> {
    /// The value of a field that counts, as its key says (`plan`), and its position.
    fn value(&mut self, position: usize, value: &Value<'a>);
    /// The facts of a body.
    fn extracted(&mut self, kind: BodyKind, extracted: &ExtractedFacts<'a>);
    /// A text that the configuration adds, and its name.
    fn member(&mut self, name: &'a [u8], text: &'a [u8]);
}

/// Watches nothing, at no cost.
pub struct NoObserver;

impl<'a> Observe<'a> for NoObserver {
    #[inline(always)]
    fn value(&mut self, _: usize, _: &Value<'a>) {}
    #[inline(always)]
    fn extracted(&mut self, _: BodyKind, _: &ExtractedFacts<'a>) {}
    #[inline(always)]
    fn member(&mut self, _: &'a [u8], _: &'a [u8]) {}
}

/// Picks up the values that count for every request, and those that show whether there is more to count.
pub struct FieldObserver<'r, 'a> {
    roles: &'r Roles,
    outcome: &'a [u8],
    adjusted_count: f64,
    operation: &'a [u8],
    request_model: Option<&'a [u8]>,
    response_model: Option<&'a [u8]>,
    served_model: Option<&'a [u8]>,
    tenant: &'a [u8],
    tokens: [f64; TOKEN_TYPES.len()],
    answer: Answer<'a>,
}

/// What a request over HTTP was and how it was answered.
#[derive(Clone, Copy)]
pub struct Answer<'a> {
    /// Empty: it was not over HTTP.
    pub method: &'a [u8],
    /// The template of the route that was taken; empty: none was.
    pub route: &'a [u8],
    /// 0: the answer has not begun.
    pub status: u64,
    pub duration_s: f64,
}

impl<'r, 'a> FieldObserver<'r, 'a> {
    #[must_use]
    pub fn new(roles: &'r Roles) -> Self {
        Self {
            roles,
            outcome: b"",
            adjusted_count: 1.0,
            operation: b"",
            request_model: None,
            response_model: None,
            served_model: None,
            tenant: b"",
            tokens: Default::default(),
            answer: Answer { method: b"", route: b"", status: 0, duration_s: NONE },
        }
    }

    /// The request and its answer as HTTP has them.
    #[inline]
    #[must_use]
    pub const fn answer(&self) -> &Answer<'a> {
        &self.answer
    }

    /// How the request ended.
    #[inline]
    #[must_use]
    pub const fn outcome(&self) -> &'a [u8] {
        self.outcome
    }

    /// Whose request it was; empty: nobody's.
    #[inline]
    #[must_use]
    pub const fn tenant(&self) -> &'a [u8] {
        self.tenant
    }

    /// How many requests this one stands for; a record without a sensible number counts as itself.
    #[inline]
    #[must_use]
    pub fn weight(&self) -> f64 {
        let weight = self.adjusted_count;
        if weight.is_finite() && weight > 0.0 { weight } else { 1.0 }
    }

    /// The rest of the record, if it was a request for inference or took tokens. `payload` has been read without error.
    #[inline]
    #[must_use]
    pub fn inference(&self, payload: &'a [u8]) -> Option<InferenceRequest<'a>> {
        let is_timed = !self.operation.is_empty();
        if !is_timed && self.tokens == [0.0; TOKEN_TYPES.len()] {
            return None;
        }
        let mut request = InferenceRequest {
            trace: Trace::default(),
            operation: if is_timed { self.operation } else { OTHER_NAME.as_bytes() },
            model: self.response_model.or(self.request_model).or(self.served_model).unwrap_or_default(),
            is_servers_name: self.response_model.or(self.request_model) == self.response_model,
            outcome: self.outcome,
            error_type: b"",
            status: 0,
            weight: self.weight(),
            tokens: self.tokens,
            is_timed,
            duration_s: NONE,
            first_chunk_s: NONE,
            mean_gap_s: NONE,
            chunks_s: NONE,
            engine_s: [NONE; ENGINE_KINDS],
        };
        for (role, value) in self.roles.0.iter().zip(Values::new(payload)) {
            request.take(*role, value.unwrap_or(Value::Absent));
        }
        Some(request)
    }
}

impl<'a> Observe<'a> for FieldObserver<'_, 'a> {
    #[inline]
    fn value(&mut self, position: usize, value: &Value<'a>) {
        match (self.roles.0.get(position), *value) {
            (Some(Role::Outcome), Value::Str(text)) => self.outcome = text,
            (Some(Role::AdjustedCount), Value::Float(count)) => self.adjusted_count = count,
            (Some(Role::Operation), Value::Str(text)) => self.operation = text,
            (Some(Role::InputTokens), value) => self.tokens[0] = tokens(whole(value)),
            (Some(Role::OutputTokens), value) => self.tokens[1] = tokens(whole(value)),
            // Bytes where the listener itself makes the record, of a process that has died.
            (Some(Role::Method), Value::Str(text) | Value::Bytes(text)) => self.answer.method = text,
            (Some(Role::Route), Value::Str(text) | Value::Bytes(text)) => self.answer.route = text,
            (Some(Role::Status), Value::Uint(status)) => self.answer.status = status,
            (Some(Role::Duration), Value::Float(seconds)) => self.answer.duration_s = seconds,
            (Some(Role::ServedModel), Value::Str(name)) if is_plain(name) => self.served_model = Some(name),
            _ => {}
        }
    }

    #[inline]
    fn extracted(&mut self, kind: BodyKind, extracted: &ExtractedFacts<'a>) {
        if kind.is_request() {
            self.request_model = extracted.model;
        } else {
            self.response_model = extracted.model;
            self.tokens = extracted.tokens.map(tokens);
        }
    }

    #[inline]
    fn member(&mut self, name: &'a [u8], text: &'a [u8]) {
        if name == TENANT.as_bytes() {
            self.tenant = text;
        }
    }
}

fn whole(value: Value<'_>) -> Option<u64> {
    match value {
        Value::Uint(count) => Some(count),
        Value::Int(count) => u64::try_from(count).ok(),
        _ => None,
    }
}

fn tokens(count: Option<u64>) -> f64 {
    count.filter(|count| *count <= MAX_TOKENS).map_or(0.0, |count| count as f64)
}

/// Whether a name needs no escape between quotes.
fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20))
}

/// The values of one inference request, or of another one that took tokens.
pub struct InferenceRequest<'a> {
    pub trace: Trace,
    pub operation: &'a [u8],
    /// In the form between the quotes: the answer's, else the request's, else the server's name for it; empty if none
    /// is named.
    pub model: &'a [u8],
    /// The client did not choose this name.
    is_servers_name: bool,
    pub outcome: &'a [u8],
    pub error_type: &'a [u8],
    pub status: u64,
    /// How many requests this one stands for.
    pub weight: f64,
    /// As [`TOKEN_TYPES`] has them; 0 if not reported.
    pub tokens: [f64; TOKEN_TYPES.len()],
    /// It was for inference: the histograms cover only such requests.
    is_timed: bool,
    duration_s: f64,
    first_chunk_s: f64,
    mean_gap_s: f64,
    chunks_s: f64,
    /// In its queue, of prefill and of decoding.
    engine_s: [f64; ENGINE_KINDS],
}

/// Stands for a missing value: no real one is negative.
const NONE: f64 = -1.0;

impl<'a> InferenceRequest<'a> {
    #[inline]
    fn take(&mut self, role: Role, value: Value<'a>) {
        match (role, value) {
            (Role::Other, Value::Trace(trace)) => self.trace = trace,
            (Role::ErrorType, Value::Str(text)) => self.error_type = text,
            (Role::Status, Value::Uint(status)) => self.status = status,
            (Role::Duration, Value::Float(seconds)) => self.duration_s = seconds,
            (Role::FirstChunk, Value::Float(seconds)) => self.first_chunk_s = seconds,
            (Role::MeanGap, Value::Uint(micros)) => self.mean_gap_s = micros as f64 / 1e6,
            (Role::Chunks, Value::Float(seconds)) => self.chunks_s = seconds,
            (Role::Queued, Value::Float(seconds)) => self.engine_s[0] = seconds,
            (Role::Prefill, Value::Float(seconds)) => self.engine_s[1] = seconds,
            (Role::Decode, Value::Float(seconds)) => self.engine_s[2] = seconds,
            _ => {}
        }
    }

    /// The same request under other names.
    #[must_use]
    pub fn relabelled<'b>(&'b self, model: &'b [u8], error_type: &'b [u8]) -> InferenceRequest<'b> {
        InferenceRequest { model, error_type, ..*self }
    }

    /// Whether the request got what it asked for.
    #[inline]
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.error_type.is_empty() && self.status < 400 && self.outcome == b"ok"
    }

    /// Whether the model is the server's for certain: not each name that a client asks for is one.
    pub fn names_a_model(&self) -> bool {
        self.is_ok() || self.status < 400 && self.is_servers_name
    }

    /// The values by histogram, negative or not finite if missing. All but the duration are timed only for successful
    /// answers, as the conventions say of chunks and tokens.
    #[must_use]
    pub fn values(&self) -> [f64; KINDS] {
        if !self.is_timed {
            return [NONE; KINDS];
        }
        if !self.is_ok() {
            return [self.duration_s, NONE, NONE, NONE, NONE, NONE, NONE];
        }
        let per_token_s = per_token(self.chunks_s, self.tokens[1]).unwrap_or(NONE);
        let [queued_s, prefill_s, decode_s] = self.engine_s;
        [self.duration_s, self.first_chunk_s, self.mean_gap_s, per_token_s, queued_s, prefill_s, decode_s]
    }
}
