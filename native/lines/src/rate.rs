//! The rates that follow from the times and tokens of an answer: the time per output token, and tokens per second.
//!
//! The request's process stores the times; tokens are known only here, from the body or from the engine, which come
//! after the times in the record. So the rates are at the end of the line.

use crate::catalogue::derived;
use crate::json::number::push_float;
use queue::record::Value;
use request::fields::CHUNKS_S;

/// The positions of the times and tokens in a request's record, and of its operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateFields {
    duration: Option<usize>,
    chunks: Option<usize>,
    output_tokens: Option<usize>,
    operation: Option<usize>,
}

impl RateFields {
    /// From a request's fields.
    #[must_use]
    pub fn of_request(fields: &[String]) -> Self {
        let place = |name: &str| fields.iter().position(|field| field == name);
        Self {
            duration: place("duration_s"),
            chunks: place(CHUNKS_S),
            output_tokens: place("gen_ai.usage.output_tokens"),
            operation: place("gen_ai.operation.name"),
        }
    }

    /// Whether one of them is at this position.
    #[must_use]
    pub fn are_at(&self, position: usize) -> bool {
        [self.duration, self.chunks, self.output_tokens, self.operation].contains(&Some(position))
    }
}

/// The times and tokens of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    duration_s: f64,
    /// From the first chunk to the last one; 0: there are fewer than two.
    chunks_s: f64,
    output_tokens: u64,
    has_operation: bool,
}

impl Rate {
    /// Takes note of a value; returns whether the line leaves it out.
    #[inline]
    pub fn take(&mut self, fields: &RateFields, position: usize, value: &Value<'_>) -> bool {
        let position = Some(position);
        match *value {
            Value::Float(seconds) if position == fields.duration => self.duration_s = seconds,
            Value::Float(seconds) if position == fields.chunks => self.chunks_s = seconds,
            Value::Uint(tokens) if position == fields.output_tokens => self.output_tokens = tokens,
            Value::Int(tokens) if position == fields.output_tokens => {
                self.output_tokens = u64::try_from(tokens).unwrap_or(0)
            }
            Value::Str(_) if position == fields.operation => self.has_operation = true,
            _ => {}
        }
        position == fields.chunks
    }

    /// Whether the request names its operation.
    #[inline]
    #[must_use]
    pub const fn is_of_operation(&self) -> bool {
        self.has_operation
    }

    /// The answer's own count of its tokens takes precedence over the engine's.
    #[inline]
    pub fn set_answer_tokens(&mut self, output_tokens: Option<u64>) {
        self.output_tokens = output_tokens.unwrap_or(self.output_tokens);
    }

    /// Appends the rates that are known.
    #[inline]
    pub fn push(&self, out: &mut Vec<u8>) {
        if self.output_tokens > 0 {
            self.push_known(out);
        }
    }

    fn push_known(&self, out: &mut Vec<u8>) {
        if let Some(seconds) = per_token(self.chunks_s, self.output_tokens as f64) {
            out.extend_from_slice(derived::TIME_PER_OUTPUT_TOKEN.member.as_bytes());
            // Whole nanoseconds: the times are not more precise, and it is shorter in the line.
            push_float(out, (seconds * 1e9).round() / 1e9);
        }
        if self.duration_s > 0.0 {
            out.extend_from_slice(derived::OUTPUT_TOKENS_PER_SECOND.member.as_bytes());
            push_float(out, (self.output_tokens as f64 / self.duration_s * 1e3).round() / 1e3);
        }
    }
}

/// Seconds per output token after the first one.
#[must_use]
pub fn per_token(chunks_s: f64, output_tokens: f64) -> Option<f64> {
    (chunks_s > 0.0 && output_tokens > 1.0).then(|| chunks_s / (output_tokens - 1.0))
}
