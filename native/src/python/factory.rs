//! `RequestFactory`: the configuration of a middleware, and the beginning of each of its requests.

use super::asgi::{Keys, first, has_body, is_private, item, text, text_of};
use super::engine::{EngineReader, ForwardIds, Sent};
use super::foreign::{ACTIVE_SPAN, ActiveSpan, CORRELATION_ID};
use super::gil_cell::GilCell;
use super::head::RequestHead;
use super::hot_path::Turns;
use super::middleware::{RECEIVE, RequestObserver, SEND};
use super::request_ids::PyRequestIds;
use super::sampler::PySampler;
use super::service::PyService;
use super::text_capture::PyTextCapture;
use super::{FunctionDef, bind};
use crate::capture::Content;
use crate::flight::facts::Begun;
use crate::ids::{IdSource, RequestIds};
use crate::layout::SampledOut;
use crate::observer::{Chunks, Observer, ObserverSettings};
use crate::runtime::Overrides;
use crate::sampler::{Head, Parent};
use crate::service::Service;
use crate::system::{now_monotonic_nano, now_unix_nano};
use crate::trace_state::TraceState;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the observers of a middleware's requests: configuration, and a source of ids.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct RequestFactory {
    shared: Arc<Shared>,
}

/// What all requests of a middleware have in common.
pub struct Shared {
    pub service: Arc<Service>,
    pub settings: ObserverSettings,
    ids: IdSource,
    pub keys: Keys,
    turns: Turns,
    /// `async def observed_receive(receive, observer)`.
    pub observed_receive: Py<PyAny>,
    /// Name of the header in which answers carry a request id.
    pub response_header: Option<Py<PyBytes>>,
    /// Name of the header by which a client asks that none of its texts is captured.
    opt_out_header: Option<String>,
    /// Functions that look for other libraries in the process; None: they are not to be asked.
    span_reader: Option<Py<PyAny>>,
    correlation_reader: Option<Py<PyAny>>,
    /// The engine behind the server, if one is known.
    pub engine: Option<Py<EngineReader>>,
    forward_ids: ForwardIds,
    requests: AtomicU64,
    /// Requests of these begin only where they are asked to.
    special_paths: Box<[String]>,
}

/// Every so many requests it is looked whether the application has imported another library that knows the ids.
const LOOK_EVERY: u64 = 64;

static BEGIN: FunctionDef = FunctionDef::fast(c"begin", begin, c"Begin to observe a request.");

