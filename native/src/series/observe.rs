//! What the histograms need of a request's record.
//!
//! While the record is encoded, only its operation and the models that its bodies name are picked up: most requests are
//! not for inference and have no operation, and they cost next to nothing. Of the others the values are read again.

use super::histogram::KINDS;
use crate::record::{BodyKind, Trace, Value, Values};

/// What a field of a request's record means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Other,
    Outcome,
    ErrorType,
    Status,
    Duration,
    FirstChunk,
    MeanGap,
    Operation,
    AdjustedCount,
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
            "gen_ai.operation.name" => Self::Operation,
            "adjusted_count" => Self::AdjustedCount,
            _ => Self::Other,
        }
    }
}

/// The roles of an event's fields; none for events other than requests, which are not looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    of: Box<[Role]>,
    /// Where the operation stands.
    operation: usize,
}

impl Roles {
    /// The roles of a request's fields.
    #[must_use]
    pub fn of_request(fields: &[String]) -> Self {
        let of: Box<[Role]> = fields.iter().map(|field| Role::of(field)).collect();
        let operation = of.iter().position(|role| *role == Role::Operation);
        operation.map_or_else(Self::default, |operation| Self { of, operation })
    }

    /// Whether nothing is looked at.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

/// Sees what goes into a line.
pub trait Watch<'a> {
    /// A value other than Trace and Body, and the position of its field.
    fn value(&mut self, position: usize, value: &Value<'a>);
    /// The model that a body names, as it stands between the quotes.
    fn model(&mut self, kind: BodyKind, raw: Option<&'a [u8]>);
}

/// Watches nothing, at no cost.
pub struct Nobody;

impl<'a> Watch<'a> for Nobody {
    #[inline(always)]
    fn value(&mut self, _: usize, _: &Value<'a>) {}
    #[inline(always)]
    fn model(&mut self, _: BodyKind, _: Option<&'a [u8]>) {}
}

/// Picks up what says whether a request was for inference, and with which model.
pub struct Glimpse<'a> {
    operation_at: usize,
    operation: &'a [u8],
    request_model: Option<&'a [u8]>,
    response_model: Option<&'a [u8]>,
}

impl<'a> Glimpse<'a> {
    #[must_use]
    pub fn new(roles: &Roles) -> Self {
        Self { operation_at: roles.operation, operation: b"", request_model: None, response_model: None }
    }

    /// The rest of the record, if it was a request for inference. `payload` has been read without error.
    #[inline]
    #[must_use]
    pub fn look(&self, roles: &Roles, payload: &'a [u8]) -> Option<Seen<'a>> {
        if self.operation.is_empty() {
            return None;
        }
        let model = self.response_model.or(self.request_model).unwrap_or_default();
        let mut seen = Seen::new(self.operation, model);
        for (role, value) in roles.of.iter().zip(Values::new(payload)) {
            seen.take(*role, value.unwrap_or(Value::Absent));
        }
        Some(seen)
    }
}

impl<'a> Watch<'a> for Glimpse<'a> {
    #[inline(always)]
    fn value(&mut self, position: usize, value: &Value<'a>) {
        if position == self.operation_at
            && let Value::Str(text) = *value
        {
            self.operation = text;
        }
    }

    #[inline]
    fn model(&mut self, kind: BodyKind, raw: Option<&'a [u8]>) {
        if kind.is_request() {
            self.request_model = raw;
        } else {
            self.response_model = raw;
        }
    }
}

/// What was seen of one request for inference.
pub struct Seen<'a> {
    pub trace: Trace,
    pub operation: &'a [u8],
    /// As it stands between the quotes: of the answer, else of the request; empty if neither names one.
    pub model: &'a [u8],
    pub outcome: &'a [u8],
    pub error_type: &'a [u8],
    pub status: u64,
    duration_s: f64,
    first_chunk_s: f64,
    mean_gap_s: f64,
    adjusted_count: f64,
}

/// Stands for a value that is not there: none of them is negative.
const NONE: f64 = -1.0;

impl<'a> Seen<'a> {
    fn new(operation: &'a [u8], model: &'a [u8]) -> Self {
        Self {
            trace: Trace::default(),
            operation,
            model,
            outcome: b"",
            error_type: b"",
            status: 0,
            duration_s: NONE,
            first_chunk_s: NONE,
            mean_gap_s: NONE,
            adjusted_count: 1.0,
        }
    }

    #[inline]
    fn take(&mut self, role: Role, value: Value<'a>) {
        match (role, value) {
            (Role::Other, Value::Trace(trace)) => self.trace = trace,
            (Role::Outcome, Value::Str(text)) => self.outcome = text,
            (Role::ErrorType, Value::Str(text)) => self.error_type = text,
            (Role::Status, Value::Uint(status)) => self.status = status,
            (Role::Duration, Value::Float(seconds)) => self.duration_s = seconds,
            (Role::FirstChunk, Value::Float(seconds)) => self.first_chunk_s = seconds,
            (Role::MeanGap, Value::Uint(micros)) => self.mean_gap_s = micros as f64 / 1e6,
            (Role::AdjustedCount, Value::Float(count)) => self.adjusted_count = count,
            _ => {}
        }
    }

    /// The same request under other names.
    #[must_use]
    pub fn relabelled<'b>(&'b self, model: &'b [u8], error_type: &'b [u8]) -> Seen<'b> {
        Seen { model, error_type, ..*self }
    }

    /// Whether the request got what it asked for.
    #[inline]
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.error_type.is_empty() && self.status < 400 && self.outcome == b"ok"
    }

    /// How many requests this one stands for; a record that says nothing sensible counts as itself.
    #[must_use]
    pub fn weight(&self) -> f64 {
        let weight = self.adjusted_count;
        if weight.is_finite() && weight > 0.0 { weight } else { 1.0 }
    }

    /// The values by histogram, negative or not finite where there is none. Chunks are timed of successful answers
    /// only, as the conventions have it.
    #[must_use]
    pub fn values(&self) -> [f64; KINDS] {
        let chunks = if self.is_ok() { [self.first_chunk_s, self.mean_gap_s] } else { [NONE; 2] };
        [self.duration_s, chunks[0], chunks[1]]
    }
}
