//! `RequestFactory`: the configuration of a middleware, and the beginning of each of its requests.

use super::asgi::{Keys, dict, first_text, has_body, item, text, text_of};
use super::engine::{EngineReader, ForwardIds, Sent};
use super::foreign::{ActiveSpan, CORRELATION_ID};
use super::gil_cell::GilCell;
use super::headers::{RequestStart, recorded_headers};
use super::held::Held;
use super::hot_path::Turns;
use super::middleware::{RECEIVE, RequestObserver, SEND};
use super::request_ids::{IdsCell, PyRequestIds};
use super::scope::{ScopeKey, ScopeKeys, prefix_len};
use super::service::PyService;
use super::settings::PySettings;
use super::shared::{MessageKinds, MiddlewareShared, RequestFactory};
use super::timed_send::{self, Decision};
use super::{FunctionDef, bind, content, raised, websocket};
use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping, PyString, PyTuple};
use pyo3::{IntoPyObjectExt, ffi};
use queue::system::now_monotonic_nano;
use request::added::{FewMembers, Members};
use request::ids::{IdSource, RequestIds, TraceState};
use request::requests::{ServedPath, Start};
use request::sampler::Sampler;
use std::sync::{Arc, OnceLock};

static BEGIN: FunctionDef = FunctionDef::fast(c"begin", begin, c"Begin to observe a request.");

#[pymethods]
impl RequestFactory {
    /// `server_traces`: the application's own tracing is known to be on. The readers look for other libraries in the
    /// process that know the ids of a request.
    ///
    /// Raises OSError, naming the parameter, if the key of hashes cannot be read.
    #[new]
    #[pyo3(signature = (service, settings, observed_receive, *, span_reader, correlation_reader, engine_reader, server_traces))]
    fn new(
        service: &Bound<'_, PyService>,
        settings: &PySettings,
        observed_receive: Py<PyAny>,
        span_reader: Py<PyAny>,
        correlation_reader: Py<PyAny>,
        engine_reader: Option<Py<EngineReader>>,
        server_traces: bool,
    ) -> PyResult<Self> {
        let (py, parameters) = (service.py(), settings.of());
        let service = service.get().service();
        let settings = parameters.observer(&service).map_err(PyOSError::new_err)?;
        let asks = parameters.asks_other_libraries();
        if !asks {
            CORRELATION_ID.set(None);
        }
        // One object for all middlewares of the service.
        let mark = PyString::intern(py, &format!("inference_logging@{:p}", Arc::as_ptr(&service))).unbind();
        let response_header = parameters.values.response_header.as_deref().map(str::to_ascii_lowercase);
        let (trace, request) = parameters.forwards(server_traces);
        let keys = Keys::intern(py);
        let shared = MiddlewareShared {
            requests: service.requests(settings),
            service,
            mark,
            ids: IdSource::new()?,
            scope_keys: ScopeKeys::new(py, &keys),
            keys,
            turns: Turns::new(),
            observed_receive: Held::new(observed_receive),
            response_header: response_header.map(|name| PyBytes::new(py, name.as_bytes()).unbind()),
            opt_out_header: parameters.values.capture_opt_out_header.as_deref().map(str::to_owned),
            span_reader: Held::maybe(asks.then_some(span_reader)),
            correlation_reader: Held::maybe(asks.then_some(correlation_reader)),
            engine: Held::maybe(engine_reader),
            forward_ids: ForwardIds { trace, request },
            kinds: MessageKinds::new(),
            special_paths: parameters.routes(),
        };
        Ok(Self { shared })
    }

    /// The function `begin(scope, receive, send)`. It returns the observer, and the `receive` and `send` for the
    /// application; or None for a scope that is not `http`, for a special path unless a fourth argument is given, and
    /// for a request that is not recorded. While recording is compared with not recording, the fourth argument gets
    /// None in place of the observer, and the functions for the application, of a request that is not recorded.
    #[getter]
    fn begin(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        bind(&BEGIN, slf.as_any())
    }

    /// Return the ids of a new WebSocket connection.
    fn websocket_ids(&self, scope: &Bound<'_, PyAny>) -> PyResult<PyRequestIds> {
        let scope = scope_dict(scope);
        let head = RequestStart::read(item(&scope, &self.shared.keys.headers));
        let recorded = &self.shared.requests.settings.recorded;
        let headers = if recorded.has_headers() {
            recorded_headers(item(&scope, &self.shared.keys.headers), recorded)
        } else {
            Members::default()
        };
        self.shared.look_for_others(scope.py());
        let (mut ids, has_span) = self.ids_at(scope.py(), &head);
        let path = item(&scope, &self.shared.keys.path).map(Borrowed::to_owned);
        // The decision counts only for the flags that go to other services: a connection is always recorded.
        let trusts = |sampler: &Sampler| self.shared.trusts(sampler, &scope);
        let path = text_of(&path);
        let keys = &self.shared.keys;
        let prefix = prefix_len(item(&scope, &keys.root_path), path, &keys.empty);
        let path = ServedPath { whole: path.as_bytes(), prefix };
        self.shared.requests.decide(&mut ids, path, now_monotonic_nano(), trusts);
        Ok(PyRequestIds::of_connection(ids, has_span, headers))
    }

