//! Terminal records of requests, with the few fields that are counted.

use queue::event::{MODEL_REQUEST, REQUEST};
use queue::producer::Producer;
use queue::record::{Body, BodyKind, BodyText, Scratch, Trace};
use request::fields::{CHUNKS_S, HttpRecord, ModelRecord};

#[derive(Clone)]
pub struct Request<'a> {
    pub outcome: &'a str,
    pub error_type: &'a str,
    pub operation: &'a str,
    pub status: u64,
    pub duration_s: f64,
    pub first_chunk_s: f64,
    pub mean_gap_us: u64,
    pub chunks_s: f64,
    pub adjusted_count: f64,
    pub request_model: &'a str,
    pub response_model: &'a str,
    /// The usage that the answer reports, as JSON.
    pub usage: &'a str,
    /// The tokens that the engine reports.
    pub engine_tokens: Option<[u64; 2]>,
    pub served_model: &'a str,
    /// Empty: it is not over HTTP.
    pub method: &'a str,
    pub route: &'a str,
    /// In the engine's queue, of prefill, of decoding.
    pub engine_s: Option<[f64; 3]>,
}

impl<'a> Request<'a> {
    /// A successful request of 20 ms whose answer names the requested model.
    pub fn ok(model: &'a str) -> Self {
        Self {
            outcome: "ok",
            error_type: "",
            operation: "chat",
            status: 200,
            duration_s: 0.02,
            first_chunk_s: -1.0,
            mean_gap_us: 0,
            chunks_s: 0.0,
            adjusted_count: 1.0,
            request_model: model,
            response_model: model,
            usage: "",
            engine_tokens: None,
            served_model: "",
            method: "",
            route: "",
            engine_s: None,
        }
    }

    /// A successful request that is not for inference.
    pub fn plain() -> Self {
        Self { operation: "", ..Self::ok("") }
    }

    /// A successful request over HTTP that is not for inference.
    pub fn http(method: &'a str, route: &'a str) -> Self {
        Self { method, route, ..Self::plain() }
    }

    pub fn emit(&self, producer: &Producer) {
        let mut scratch = Scratch::new();
        let (event, fields) = match self.served_model {
            "" => (REQUEST, HttpRecord::fields()),
            _ => (MODEL_REQUEST, ModelRecord::fields()),
        };
        for field in fields {
            self.push(&mut scratch, field.name);
        }
        assert!(producer.emit(event, 9, scratch.as_slice()));
    }

    fn push(&self, scratch: &mut Scratch, field: &str) {
        match field {
            "trace" => scratch.push_trace(&Trace { trace_id: [0x0a; 16], span_id: [0x0b; 8], ..Trace::default() }),
            "outcome" => scratch.push_str(self.outcome),
            "error.type" if !self.error_type.is_empty() => scratch.push_str(self.error_type),
            "gen_ai.operation.name" if !self.operation.is_empty() => scratch.push_str(self.operation),
            "http.response.status_code" => scratch.push_uint(self.status),
            "duration_s" => scratch.push_float(self.duration_s),
            "gen_ai.response.time_to_first_chunk" if self.first_chunk_s >= 0.0 => {
                scratch.push_float(self.first_chunk_s);
            }
            "chunk_gap_mean_us" if self.mean_gap_us > 0 => scratch.push_uint(self.mean_gap_us),
            CHUNKS_S if self.chunks_s > 0.0 => scratch.push_float(self.chunks_s),
            "adjusted_count" => scratch.push_float(self.adjusted_count),
            "request_body" => push_body(scratch, BodyKind::Request, self.request_model, ""),
            "response_body" => push_body(scratch, BodyKind::Response, self.response_model, self.usage),
            "gen_ai.usage.input_tokens" => push_tokens(scratch, self.engine_tokens.map(|[input, _]| input)),
            "gen_ai.usage.output_tokens" => push_tokens(scratch, self.engine_tokens.map(|[_, output]| output)),
            "triton.model_name" if !self.served_model.is_empty() => scratch.push_str(self.served_model),
            "http.request.method" if !self.method.is_empty() => scratch.push_str(self.method),
            "http.route" if !self.route.is_empty() => scratch.push_str(self.route),
            "engine.queued_s" => push_seconds(scratch, self.engine_s.map(|[queued, ..]| queued)),
            "engine.prefill_s" => push_seconds(scratch, self.engine_s.map(|[_, prefill, _]| prefill)),
            "engine.decode_s" => push_seconds(scratch, self.engine_s.map(|[.., decode]| decode)),
            _ => scratch.push_absent(),
        }
    }
}

fn push_tokens(scratch: &mut Scratch, tokens: Option<u64>) {
    match tokens {
        Some(tokens) => scratch.push_uint(tokens),
        None => scratch.push_absent(),
    }
}

fn push_seconds(scratch: &mut Scratch, seconds: Option<f64>) {
    match seconds {
        Some(seconds) => scratch.push_float(seconds),
        None => scratch.push_absent(),
    }
}

fn push_body(scratch: &mut Scratch, kind: BodyKind, model: &str, usage: &str) {
    let members = [("model", format!("\"{model}\"")), ("usage", usage.to_owned())];
    let members = members.iter().filter(|(_, value)| !matches!(value.as_str(), "" | "\"\""));
    let head: Vec<String> = members.map(|(key, value)| format!("\"{key}\":{value}")).collect();
    let head = format!("{{{}}}", head.join(","));
    scratch.push_body(&Body { kind, head: head.as_bytes(), tail: b"", complete: true, text: BodyText::Withheld });
}
