//! `Sampler`: the middleware's decision at the beginning of each request, on its own; for tests.

use super::settings::PySettings;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use queue::layout::SampledOut;
use queue::system::now_monotonic_nano;
use request::callers::Caller;
use request::callers::Parent;
use request::ids::encode_threshold;
use request::ratio::R_END;
use request::ratio::Way;
use request::sampler::Sampler;

/// The rejection threshold T of a ratio (0, or 2^-56 to 1), its `th` (None: nothing is kept, which no `th` can say), and
/// how many traces one that is kept stands for.
#[pyfunction]
pub fn sampling_threshold(ratio: f64, precision: u8) -> (u64, Option<String>, f64) {
    let threshold = Way::Consistent { precision }.threshold(ratio);
    let t = threshold.t();
    (t, (t < R_END).then(|| encode_threshold(t)), threshold.adjusted_count())
}

/// Decides which requests are recorded.
///
/// Raises OSError, naming the parameter, if the key cannot be read.
#[pyclass(frozen, name = "Sampler", module = "inference_logging._native")]
pub struct PySampler(Sampler);

#[pymethods]
impl PySampler {
    #[new]
    fn new(settings: &PySettings) -> PyResult<Self> {
        Ok(Self(settings.of().sampler().map_err(PyOSError::new_err)?))
    }

    /// Decide at the beginning of a request, as the middleware does.
    ///
    /// `trace_id` is 32 hex digits, `parent` the data of a trusted caller: its flag, T and R. `stranger`: the id comes
    /// from a caller that is not trusted. Return whether the request is kept, how many it stands for (None: unknown),
    /// and the reason if it is not: head, parent, budget or skipped.
    #[pyo3(signature = (trace_id, path="/", parent=None, *, stranger=false))]
    fn head(
        &self,
        trace_id: &str,
        path: &str,
        parent: Option<(bool, Option<u64>, Option<u64>)>,
        stranger: bool,
    ) -> PyResult<(bool, Option<f64>, &'static str)> {
        let id = u128::from_str_radix(trace_id, 16).ok().filter(|_| trace_id.len() == 32);
        let id = id.ok_or_else(|| PyValueError::new_err(format!("trace_id={trace_id:?}: must be 32 hex digits")))?;
        let caller = match parent {
            Some((sampled, th, rv)) => Caller::Trusted(Parent { sampled, th, rv }),
            None if stranger => Caller::Stranger,
            None => Caller::Nobody,
        };
        let head = self.0.head(&id.to_be_bytes(), caller, path.as_bytes(), now_monotonic_nano());
        let count = (!head.adjusted_count.is_nan()).then_some(head.adjusted_count);
        let reason = if head.kept { "" } else { SampledOut::name(head.left_out_by) };
        Ok((head.kept, count, reason))
    }

    /// Return whether the sampling decision of the caller at this address counts.
    fn trusts(&self, client_address: &str) -> bool {
        self.0.trusts(client_address)
    }
}
