//! The inference engine behind the server: its report about a request, and the headers that pass the ids to it.

use super::asgi::{item, text};
use super::headers::RequestStart;
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
use request::outcome::Abort;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads the data that vLLM leaves about a request in `scope["state"]["request_metadata"]`.
///
/// The reader is native because it runs at the end of every request, when none of the data is in the processor's
/// caches. In Python it took a quarter of the whole cost of a short request.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct EngineReader {
    /// `take(ids, broke_off)` returns None, or a tuple as in [`ReportTuple`]; `broke_off`: a part of the answer has not passed.
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
    /// Asks for the report at the end of a request; None if vLLM did not begin to work on it.
    pub fn read<'py>(
        &self,
        scope: &Bound<'py, PyDict>,
        broke_off: bool,
        ids: impl FnOnce() -> PyResult<Py<PyRequestIds>>,
    ) -> Option<EngineReport<'py>> {
        let py = scope.py();
        if self.is_off.load(Ordering::Relaxed) {
            return None;
        }
        let take = self.take.get(py);
        let metadata = metadata(scope);
        if metadata.is_none() && take.is_none() {
            return None;
        }
        let report = ids().and_then(|ids| {
            let report = take.map(|take| take.call1((ids, broke_off))).transpose()?;
            Self::join(metadata.as_ref(), report.filter(|report| !report.is_none()), self.id_characters)
        });
        report.unwrap_or_else(|error| {
            if !self.is_off.swap(true, Ordering::Relaxed)
                && let Err(error) = self.failed.call1(py, (error.into_value(py),))
            {
                error.write_unraisable(py, None);
            }
            None
        })
    }

    fn join<'py>(
        metadata: Option<&Bound<'py, PyAny>>,
        report: Option<Bound<'py, PyAny>>,
        id_characters: usize,
    ) -> PyResult<Option<EngineReport<'py>>> {
        let (
            engine_id,
            asked,
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
        ) = report.map(|report| report.extract::<ReportTuple<'_>>()).transpose()?.unwrap_or_default();
        let mut request_id = engine_id;
        if let Some(metadata) = metadata {
            let py = metadata.py();
            request_id = Some(metadata.getattr(intern!(py, "request_id"))?.cast_into::<PyString>()?);
            let response = metadata.getattr(intern!(py, "final_usage_info"))?;
            if !response.is_none() {
                let details = response.getattr(intern!(py, "prompt_tokens_details"))?;
                let found = if details.is_none() { None } else { details.getattr_opt(intern!(py, "cached_tokens"))? };
                let counted = input;
                input = response.getattr(intern!(py, "prompt_tokens"))?.extract()?;
                output = response.getattr(intern!(py, "completion_tokens"))?.extract()?;
                // A beam search reads its prompt again and again: what it found in the cache then is no part of the prompt.
                cached =
                    found.map(|found| found.extract()).transpose()?.flatten().or(cached.filter(|_| counted == input));
            }
        }
        let Some(request_id) = request_id else { return Ok(None) };
        let aborted = match asked {
            None => Abort::No,
            Some(false) => Abort::Engine,
            Some(true) => Abort::Asked,
        };
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
        Ok(Some(EngineReport {
            numbers: EngineFacts { aborted, usage, engine },
            request_id,
            id_characters,
            finish_reasons: reasons.map(|reasons| encoded(&reasons)),
        }))
    }
}

/// What vLLM's route has left of the request, if it has.
fn metadata<'py>(scope: &Bound<'py, PyDict>) -> Option<Bound<'py, PyAny>> {
    let py = scope.py();
    let state = scope.get_item(intern!(py, "state")).ok()??;
    let metadata = state.cast::<PyDict>().ok()?.get_item(intern!(py, "request_metadata")).ok()??;
    Some(metadata).filter(|metadata| !metadata.is_none())
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

/// The engine's id of the request, or the first; whether it was asked to give it up, if it did; its tokens (read, generated, cached); the number
/// of engine requests, the reasons for their ends, their seconds (queued, prefill, decode, all), and how often they were
/// preempted.
type ReportTuple<'py> = (
    Option<Bound<'py, PyString>>,
    Option<bool>,
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