#[pymethods]
impl RequestFactory {
    #[new]
    #[pyo3(signature = (service, observed_receive, *, span_reader, correlation_reader, engine_reader, forward_trace, forward_request_id, response_header, chunks, chunk_timeline_limit, capture_head_bytes, capture_tail_bytes, texts, opt_out_header, sampler, special_paths))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only, one per setting")]
    fn new(
        py: Python<'_>,
        service: &PyService,
        observed_receive: Py<PyAny>,
        span_reader: Option<Py<PyAny>>,
        correlation_reader: Option<Py<PyAny>>,
        engine_reader: Option<Py<EngineReader>>,
        forward_trace: bool,
        forward_request_id: bool,
        response_header: Option<&str>,
        chunks: &str,
        chunk_timeline_limit: usize,
        capture_head_bytes: usize,
        capture_tail_bytes: usize,
        texts: &PyTextCapture,
        opt_out_header: Option<String>,
        sampler: &PySampler,
        special_paths: Vec<String>,
    ) -> PyResult<Self> {
        let chunks = Chunks::named(chunks).map_err(PyValueError::new_err)?;
        let settings = ObserverSettings {
            chunks,
            chunk_timeline_limit,
            capture_head_bytes,
            capture_tail_bytes,
            texts: texts.settings.clone(),
            sampler: sampler.sampler(),
        };
        if correlation_reader.is_none() {
            CORRELATION_ID.set(None);
        }
        let shared = Shared {
            service: service.service(),
            settings,
            ids: IdSource::new()?,
            keys: Keys::intern(py),
            turns: Turns::new(),
            observed_receive,
            response_header: response_header
                .map(|name| PyBytes::new(py, name.to_ascii_lowercase().as_bytes()).unbind()),
            opt_out_header,
            span_reader,
            correlation_reader,
            engine: engine_reader,
            forward_ids: ForwardIds { trace: forward_trace, request: forward_request_id },
            requests: AtomicU64::new(0),
            special_paths: special_paths.into(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The function `begin(scope, receive, send)`, which returns the observer, its ids, and the `receive` and `send` to
    /// go on with; or None for a scope that is not `http`, and for a special path unless a fourth argument is given.
    #[getter]
    fn begin(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        bind(&BEGIN, slf.as_any())
    }

    /// Draw new seeds for ids; call it in a forked child.
    fn reseed(&self) -> PyResult<()> {
        Ok(self.shared.ids.reseed()?)
    }
}

impl RequestFactory {
    #[inline]
    fn ids(&self, head: &RequestHead<'_>) -> RequestIds {
        let trace = self.shared.ids.trace(head.traceparent.single());
        // The list belongs to the trace that came with it.
        let continued = trace.parent_span_id != [0; 8];
        let state = if continued { TraceState::from_lines(head.tracestate.iter()) } else { None };
        RequestIds::new(trace, head.request_id, state)
    }

    #[inline]
    fn observer<'py>(
        &self,
        scope: &Bound<'py, PyDict>,
        path: Option<Bound<'py, PyAny>>,
        receive: Py<PyAny>,
        send: Py<PyAny>,
        now: u64,
    ) -> PyResult<Bound<'py, RequestObserver>> {
        let keys = &self.shared.keys;
        let head = RequestHead::read(item(scope, &keys.headers));
        let sent = Sent::from(&head);
        let mut ids = self.ids(&head);
        self.shared.look_for_others(scope.py());
        let span = ActiveSpan::read(scope.py());
        if let Some(span) = &span {
            ids.follow(span.trace_id, span.span_id, span.flags);
        }
        let (decision, overrides) = self.shared.decide(scope, &mut ids, path.as_ref(), now);
        let mut state = Observer::begin(now, decision);
        if let Some(overrides) = &overrides {
            state.apply(overrides, self.shared.service.runtime);
        }
        let content = head.content(self.shared.settings.texts.is_on());
        if self.shared.captures(content) && item(scope, &keys.method).is_some_and(has_body) {
            let is_private = self.shared.is_private(item(scope, &keys.headers));
            state.capture_request(content, is_private, &self.shared.settings);
        }
        self.enter(&mut state, &ids, item(scope, &keys.method).map_or("", text), path.as_ref(), now);
        if self.shared.forward_ids.is_on() {
            self.shared.forward_ids.add(scope, &keys.headers, sent, &ids);
        }
        let observer = RequestObserver {
            path: path.map(Bound::unbind),
            generation: self.shared.service.producer.generation(),
            shared: Arc::clone(&self.shared),
            receive,
            send,
            scope: scope.clone().unbind(),
            ids: Py::new(scope.py(), PyRequestIds::new(ids, span.is_some()))?,
            state: GilCell::new(state),
            stopwatch: self.shared.turns.next(scope.py()),
        };
        Bound::new(scope.py(), observer)
    }
}

impl RequestFactory {
    /// Gives the request its slot of the flight recorder.
    #[inline]
    fn enter(&self, state: &mut Observer, ids: &RequestIds, method: &str, path: Option<&Bound<'_, PyAny>>, now: u64) {
        let head = state.head();
        let begun = Begun {
            started: now,
            started_unix_nano: now_unix_nano(),
            ids,
            method: method.as_bytes(),
            path: path.map_or("", |path| text(path.as_borrowed())).as_bytes(),
            is_probe: !head.kept && head.left_out_by == SampledOut::Skipped,
            model: b"",
        };
        if let Some(in_flight) = self.shared.service.producer.begin_request(&begun) {
            state.enter(in_flight);
        }
    }
}

impl Shared {
    /// Whether anything of a body with this content may be wanted.
    #[inline]
    fn captures(&self, content: Content<'_>) -> bool {
        content == Content::Json || self.settings.texts.is_on()
    }

    /// Whether the client asks that none of its texts is captured, where they would be.
    #[inline]
    fn is_private(&self, headers: Option<Borrowed<'_, '_, PyAny>>) -> bool {
        let header = self.opt_out_header.as_deref().filter(|_| self.settings.texts.is_on());
        header.is_some_and(|header| is_private(headers, header.as_bytes()))
    }

    #[inline]
    fn is_special(&self, path: &str) -> bool {
        self.special_paths.iter().any(|special| special == path)
    }

    #[inline]
    fn look_for_others(&self, py: Python<'_>) {
        if self.requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
            for (reader, find) in [(&ACTIVE_SPAN, &self.span_reader), (&CORRELATION_ID, &self.correlation_reader)] {
                if let Some(find) = find.as_ref().filter(|_| reader.is_missing()) {
                    reader.find(find.bind(py));
                }
            }
        }
    }

