//! The settings of requests: sampling, observation, and captured texts.

use crate::{Parameters, keys, rules};
use queue::record::BodyText;
use request::added::Recorded;
use request::budget::Budget;
use request::capture::{TextCapture, TextLimit};
use request::observer::{Chunks, ObserverSettings};
use request::sampler::{Sampler, SamplerKind, SamplerSettings};
use std::sync::Arc;

impl Parameters {
    /// Compiles the sampler.
    ///
    /// # Errors
    /// A sentence that names the parameter: the file of the key cannot be used.
    pub fn sampler(&self) -> Result<Sampler, String> {
        let values = &self.values;
        let settings = SamplerSettings {
            kind: kind_named(&values.sampler),
            ratio: values.sample_ratio,
            precision: values.sample_precision,
            routes: values.sample_routes.clone(),
            skip_paths: values.skip_paths.clone(),
            trusted_callers: values.trusted_callers.clone(),
            slow_nano: values.slow_s.as_nanos() as u64,
            budget_records_s: values.budget_records_s,
            key: keys::hash_key(self.capture_hash_key_file.as_deref())?,
        };
        Sampler::new(&settings)
    }

    /// Returns the settings of a middleware's requests, which count against `budget`.
    ///
    /// # Errors
    /// As [`Self::sampler`]; or a sentence for each entry of what is recorded that is wrong.
    pub fn observer(&self, budget: Option<&Arc<Budget>>) -> Result<ObserverSettings, String> {
        Ok(ObserverSettings {
            capture_head_bytes: self.values.capture_head_bytes,
            capture_tail_bytes: self.values.capture_tail_bytes,
            texts: self.texts()?,
            ..self.model_observer(budget)?
        })
    }

    /// As [`Self::observer`], for a model, whose requests have no bodies.
    ///
    /// # Errors
    /// As [`Self::observer`].
    pub fn model_observer(&self, budget: Option<&Arc<Budget>>) -> Result<ObserverSettings, String> {
        let sampler = self.sampler()?;
        if let Some(budget) = budget {
            sampler.share_budget(budget);
        }
        Ok(ObserverSettings {
            chunks: Chunks::named(&self.values.chunks)?,
            chunk_timeline_limit: self.values.chunk_timeline_limit,
            capture_head_bytes: 0,
            capture_tail_bytes: 0,
            texts: TextCapture::default(),
            recorded: self.recorded().map_err(|found| found.join("\n"))?,
            sampler: Arc::new(sampler),
        })
    }

    /// Returns what is added to a request's record.
    ///
    /// # Errors
    /// A sentence for each entry of `record_headers` and `record_body_fields` that is wrong.
    pub fn recorded(&self) -> Result<Recorded, Vec<String>> {
        let values = &self.values;
        let has_key = self.capture_hash_key_file.is_some();
        let recorded = Recorded::parse(&values.record_headers, &values.record_body_fields, has_key)?;
        let recorded = if values.capture_body == "raw" { recorded.with_bodies() } else { recorded };
        Ok(if values.capture_tools == "full" { recorded.with_tools() } else { recorded })
    }

    fn texts(&self) -> Result<TextCapture, String> {
        let [input_bytes, output_bytes] = rules::captured_bytes(self);
        let limit = |mode: &str, bytes: i64| TextLimit { text: text_of(mode), bytes: bytes as usize };
        Ok(TextCapture {
            input: limit(&self.values.capture_input, input_bytes),
            output: limit(&self.values.capture_output, output_bytes),
            body_bytes: rules::body_bytes(&self.values) as usize,
            hash_key: keys::hash_key(self.capture_hash_key_file.as_deref())?,
        })
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
