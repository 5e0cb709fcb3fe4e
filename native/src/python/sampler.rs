//! The sampler's settings as Python gives them, in one object: `RequestFactory` takes it, and tests ask it.

use crate::layout::SampledOut;
use crate::sampler::{Parent, Sampler, SamplerKind, SamplerSettings};
use crate::system::now_monotonic_nano;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// Decides which requests are recorded.
///
/// `kind` is `parent`, `probability`, `otel-legacy-python` or `otel-legacy-java`. Raises ValueError naming what is wrong.
#[pyclass(frozen, name = "Sampler", module = "inference_logging._native")]
pub struct PySampler(Arc<Sampler>);

impl PySampler {
    /// The sampler itself, to be shared by all requests.
    pub fn sampler(&self) -> Arc<Sampler> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl PySampler {
    #[new]
    #[pyo3(signature = (kind, *, ratio=1.0, precision=4, routes=Vec::new(), skip_paths=Vec::new(),
        trusted_callers=Vec::new(), slow_s=0.0, budget_records_s=0))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only, one per setting")]
    fn new(
        kind: &str,
        ratio: f64,
        precision: u8,
        routes: Vec<(String, f64)>,
        skip_paths: Vec<String>,
        trusted_callers: Vec<String>,
        slow_s: f64,
        budget_records_s: u32,
    ) -> PyResult<Self> {
        let settings = SamplerSettings {
            kind: kind_named(kind)?,
            ratio,
            precision,
            routes,
            skip_paths,
            trusted_callers,
            // The conversion saturates: what is negative or no number is 0, off.
            slow_nano: (slow_s * 1e9) as u64,
            budget_records_s,
        };
        Ok(Self(Arc::new(Sampler::new(&settings).map_err(PyValueError::new_err)?)))
    }

    /// Decide at the beginning of a request, as the middleware does.
    ///
    /// `trace_id` is 32 hex digits, `parent` what a trusted caller told: its flag, T and R. Return whether the request
    /// is kept, how many it stands for (None: unknown), and the reason if it is not: head, parent, budget or skipped.
    #[pyo3(signature = (trace_id, path="/", parent=None))]
    fn head(
        &self,
        trace_id: &str,
        path: &str,
        parent: Option<(bool, Option<u64>, Option<u64>)>,
    ) -> PyResult<(bool, Option<f64>, &'static str)> {
        let id = u128::from_str_radix(trace_id, 16).ok().filter(|_| trace_id.len() == 32);
        let id = id.ok_or_else(|| PyValueError::new_err(format!("trace_id={trace_id:?}: must be 32 hex digits")))?;
        let parent = parent.map(|(sampled, th, rv)| Parent { sampled, th, rv });
        let head = self.0.head(&id.to_be_bytes(), parent.as_ref(), path.as_bytes(), now_monotonic_nano());
        let count = (!head.adjusted_count.is_nan()).then_some(head.adjusted_count);
        let reason = if head.kept { "" } else { SampledOut::name(head.left_out_by) };
        Ok((head.kept, count, reason))
    }

    /// Return whether the sampling decision of the caller at this address counts.
    fn trusts(&self, client_address: &str) -> bool {
        self.0.trusts(client_address)
    }
}

fn kind_named(name: &str) -> PyResult<SamplerKind> {
    Ok(match name {
        "parent" => SamplerKind::Parent,
        "probability" => SamplerKind::Probability,
        "otel-legacy-python" => SamplerKind::OtelLegacyPython,
        "otel-legacy-java" => SamplerKind::OtelLegacyJava,
        other => {
            return Err(PyValueError::new_err(format!(
                "sampler={other:?}: must be parent, probability, otel-legacy-python or otel-legacy-java"
            )));
        }
    })
}