    /// Emit the record of an ended WebSocket connection; `websocket.rs` describes the values.
    #[pyo3(signature = (scope, ids, severity, values, texts = None))]
    fn emit_websocket(
        &self,
        scope: &Bound<'_, PyAny>,
        ids: &Bound<'_, PyRequestIds>,
        severity: u8,
        values: &Bound<'_, PyTuple>,
        texts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        websocket::emit(&self.shared, &scope_dict(scope), ids.get(), severity, values, texts)
    }

    /// Draw new seeds for ids; call it in a forked child.
    fn reseed(&self) -> PyResult<()> {
        Ok(self.shared.ids.reseed()?)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.shared.observed_receive.visit(&visit)?;
        self.shared.span_reader.visit(&visit)?;
        self.shared.correlation_reader.visit(&visit)?;
        self.shared.engine.visit(&visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        self.shared.observed_receive.clear(py);
        self.shared.span_reader.clear(py);
        self.shared.correlation_reader.clear(py);
        self.shared.engine.clear(py);
    }
}

impl RequestFactory {
    #[inline(always)]
    fn ids(&self, head: &RequestStart<'_>) -> RequestIds {
        let trace = self.shared.ids.trace(head.traceparent.single());
        // The list belongs to the trace that the request came with.
        let continued = trace.parent_span_id != [0; 8];
        let state = if continued { TraceState::from_lines(head.tracestate.iter()) } else { None };
        RequestIds::new(trace, head.request_id, state)
    }

    /// The ids of a new request or connection, and whether they come from a tracer's span.
    #[inline(always)]
    fn ids_at(&self, py: Python<'_>, head: &RequestStart<'_>) -> (RequestIds, bool) {
        let mut ids = self.ids(head);
        let span = ActiveSpan::read(py);
        if let Some(span) = &span {
            ids.follow(span.trace_id, span.span_id, span.flags);
            ids.set_remote(span.has_remote_parent);
        }
        (ids, span.is_some())
    }

    #[inline]
    #[expect(clippy::too_many_arguments, reason = "what begins a request, from one caller")]
    fn observer<'py>(
        &self,
        this: Borrowed<'_, 'py, Self>,
        scope: &Bound<'py, PyDict>,
        path: &Option<Bound<'py, PyAny>>,
        served: ServedPath<'_>,
        receive: Py<PyAny>,
        send: Py<PyAny>,
        now: u64,
    ) -> PyResult<Bound<'py, RequestObserver>> {
        let (py, keys) = (scope.py(), &self.shared.scope_keys);
        let stopwatch = self.shared.turns.next(py);
        if stopwatch.is_first() {
            keys.learn(scope);
            self.shared.look_for_others(py);
        }
        let (recorded, mut few) = (&self.shared.requests.settings.recorded, None);
        let head = if recorded.has_headers() {
            RequestStart::read_recording(keys.headers.of(scope), recorded, few.insert(FewMembers::default()))
        } else {
            RequestStart::read(keys.headers.of(scope))
        };
        let (mut ids, has_span) = self.ids_at(py, &head);
        // The values are owned, since each look-up can run foreign code that empties the scope.
        let own = |key: &ScopeKey| key.of(scope).map(Borrowed::to_owned);
        let (method, version, client) = (own(&keys.method), own(&keys.http_version), own(&keys.client));
        let start = Start {
            now,
            method: text_of(&method).as_bytes(),
            path: served.whole,
            prefix: served.prefix,
            protocol_version: text_of(&version).as_bytes(),
            client_address: client.as_ref().map_or("", first_text).as_bytes(),
            model: b"",
        };
        let mut state = self.shared.requests.begin(&mut ids, &start, |sampler| self.shared.trusts(sampler, scope));
        if let Some(few) = &few {
            let is_kept = few.as_bytes().is_some_and(|members| members.is_empty() || state.identify_few(members));
            if !is_kept {
                state.identify(recorded_headers(keys.headers.of(scope), recorded));
            }
        }
        let content = head.content();
        if self.shared.captures(content) && has_body(start.method) {
            state.capture_request(content, self.shared.is_private(scope), &self.shared.requests.settings);
        }
        if self.shared.forward_ids.is_on() {
            self.shared.forward_ids.add(scope, &self.shared.keys.headers, Sent::from(&head), &ids);
        }
        let is_head = start.method == b"HEAD";
        let observer = RequestObserver {
            path: Held::maybe(path.as_ref().map(|path| path.clone().unbind())),
            prefix: served.prefix,
            is_head,
            generation: self.shared.requests.producer.generation(),
            factory: this.to_owned().unbind(),
            receive: Held::new(receive),
            send: Held::new(send),
            scope: Held::new(scope.clone().unbind()),
            own_ids: IdsCell::new(ids, has_span),
            ids_object: OnceLock::new(),
            state: GilCell::new(state),
            stopwatch,
        };
        Bound::new(scope.py(), observer)
    }
}

