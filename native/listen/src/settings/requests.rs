//! The settings of requests: sampling, observation, captured texts, and the headers with ids.

use super::rules::{self, ROUTES};
use super::{Settings, keys};
use crate::service::Service;
use queue::record::BodyText;
use request::capture::{TextCapture, TextLimit};
use request::observer::{Chunks, ObserverSettings};
use request::sampler::{Sampler, SamplerKind, SamplerSettings};
use std::sync::Arc;

impl Settings {
    /// Compiles the sampler.
    ///
    /// # Errors
    /// A sentence that names the parameter: the file of the key cannot be used.
    pub fn sampler(&self) -> Result<Sampler, String> {
        let values = &self.values;
        let settings = SamplerSettings {
            kind: kind_named(values.text("sampler")),
            ratio: values.number("sample_ratio"),
            precision: values.whole("sample_precision") as u8,
            routes: values.pairs("sample_routes", |ratio| ratio.as_f64().unwrap_or(1.0)),
            skip_paths: values.texts("skip_paths"),
            trusted_callers: values.texts("trusted_callers"),
            slow_nano: values.seconds("slow_s").as_nanos() as u64,
            budget_records_s: values.whole("budget_records_s") as u32,
            key: keys::hash_key(values)?,
        };
        Sampler::new(&settings)
    }

    /// Returns the settings of a middleware's requests, which count against the budget of `service`.
    ///
    /// # Errors
    /// As [`Self::sampler`].
    pub fn observer(&self, service: &Service) -> Result<ObserverSettings, String> {
        Ok(ObserverSettings {
            capture_head_bytes: self.values.whole("capture_head_bytes") as usize,
            capture_tail_bytes: self.values.whole("capture_tail_bytes") as usize,
            texts: self.texts()?,
            ..self.model_observer(service)?
        })
    }

    /// As [`Self::observer`], for a model, whose requests have no bodies.
    ///
    /// # Errors
    /// As [`Self::sampler`].
    pub fn model_observer(&self, service: &Service) -> Result<ObserverSettings, String> {
        let sampler = self.sampler()?;
        if let Some(budget) = service.budget.get() {
            sampler.share_budget(budget);
        }
        Ok(ObserverSettings {
            chunks: Chunks::named(self.values.text("chunks"))?,
            chunk_timeline_limit: self.values.whole("chunk_timeline_limit") as usize,
            capture_head_bytes: 0,
            capture_tail_bytes: 0,
            texts: TextCapture::default(),
            sampler: Arc::new(sampler),
        })
    }

    fn texts(&self) -> Result<TextCapture, String> {
        let [input_bytes, output_bytes] = rules::captured_bytes(&self.values);
        let limit = |name: &str, bytes: i64| TextLimit { text: text_of(self.values.text(name)), bytes: bytes as usize };
        Ok(TextCapture {
            input: limit("capture_input", input_bytes),
            output: limit("capture_output", output_bytes),
            hash_key: keys::hash_key(&self.values)?,
        })
    }

    /// The header in which answers carry a request id, if any.
    #[must_use]
    pub fn response_header(&self) -> Option<&str> {
        self.values.maybe_text("response_header")
    }

    /// The header by which a client asks that none of its texts is captured, if any.
    #[must_use]
    pub fn opt_out_header(&self) -> Option<&str> {
        self.values.maybe_text("capture_opt_out_header")
    }

    /// Whether the ids of other libraries in the process take precedence over those of the request's headers.
    #[must_use]
    pub fn asks_other_libraries(&self) -> bool {
        self.values.is("trace_source", "auto")
    }

    /// Whether the application gets this package's trace and request id in headers, if the client sent none.
    /// `server_traces`: its own tracing is known to be on.
    #[must_use]
    pub fn forwards(&self, server_traces: bool) -> (bool, bool) {
        match self.values.text("forward_ids") {
            "on" => (true, true),
            "auto" => (server_traces, false),
            _ => (false, false),
        }
    }

    /// The path of one of those routes, if it is configured.
    #[must_use]
    pub fn route(&self, parameter: &str) -> Option<&str> {
        self.values.maybe_text(parameter)
    }

    /// Whether the server's own health route also gets the status of the logging.
    #[must_use]
    pub fn wraps_status(&self) -> bool {
        self.values.is("wrap_health", "status")
    }

    /// Paths at which the middleware answers itself, or adds to the answer.
    #[must_use]
    pub fn routes(&self) -> Box<[String]> {
        ROUTES.iter().filter_map(|name| self.values.maybe_text(name).map(str::to_owned)).collect()
    }

    /// Whether the tensors of a model's requests are recorded.
    #[must_use]
    pub fn records_tensors(&self) -> bool {
        self.values.is("triton_tensors", "on")
    }

    /// Whether a model instance shows its counts to Triton.
    #[must_use]
    pub fn shows_counts_to_triton(&self) -> bool {
        self.values.is("triton_metrics", "on")
    }
}

/// The schema allows these four.
fn kind_named(name: &str) -> SamplerKind {
    match name {
        "probability" => SamplerKind::Probability,
        "otel-legacy-python" => SamplerKind::OtelLegacyPython,
        "otel-legacy-java" => SamplerKind::OtelLegacyJava,
        _ => SamplerKind::Parent,
    }
}

fn text_of(mode: &str) -> BodyText {
    match mode {
        "truncated" | "full" => BodyText::Written,
        "hash" => BodyText::Hashed,
        _ => BodyText::Withheld,
    }
}
