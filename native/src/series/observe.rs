//! What the histograms need of a request's record, picked up while the record is encoded.

use super::histogram::KINDS;
use crate::record::{BodyKind, Trace, Value};

/// What a field of a request's record means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
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

/// The role of each field of a request's event.
#[must_use]
pub fn roles(fields: &[String]) -> Box<[Role]> {
    let role = |field: &String| match field.as_str() {
        "outcome" => Role::Outcome,
        "error.type" => Role::ErrorType,
        "http.response.status_code" => Role::Status,
        "duration_s" => Role::Duration,
        "gen_ai.response.time_to_first_chunk" => Role::FirstChunk,
        "chunk_gap_mean_us" => Role::MeanGap,
        "gen_ai.operation.name" => Role::Operation,
        "adjusted_count" => Role::AdjustedCount,
        _ => Role::Other,
    };
    fields.iter().map(role).collect()
}

/// Sees what goes into a line.
pub trait Watch<'a> {
    /// A value other than Trace and Body, and the position of its field.
    fn value(&mut self, position: usize, value: &Value<'a>);
    fn trace(&mut self, trace: &Trace);
    /// The model that a body names, as it stands between the quotes.
    fn model(&mut self, kind: BodyKind, raw: Option<&'a [u8]>);
}

/// Watches nothing, at no cost.
pub struct Nobody;

impl<'a> Watch<'a> for Nobody {
    #[inline(always)]
    fn value(&mut self, _: usize, _: &Value<'a>) {}
    #[inline(always)]
    fn trace(&mut self, _: &Trace) {}
    #[inline(always)]
    fn model(&mut self, _: BodyKind, _: Option<&'a [u8]>) {}
}

/// What was seen of one request.
pub struct Seen<'a> {
    roles: &'a [Role],
    pub trace: Option<Trace>,
    pub operation: &'a [u8],
    pub outcome: &'a [u8],
    pub error_type: &'a [u8],
    pub status: u64,
    pub request_model: Option<&'a [u8]>,
    pub response_model: Option<&'a [u8]>,
    duration_s: Option<f64>,
    first_chunk_s: Option<f64>,
    mean_gap_us: Option<u64>,
    adjusted_count: f64,
}

impl<'a> Seen<'a> {
    /// Begin a record whose fields have these roles.
    #[must_use]
    pub fn new(roles: &'a [Role]) -> Self {
        Self {
            roles,
            trace: None,
            operation: b"",
            outcome: b"",
            error_type: b"",
            status: 0,
            request_model: None,
            response_model: None,
            duration_s: None,
            first_chunk_s: None,
            mean_gap_us: None,
            adjusted_count: 1.0,
        }
    }

    /// Whether the request got what it asked for.
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

    /// The values by histogram, negative where there is none; nothing for a request that was not for inference.
    /// Chunks are timed of successful answers only, as the conventions have it.
    #[must_use]
    pub fn values(&self) -> Option<[f64; KINDS]> {
        const NONE: f64 = -1.0;
        if self.operation.is_empty() {
            return None;
        }
        let whole = |value: Option<f64>| value.filter(|value| value.is_finite()).unwrap_or(NONE);
        if !self.is_ok() {
            return Some([whole(self.duration_s), NONE, NONE]);
        }
        let mean_gap_s = self.mean_gap_us.map(|gap| gap as f64 / 1e6);
        Some([whole(self.duration_s), whole(self.first_chunk_s), whole(mean_gap_s)])
    }
}

impl<'a> Watch<'a> for Seen<'a> {
    #[inline]
    fn value(&mut self, position: usize, value: &Value<'a>) {
        match (self.roles.get(position).copied().unwrap_or(Role::Other), *value) {
            (Role::Other, _) => {}
            (Role::Outcome, Value::Str(text)) => self.outcome = text,
            (Role::ErrorType, Value::Str(text)) => self.error_type = text,
            (Role::Operation, Value::Str(text)) => self.operation = text,
            (Role::Status, Value::Uint(status)) => self.status = status,
            (Role::Duration, Value::Float(seconds)) => self.duration_s = Some(seconds),
            (Role::FirstChunk, Value::Float(seconds)) => self.first_chunk_s = Some(seconds),
            (Role::MeanGap, Value::Uint(micros)) => self.mean_gap_us = Some(micros),
            (Role::AdjustedCount, Value::Float(count)) => self.adjusted_count = count,
            _ => {}
        }
    }

    #[inline]
    fn trace(&mut self, trace: &Trace) {
        self.trace = Some(*trace);
    }

    #[inline]
    fn model(&mut self, kind: BodyKind, raw: Option<&'a [u8]>) {
        match kind {
            BodyKind::Request => self.request_model = raw,
            BodyKind::Response | BodyKind::Stream => self.response_model = raw,
        }
    }
}
