//! The inference engine behind the server: its report about a request, and the headers that pass the ids to it.

use super::asgi::{item, text};
use super::head::RequestStart;
use super::held::Held;
use super::request_ids::PyRequestIds;
use super::value;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use queue::record::Scratch;
use request::fields::{Engine, Exact, TextList, Usage};
use request::ids::{RequestIds, traceparent};
use request::observer::EngineFacts;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads the data that vLLM leaves about a request in `scope["state"]["request_metadata"]`.
///
/// The reader is native because it runs at the end of every request, when none of the data is in the processor's
/// caches. In Python it took a quarter of the whole cost of a short request.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct EngineReader {
    /// `take(request_id, ids)` returns None, or a tuple as in [`ReportTuple`].
    take: Held,
    /// `failed(error)` is called once, if vLLM's classes have changed.
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
    /// Asks for the report at the end of a request; None if vLLM did not begin to generate.
    pub fn read<'py>(
        &self,
        scope: &Bound<'py, PyDict>,
        ids: impl FnOnce() -> PyResult<Py<PyRequestIds>>,
    ) -> Option<EngineReport<'py>> {
        let py = scope.py();
        let state = scope.get_item(intern!(py, "state")).ok()??;
        let metadata = state.cast::<PyDict>().ok()?.get_item(intern!(py, "request_metadata")).ok()??;
        if metadata.is_none() || self.is_off.load(Ordering::Relaxed) {
            return None;
        }
        match ids().and_then(|ids| self.ask(&metadata, &ids)) {
            Ok(report) => Some(report),
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

    fn ask<'py>(&self, metadata: &Bound<'py, PyAny>, ids: &Py<PyRequestIds>) -> PyResult<EngineReport<'py>> {
        let py = metadata.py();
        let request_id = metadata.getattr(intern!(py, "request_id"))?.cast_into::<PyString>()?;
        let response = metadata.getattr(intern!(py, "final_usage_info"))?;
        let report = self.take.get(py).map(|take| take.call1((&request_id, ids))).transpose()?;
        let report =
            report.filter(|report| !report.is_none()).map(|report| report.extract::<ReportTuple<'_>>()).transpose()?;
        let (
            aborted,
            mut input,
            mut output,
            mut cached,
            requests,
            reasons,
            queued_s,
            prefill_s,
            decode_s,
            e2e_s,
            preemptions,
        ) = report.unwrap_or_default();
        if !response.is_none() {
            let details = response.getattr(intern!(py, "prompt_tokens_details"))?;
            let found = if details.is_none() { None } else { details.getattr_opt(intern!(py, "cached_tokens"))? };
            input = response.getattr(intern!(py, "prompt_tokens"))?.extract()?;
            output = response.getattr(intern!(py, "completion_tokens"))?.extract()?;
            cached = found.map(|found| found.extract()).transpose()?.flatten().or(cached);
        }
        let usage = Usage { input, output, cached, source: if input.is_some() { "engine" } else { "" } };
        let engine = Engine {
            // [`EngineReport::facts`] adds the two texts.
            request_id: Exact(""),
            finish_reasons: None,
            requests,
            queued_s,
            prefill_s,
            decode_s,
            e2e_s,
            preemptions,
        };
        Ok(EngineReport {
            numbers: EngineFacts { aborted, usage, engine },
            request_id,
            id_characters: self.id_characters,
            finish_reasons: reasons.map(|reasons| encoded(&reasons)),
        })
    }
}

/// What vLLM and its engine report of a request.
pub struct EngineReport<'py> {
    /// The facts without the texts.
    numbers: EngineFacts<'static>,
    request_id: Bound<'py, PyString>,
    /// The number of the id's characters that are recorded.
    id_characters: usize,
    /// The reasons, encoded as a value.
    finish_reasons: Option<Vec<u8>>,
}

impl EngineReport<'_> {
    /// The facts for the request's record.
    pub fn facts(&self) -> EngineFacts<'_> {
        let id = text(self.request_id.as_any().as_borrowed());
        let end = id.char_indices().nth(self.id_characters).map_or(id.len(), |(at, _)| at);
        let finish_reasons = self.finish_reasons.as_deref().map(TextList);
        let engine = Engine { request_id: Exact(&id[..end]), finish_reasons, ..self.numbers.engine };
        EngineFacts { engine, ..self.numbers }
    }
}

/// Whether the engine gave the request up; its tokens (read, generated, cached); the number of engine requests, the
/// reasons for their ends, their seconds (queued, prefill, decode, all), and how often they were preempted.
type ReportTuple<'py> = (
    bool,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<Bound<'py, PyAny>>,
    Option<f64>,
    Option<f64>,
    Option<f64>,
    Option<f64>,
    Option<u64>,
);

fn encoded(list: &Bound<'_, PyAny>) -> Vec<u8> {
    let mut scratch = Scratch::new();
    // SAFETY: a live object; the GIL is held and no exception is set.
    unsafe { value::push(list.py(), &mut scratch, list.as_ptr()) };
    scratch.as_slice().to_vec()
}

/// The ids that are passed to the application in headers, if the client sent none.
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

    /// Adds the headers to a scope, if its header list can be extended.
    #[inline(never)]
    pub fn add(self, scope: &Bound<'_, PyDict>, headers: &Py<PyString>, head: Sent, ids: &RequestIds) {
        let headers = item(scope, headers).map(Borrowed::to_owned);
        let Some(headers) = headers.as_ref().and_then(|headers| headers.cast::<PyList>().ok()) else { return };
        let add = |name: &[u8], value: &[u8]| {
            let py = scope.py();
            // If there is no memory for it, the application does without the header.
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

/// The ids that the client sent, valid or not.
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