    /// Asks the sampler about a request, and writes its decision into a trace that begins with it. What an operator has
    /// overridden comes back too.
    #[inline]
    pub fn decide(
        &self,
        scope: &Bound<'_, PyDict>,
        ids: &mut RequestIds,
        path: Option<&Bound<'_, PyAny>>,
        now: u64,
    ) -> (Head, Option<Overrides>) {
        let sampler = &self.settings.sampler;
        let trusted = ids.has_caller() && sampler.trusts_anybody() && self.trusts_caller(scope);
        let parent = trusted.then(|| {
            let (sampled, th, rv) = ids.told_by_caller();
            Parent { sampled, th, rv }
        });
        let path = path.map_or("", |path| text(path.as_borrowed()));
        let (trace_id, path, runtime) = (&ids.trace.trace_id, path.as_bytes(), &self.service.runtime);
        let overrides = runtime.is_active().then(|| runtime.of_request(trace_id, path, now));
        let head = match overrides.and_then(|overrides| overrides.ratio) {
            None => sampler.head(trace_id, parent.as_ref(), path, now),
            Some(ratio) => sampler.head_at_ratio(ratio, trace_id, parent.as_ref(), path, now),
        };
        if ids.is_root() {
            ids.set_decision(head.kept, head.th);
        }
        (head, overrides)
    }

    fn trusts_caller(&self, scope: &Bound<'_, PyDict>) -> bool {
        let client = item(scope, &self.keys.client).map(Borrowed::to_owned).and_then(|client| first(&client));
        self.settings.sampler.trusts(client.as_ref().map_or("", |client| text(client.as_borrowed())))
    }
}

/// # Safety
/// Called by the interpreter only: `this` is a [`RequestFactory`], `arguments` holds `count` live objects.
unsafe extern "C" fn begin(
    this: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        if !(3..=4).contains(&count) {
            PyTypeError::new_err("begin takes scope, receive and send").restore(py);
            return std::ptr::null_mut();
        }
        let argument = |position| Borrowed::from_ptr(py, *arguments.add(position)).to_owned();
        let factory = Borrowed::from_ptr(py, this).cast_unchecked::<RequestFactory>().get();
        let is_any_path = count == 4;
        match begin_bound(factory, &argument(0), argument(1).unbind(), argument(2).unbind(), is_any_path) {
            Ok(Some(begun)) => begun.into_ptr(),
            Ok(None) => py.None().into_ptr(),
            Err(error) => {
                error.restore(py);
                std::ptr::null_mut()
            }
        }
    }
}

#[inline]
fn begin_bound<'py>(
    factory: &RequestFactory,
    scope: &Bound<'py, PyAny>,
    server_receive: Py<PyAny>,
    server_send: Py<PyAny>,
    is_any_path: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let now = now_monotonic_nano();
    let copy = if scope.is_instance_of::<PyDict>() { None } else { Some(as_dict(scope)) };
    let scope = match &copy {
        Some(copy) => copy,
        None => scope.cast::<PyDict>()?,
    };
    if item(scope, &factory.shared.keys.kind).map_or("", text) != "http" {
        return Ok(None);
    }
    // Owned, since the next look-up can run foreign code that empties the scope.
    let path = item(scope, &factory.shared.keys.path).map(Borrowed::to_owned);
    if !is_any_path && factory.shared.is_special(text_of(&path)) {
        return Ok(None);
    }
    let observer = factory.observer(scope, path, server_receive, server_send, now)?;
    let ids = observer.get().ids.clone_ref(scope.py());
    let receive = bind(&RECEIVE, &observer)?;
    let send = bind(&SEND, &observer)?;
    observer.get().stopwatch.add_since(scope.py(), now);
    let observer = observer.into_any();
    // SAFETY: a fresh tuple of four, each place filled once with a reference that it takes over.
    unsafe {
        let tuple = Bound::from_owned_ptr_or_err(scope.py(), ffi::PyTuple_New(4))?;
        ffi::PyTuple_SetItem(tuple.as_ptr(), 0, observer.into_ptr());
        ffi::PyTuple_SetItem(tuple.as_ptr(), 1, ids.into_ptr());
        ffi::PyTuple_SetItem(tuple.as_ptr(), 2, receive.into_ptr());
        ffi::PyTuple_SetItem(tuple.as_ptr(), 3, send.into_ptr());
        Ok(Some(tuple))
    }
}

/// Copies a mapping that is no dictionary, to read it; what cannot be read is left out.
#[cold]
fn as_dict<'py>(scope: &Bound<'py, PyAny>) -> Bound<'py, PyDict> {
    let dict = PyDict::new(scope.py());
    if let Ok(mapping) = scope.cast::<PyMapping>() {
        let _ = dict.update(mapping);
    }
    dict
}