/// # Safety
/// Called by the interpreter only: `this` is a [`RequestFactory`], `arguments` holds `count` live objects.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
unsafe extern "C" fn begin(
    this: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        if !(3..=4).contains(&count) {
            return raised(py, PyTypeError::new_err("begin takes scope, receive and send"));
        }
        let argument = |position| Borrowed::from_ptr(py, *arguments.add(position)).to_owned();
        let factory = Borrowed::from_ptr(py, this).cast_unchecked::<RequestFactory>();
        let is_any_path = count == 4;
        match begin_bound(factory, &argument(0), argument(1).unbind(), argument(2).unbind(), is_any_path) {
            Ok(Some(begun)) => begun.into_ptr(),
            Ok(None) => py.None().into_ptr(),
            Err(error) => raised(py, error),
        }
    }
}

#[inline]
fn begin_bound<'py>(
    this: Borrowed<'_, 'py, RequestFactory>,
    scope: &Bound<'py, PyAny>,
    server_receive: Py<PyAny>,
    server_send: Py<PyAny>,
    is_any_path: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (now, factory) = (now_monotonic_nano(), this.get());
    let scope = &scope_dict(scope);
    let keys = &factory.shared.scope_keys;
    let kind = keys.kind.of(scope);
    let is_constant = kind.is_some_and(|kind| kind.as_ptr() == factory.shared.keys.http.as_ptr());
    if !is_constant && kind.map_or("", text) != "http" {
        return Ok(None);
    }
    // The path is owned, since the next look-up can run foreign code that empties the scope.
    let path = keys.path.of(scope).map(Borrowed::to_owned);
    let whole = text_of(&path);
    let prefix = prefix_len(keys.root_path.of(scope), whole, &factory.shared.keys.empty);
    if !is_any_path && factory.shared.is_special(whole, prefix) {
        return Ok(None);
    }
    // Another middleware around this application, of a mounted one's parent for example, has the request on record.
    if !factory.shared.note_on_record(scope) {
        return Ok(None);
    }
    let server_send = if factory.shared.service.runtime.is_active() {
        let decision = timed_send::decide(this, server_send, now, is_any_path);
        if !matches!(decision, Ok(Decision::Recorded(_))) {
            factory.shared.forget_on_record(scope);
        }
        match decision? {
            Decision::Recorded(send) => send,
            Decision::NotRecorded(None) => return Ok(None),
            Decision::NotRecorded(Some(send)) => {
                return (scope.py().None(), server_receive, send).into_bound_py_any(scope.py()).map(Some);
            }
        }
    } else {
        server_send
    };
    let served = ServedPath { whole: whole.as_bytes(), prefix };
    let observer = factory.observer(this, scope, &path, served, server_receive, server_send, now)?;
    let receive = bind(&RECEIVE, &observer)?;
    let send = bind(&SEND, &observer)?;
    observer.get().stopwatch.add_since(scope.py(), now);
    let observer = observer.into_any();
    // SAFETY: a fresh tuple of three, each place filled once with a reference that it takes over.
    unsafe {
        let tuple = Bound::from_owned_ptr_or_err(scope.py(), ffi::PyTuple_New(3))?;
        content::set_tuple_item(tuple.as_ptr(), 0, observer.into_ptr());
        content::set_tuple_item(tuple.as_ptr(), 1, receive.into_ptr());
        content::set_tuple_item(tuple.as_ptr(), 2, send.into_ptr());
        Ok(Some(tuple))
    }
}

/// A scope as a dictionary.
#[inline]
fn scope_dict<'py>(scope: &Bound<'py, PyAny>) -> Bound<'py, PyDict> {
    dict(scope.as_borrowed()).map_or_else(|| as_dict(scope), Borrowed::to_owned)
}

/// Copies a mapping that is no dictionary, in order to read it. Unreadable parts are left out.
#[cold]
fn as_dict<'py>(scope: &Bound<'py, PyAny>) -> Bound<'py, PyDict> {
    let dict = PyDict::new(scope.py());
    if let Ok(mapping) = scope.cast::<PyMapping>() {
        let _ = dict.update(mapping);
    }
    dict
}
