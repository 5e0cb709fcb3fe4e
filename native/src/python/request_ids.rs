//! `RequestIds`: what the context holds of a request, for every record that is made while it is handled.

use super::gil_cell::GilCell;
use crate::ids::{RequestIds, hex16, parse_span_id, traceparent};
use crate::record::Scratch;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicBool, Ordering};

/// The ids of a request.
///
/// A context that outlives the request (a timer that was started in it) keeps this and nothing else of it alive.
#[pyclass(frozen, name = "RequestIds", module = "inference_logging._native")]
pub struct PyRequestIds {
    ids: GilCell<RequestIds>,
    /// The application wants the record kept.
    forced: AtomicBool,
}

impl PyRequestIds {
    pub const fn new(ids: RequestIds) -> Self {
        Self { ids: GilCell::new(ids), forced: AtomicBool::new(false) }
    }

    /// Whether the application wants the record kept.
    #[inline]
    pub fn is_forced(&self) -> bool {
        self.forced.load(Ordering::Relaxed)
    }

    /// Lets `work` see or change the ids; it must not run Python code.
    #[inline]
    pub fn with<R>(&self, py: Python<'_>, work: impl FnOnce(&mut RequestIds) -> R) -> R {
        self.ids.with(py, work)
    }

    /// Appends our request id.
    #[inline]
    pub fn push_request_id(&self, py: Python<'_>, scratch: &mut Scratch) {
        self.ids.with(py, |ids| ids.push_request_id(scratch));
    }
}

#[pymethods]
impl PyRequestIds {
    /// The trace id, 32 lowercase hex digits.
    #[getter]
    fn trace_id(&self, py: Python<'_>) -> String {
        self.with(py, |ids| format!("{:032x}", u128::from_be_bytes(ids.trace.trace_id)))
    }

    /// The id of this request's span, 16 lowercase hex digits.
    #[getter]
    fn span_id(&self, py: Python<'_>) -> String {
        self.with(py, |ids| text(&hex16(ids.trace.span_id)))
    }

    /// Our id of the request, 16 lowercase hex digits.
    #[getter]
    fn request_id(&self, py: Python<'_>) -> String {
        self.with(py, |ids| text(&ids.request_id()))
    }

    /// The client's id of the request, or None where it sent no valid one.
    #[getter]
    fn client_request_id(&self, py: Python<'_>) -> Option<String> {
        self.with(py, |ids| ids.client().map(text))
    }

    /// Keep the record of this request, whatever the sampler decided.
    fn keep(&self) {
        self.forced.store(true, Ordering::Relaxed);
    }

    /// Return the headers that make a call to another service a child of this request.
    ///
    /// `traceparent`, and `tracestate` where the caller sent a valid one (W3C Trace Context Level 2). The parent is this
    /// request's span, or `span_id` (16 lowercase hex digits, not all zero) for an application that gives each of its
    /// calls a span of its own. Raises ValueError for another `span_id`.
    #[pyo3(signature = (*, span_id = None))]
    fn outgoing_headers<'py>(&self, py: Python<'py>, span_id: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
        let (mut trace, state) = self.with(py, |ids| (ids.trace, ids.outgoing_state()));
        if let Some(digits) = span_id {
            trace.span_id = parse_span_id(digits.as_bytes()).ok_or_else(|| {
                PyValueError::new_err(format!("span_id={digits:?}: must be 16 lowercase hex digits, not all zero"))
            })?;
        }
        let headers = PyDict::new(py);
        headers.set_item("traceparent", traceparent(&trace))?;
        if let Some(state) = state {
            headers.set_item("tracestate", state)?;
        }
        Ok(headers)
    }
}

fn text(ascii: &[u8]) -> String {
    String::from_utf8_lossy(ascii).into_owned()
}
