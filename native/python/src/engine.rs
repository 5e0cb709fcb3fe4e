//! The inference engine behind the server: what it says of a request, and the headers by which it learns the ids.

use super::asgi::{is_true, item, text};
use super::head::RequestStart;
use super::held::Held;
use super::request_ids::PyRequestIds;
use super::value;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use queue::record::Scratch;
use request::ids::{RequestIds, traceparent};
use request::observer::EngineFacts;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads what vLLM leaves of a request in `scope["state"]["request_metadata"]`.
///
/// Native, since it is read at the end of every request, when nothing of it is in the processor's caches: in Python it
/// was a quarter of all that a short request cost.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct EngineReader {
    /// `take(request_id, ids)`: None, or whether the engine gave the request up, its tokens (read, generated, cached)
    /// and the values of the last fields of its record.
    take: Held,
    /// `failed(error)`, called once: vLLM's classes are not what they were.
    failed: Held,
    id_characters: usize,
    is_off: AtomicBool,
}

#[pymethods]
impl EngineReader {
    #[new]
    #[pyo3(signature = (*, take, failed, id_characters))]
    const fn new(take: Option<Py<PyAny>>, failed: Py<PyAny>, id_characters: usize) -> Self {
        Self { take: Held::maybe(take), failed: Held::new(failed), id_characters, is_off: AtomicBool::new(false) }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.take.visit(&visit)?;
        self.failed.visit(&visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        self.take.clear(py);
        self.failed.clear(py);
    }
}

impl EngineReader {
    /// Asks at the end of a request; None if vLLM did not get to generating anything.
    pub fn read(&self, scope: &Bound<'_, PyDict>, ids: &Py<PyRequestIds>) -> Option<EngineFacts> {
        let py = scope.py();
        let state = scope.get_item(intern!(py, "state")).ok()??;
        let metadata = state.cast::<PyDict>().ok()?.get_item(intern!(py, "request_metadata")).ok()??;
        if metadata.is_none() || self.is_off.load(Ordering::Relaxed) {
            return None;
        }
        match self.facts(&metadata, ids) {
            Ok(facts) => Some(facts),
            Err(error) => {
                if !self.is_off.swap(true, Ordering::Relaxed)
                    && let Err(error) = self.failed.call1(py, (error.into_value(py),))
                {
                    error.write_unraisable(py, None);
                }
                None
            }
        }
    }

    /// The facts in the order of the record's fields, from the tokens that were read on.
    fn facts(&self, metadata: &Bound<'_, PyAny>, ids: &Py<PyRequestIds>) -> PyResult<EngineFacts> {
        let py = metadata.py();
        let request_id = metadata.getattr(intern!(py, "request_id"))?.cast_into::<PyString>()?;
        let usage = metadata.getattr(intern!(py, "final_usage_info"))?;
        let engine = self.take.get(py).map(|take| take.call1((&request_id, ids))).transpose()?;
        let engine = engine.as_ref().filter(|engine| !engine.is_none());
        let engine = engine.map(|engine| engine.cast::<PyTuple>()).transpose()?;
        let mut engine = engine.map(|engine| engine.iter_borrowed());
        let mut told = || engine.as_mut().and_then(Iterator::next).filter(|value| !value.is_none());
        let aborted = told().is_some_and(is_true);
        let mut tokens = std::array::from_fn(|_| told().map(Borrowed::to_owned));
        if !usage.is_none() {
            let details = usage.getattr(intern!(py, "prompt_tokens_details"))?;
            let cached = if details.is_none() { None } else { details.getattr_opt(intern!(py, "cached_tokens"))? };
            tokens = [
                Some(usage.getattr(intern!(py, "prompt_tokens"))?),
                Some(usage.getattr(intern!(py, "completion_tokens"))?),
                cached.filter(|cached| !cached.is_none()).or_else(|| tokens[2].take()),
            ];
        }
        let mut scratch = Scratch::new();
        let is_known = tokens[0].is_some();
        for value in &tokens {
            push(&mut scratch, value.as_ref().map(Bound::as_borrowed));
        }
        if is_known {
            scratch.push_str("engine");
        } else {
            scratch.push_absent();
        }
        let request_id = text(request_id.as_any().as_borrowed());
        let end = request_id.char_indices().nth(self.id_characters).map_or(request_id.len(), |(at, _)| at);
        scratch.push_str(&request_id[..end]);
        for value in engine.into_iter().flatten() {
            push(&mut scratch, Some(value).filter(|value| !value.is_none()));
        }
        Ok(EngineFacts { aborted, values: scratch.as_slice().to_vec() })
    }
}

fn push(scratch: &mut Scratch, value: Option<Borrowed<'_, '_, PyAny>>) {
    match value {
        None => scratch.push_absent(),
        // SAFETY: a live object, which the caller holds; the GIL is held and no exception is set.
        Some(value) => unsafe { value::push(value.py(), scratch, value.as_ptr()) },
    }
}

/// Which ids the application is told in headers, where the client sent none.
#[derive(Clone, Copy, Default)]
pub struct ForwardIds {
    pub trace: bool,
    pub request: bool,
}

impl ForwardIds {
    #[inline]
    pub const fn is_on(self) -> bool {
        self.trace || self.request
    }

    /// Adds the headers to a scope whose header list can be added to.
    pub fn add(self, scope: &Bound<'_, PyDict>, headers: &Py<PyString>, head: Sent, ids: &RequestIds) {
        let headers = item(scope, headers).map(Borrowed::to_owned);
        let Some(headers) = headers.as_ref().and_then(|headers| headers.cast::<PyList>().ok()) else { return };
        let add = |name: &[u8], value: &[u8]| {
            let py = scope.py();
            // Without memory for it the application does without.
            let _ = headers.append((PyBytes::new(py, name), PyBytes::new(py, value)));
        };
        if self.trace && !head.trace {
            add(b"traceparent", traceparent(&ids.trace).as_bytes());
            if let Some(state) = ids.outgoing_state() {
                add(b"tracestate", state.as_bytes());
            }
        }
        if self.request && !head.request {
            add(b"x-request-id", &ids.request_id());
        }
    }
}

/// Which ids the client sent, valid or not.
#[derive(Clone, Copy)]
pub struct Sent {
    pub trace: bool,
    pub request: bool,
}

impl From<&RequestStart<'_>> for Sent {
    #[inline]
    fn from(head: &RequestStart<'_>) -> Self {
        let trace = head.traceparent.iter().next().is_some() || head.tracestate.iter().next().is_some();
        Self { trace, request: head.request_id.is_some() }
    }
}
