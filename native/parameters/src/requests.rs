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

    /// Returns the settings of a middleware's requests, which count against `budget`.
    ///
    /// # Errors
    /// As [`Self::sampler`]; or a sentence for each entry of what is recorded that is wrong.
    pub fn observer(&self, budget: Option<&Arc<Budget>>) -> Result<ObserverSettings, String> {
        Ok(ObserverSettings {
            capture_head_bytes: self.values.whole("capture_head_bytes") as usize,
            capture_tail_bytes: self.values.whole("capture_tail_bytes") as usize,
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
            chunks: Chunks::named(self.values.text("chunks"))?,
            chunk_timeline_limit: self.values.whole("chunk_timeline_limit") as usize,
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
        let has_key = values.maybe_text("capture_hash_key_file").is_some();
        let recorded = Recorded::parse(&values.texts("record_headers"), &values.texts("record_body_fields"), has_key)?;
        let recorded = if values.is("capture_body", "raw") { recorded.with_bodies() } else { recorded };
        Ok(if values.is("capture_tools", "full") { recorded.with_tools() } else { recorded })
    }

    fn texts(&self) -> Result<TextCapture, String> {
        let [input_bytes, output_bytes] = rules::captured_bytes(&self.values);
        let limit = |name: &str, bytes: i64| TextLimit { text: text_of(self.values.text(name)), bytes: bytes as usize };
        Ok(TextCapture {
            input: limit("capture_input", input_bytes),
            output: limit("capture_output", output_bytes),
            body_bytes: rules::body_bytes(&self.values) as usize,
            hash_key: keys::hash_key(&self.values)?,
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
