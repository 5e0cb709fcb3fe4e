//! One request of the ASGI middleware: reads scope and messages, never changes, delays or refuses them.
//!
//! `send` is a C function that looks at the message and returns `send(message)`, the server's own awaitable, so a chunk
//! costs no coroutine of ours. `receive` returns a coroutine, since its result is what we observe. Every value is taken
//! out of the message before the state is borrowed, since only that step can run foreign code (a key with its own
//! `__eq__`).

use super::FunctionDef;
use super::asgi::{
    Keys, content, content_of_headers, copied, first, is_true, item, mount_prefix, template, text, text_of,
    whole_number,
};
use super::gil_cell::GilCell;
use super::held::{Held, ended};
use super::hot_path::Stopwatch;
use super::request_ids::PyRequestIds;
use super::response_header::with_request_id;
use super::shared::{MiddlewareShared, RequestFactory};
use super::value::utf8;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use queue::record::Scratch;
use queue::system::now_monotonic_nano;
use request::fields::{self, Field};
use request::observer::{Chunks, ExceptionTexts, Observer, RequestSource, RequestTexts};
use request::outcome::Ending;
use request::sampler::Sampler;

/// One request under way.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct RequestObserver {
    pub(super) factory: Py<RequestFactory>,
    pub(super) receive: Held,
    pub(super) send: Held,
    pub(super) scope: Held<PyDict>,
    /// The path from the server; inner applications may change the scope.
    pub(super) path: Held,
    pub(super) ids: Py<PyRequestIds>,
    pub(super) state: GilCell<Observer>,
    /// The generation of processes in which the request began.
    pub(super) generation: u32,
    pub(super) stopwatch: Stopwatch,
}

pub(super) static SEND: FunctionDef =
    FunctionDef::one_argument(c"send", send, c"Pass an ASGI message on to the server.");
pub(super) static RECEIVE: FunctionDef =
    FunctionDef::no_argument(c"receive", receive, c"Receive an ASGI message from the server.");

#[pymethods]
impl RequestObserver {
    /// Take note of a message that the application has received.
    fn received(&self, message: &Bound<'_, PyAny>) {
        self.stopwatch.time(message.py(), || self.observe_received(message.py(), message.as_borrowed()));
    }

    /// Whether the answer has begun.
    #[getter]
    fn started(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.has_started())
    }

    /// Whether the whole answer has passed.
    #[getter]
    fn complete(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.is_complete())
    }

    /// The server's own `send`; None, once the garbage collector has cleared it.
    #[getter]
    fn server_send<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.send.get(py)
    }

    /// Take note that the server did not take the last part of the answer.
    fn take_back_end(&self, py: Python<'_>) {
        self.state.with(py, Observer::take_back_end);
    }

    /// Emit the terminal record of an application that returned; further calls do nothing.
    fn finish(&self, py: Python<'_>) {
        self.finish_with(py, Ending::Returned, now_monotonic_nano());
    }

    /// Emit the terminal record of an application that did not return; further calls do nothing.
    ///
    /// `ending` is one of `raised`, `timed_out`, `cancelled`, `disconnected`; `error_type` the exception's class name;
    /// `texts` returns type, message and stack of the exception, where they are to be recorded.
    #[pyo3(signature = (ending, error_type, texts = None))]
    fn fail(
        &self,
        py: Python<'_>,
        ending: &str,
        error_type: &Bound<'_, PyAny>,
        texts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let now = now_monotonic_nano();
        let error_type = text(error_type.as_borrowed());
        let ending = match ending {
            "raised" => Ending::Raised(error_type),
            "timed_out" => Ending::TimedOut(error_type),
            "cancelled" => Ending::Cancelled(error_type),
            "disconnected" => Ending::Disconnected(error_type),
            other => return Err(PyValueError::new_err(format!("ending={other:?}: unknown"))),
        };
        let taken = self.take_exception(py, texts);
        self.finish_with(py, ending, now);
        taken
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.factory)?;
        visit.call(&self.ids)?;
        self.receive.visit(&visit)?;
        self.send.visit(&visit)?;
        self.scope.visit(&visit)?;
        self.path.visit(&visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        self.receive.clear(py);
        self.send.clear(py);
        self.scope.clear(py);
        self.path.clear(py);
    }
}

impl RequestObserver {
    #[inline]
    fn shared(&self) -> &MiddlewareShared {
        &self.factory.get().shared
    }

    /// The scope; an empty one, once the garbage collector has cleared it.
    #[inline]
    fn scope<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.scope.get(py).unwrap_or_else(|| PyDict::new(py))
    }

    /// Whether the request belongs to the parent: a forked child that continues it must leave the record to its parent.
    #[inline]
    fn is_inherited(&self) -> bool {
        self.generation != self.shared().requests.producer.generation()
    }

    fn take_exception(&self, py: Python<'_>, texts: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(texts) = texts.filter(|_| !self.is_inherited()) else { return Ok(()) };
        let mut exception = exception_texts(&texts.call0()?)?;
        if self.shared().opts_out(item(&self.scope(py), &self.shared().keys.headers)) {
            exception.withhold();
        }
        self.state.with(py, |state| state.raise(exception));
        Ok(())
    }

    fn finish_with(&self, py: Python<'_>, ending: Ending<'_>, now: u64) {
        if self.is_inherited() {
            return;
        }
        self.settle(py);
        let keys = &self.shared().keys;
        let scope = &self.scope(py);
        // The values are owned, since each look-up can run foreign code that empties the scope.
        let own = |key| item(scope, key).map(Borrowed::to_owned);
        let route = Route::of(scope, keys);
        let client = own(&keys.client).and_then(|client| first(&client));
        let (method, version) = (own(&keys.method), own(&keys.http_version));
        let path = self.path.get(py);
        let path = path.as_ref().and_then(|path| {
            // SAFETY: a live object, which is held here; the result is a text or None.
            unsafe { if ffi::PyUnicode_Check(path.as_ptr()) != 0 { utf8(path.as_ptr()) } else { None } }
        });
        let texts = RequestTexts {
            method: text_of(&method),
            path: path.unwrap_or("<path that cannot be encoded>").as_bytes(),
            route_prefix: route.prefix(),
            route: text_of(&route.template),
            protocol_version: text_of(&version),
            client_address: text_of(&client),
        };
        let (shared, ids) = (self.shared(), self.ids.get());
        let (producer, settings) = (&shared.requests.producer, &shared.requests.settings);
        let engine = shared.engine.get(py).and_then(|engine| engine.get().read(scope, &self.ids));
        let engine = engine.as_ref().map(|report| report.facts());
        let source = RequestSource::Http { texts, engine: engine.as_ref() };
        let forced = ids.is_forced();
        self.state.with(py, |state| {
            if forced {
                state.force();
            }
            ids.with(py, |ids| state.finish(ids, ending, &source, now, producer, settings));
        });
        self.stopwatch.finish(py, now, producer);
    }

    #[inline]
    fn observe_sent(&self, py: Python<'_>, message: Borrowed<'_, '_, PyAny>) -> Option<Py<PyDict>> {
        let Ok(message) = message.cast::<PyDict>() else { return None };
        let keys = &self.shared().keys;
        match item(&message, &keys.kind).map_or("", text) {
            "http.response.body" => self.observe_body(py, &message),
            "http.response.start" => return self.observe_start(py, &message),
            kind if kind.starts_with("http.response.") => self.observe_extension(py, kind_of_extension(kind), &message),
            _ => (),
        }
        None
    }

    #[inline]
    fn observe_body(&self, py: Python<'_>, message: &Bound<'_, PyDict>) {
        let (keys, settings) = (&self.shared().keys, &self.shared().requests.settings);
        // The body is looked up last, since each look-up can run foreign code that empties the message.
        let more = item(message, &keys.more_body).is_some_and(is_true);
        let body = item(message, &keys.body);
        let copy = body.and_then(copied);
        let bytes = copy.as_ref().map(Bound::as_borrowed).or(body).map_or(&b""[..], content);
        let now = now_monotonic_nano();
        self.state.with(py, |state| {
            let is_chunk = state.response_body(bytes, more, now, settings);
            if is_chunk && state.chunks(settings) == Chunks::Events && !self.is_inherited() {
                let producer = &self.shared().requests.producer;
                self.ids.get().with(py, |ids| state.emit_chunk(ids, producer, Some(bytes.len())));
            }
        });
    }

    /// Looks at the beginning of the answer; returns a message to send in its place, if there is one.
    fn observe_start(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> Option<Py<PyDict>> {
        let (shared, ids) = (self.shared(), self.ids.get());
        let keys = &shared.keys;
        let status = item(message, &keys.status).and_then(whole_number).and_then(|status| status.try_into().ok());
        let with_trailers = item(message, &keys.trailers).is_some_and(is_true);
        // A tracer inside of us has begun its span by now.
        ids.look_for_span(py, false);
        self.settle(py);
        let forced = ids.is_forced();
        let route = Route::of(&self.scope(py), keys);
        let wanted = self.state.with(py, |state| {
            if forced {
                state.force();
            }
            if let Some(in_flight) = state.in_flight() {
                ids.with(py, |ids| in_flight.settle(ids, route.prefix(), text_of(&route.template)));
            }
            state.wants_content_type(&shared.requests.settings)
        });
        let headers = if wanted { item(message, &keys.headers) } else { None };
        let content = headers.map(content_of_headers);
        self.state.with(py, |state| {
            state.response_start(status.unwrap_or(0), content, &shared.requests.settings);
            if with_trailers {
                state.expect_trailers();
            }
        });
        let name = shared.response_header.as_ref()?;
        with_request_id(message, &keys.headers, name, ids)
    }

    /// Takes over what other libraries know about the request by now.
    #[inline]
    fn settle(&self, py: Python<'_>) {
        let ids = self.ids.get();
        ids.take_correlation_id(py);
        if ids.take_moved(py) {
            let (path, shared) = (self.path.get(py), self.shared());
            let path = text_of(&path).as_bytes();
            self.state.with(py, |state| shared.requests.settings.sampler.take_back(state.head(), path));
            // This is a copy, since the look at the scope can run foreign code.
            let (mut copy, scope) = (ids.with(py, |ids| ids.clone()), self.scope(py));
            let trusts = |sampler: &Sampler| shared.trusts(sampler, &scope);
            let (head, overrides) = shared.requests.decide(&mut copy, path, now_monotonic_nano(), trusts);
            self.state.with(py, |state| {
                state.decide(head);
                if let Some(overrides) = &overrides {
                    state.apply(overrides, shared.requests.runtime);
                }
            });
        }
    }

    #[cold]
    fn observe_extension(&self, py: Python<'_>, extension: Extension, message: &Bound<'_, PyDict>) {
        let (keys, settings, now) = (&self.shared().keys, &self.shared().requests.settings, now_monotonic_nano());
        let is_set = |key| item(message, key).is_some_and(is_true);
        match extension {
            Extension::Path => self.state.with(py, |state| state.response_file(None, false, now, settings)),
            Extension::ZeroCopy => {
                let more = is_set(&keys.more_body);
                let bytes = item(message, &keys.count).and_then(whole_number);
                self.state.with(py, |state| state.response_file(bytes, more, now, settings));
            }
            Extension::Trailers => {
                let more = is_set(&keys.more_trailers);
                self.state.with(py, |state| state.response_trailers(more, now));
            }
            Extension::Other => (),
        }
    }

    #[inline]
    fn observe_received(&self, py: Python<'_>, message: Borrowed<'_, '_, PyAny>) {
        let Ok(message) = message.cast::<PyDict>() else { return };
        self.ids.get().look_for_span(py, true);
        let keys = &self.shared().keys;
        match item(&message, &keys.kind).map_or("", text) {
            "http.request" => {
                let body = item(&message, &keys.body);
                let copy = body.and_then(copied);
                let bytes = copy.as_ref().map(Bound::as_borrowed).or(body).map_or(&b""[..], content);
                self.state.with(py, |state| state.request_bytes(bytes));
            }
            "http.disconnect" => self.state.with(py, |state| state.disconnect()),
            _ => (),
        }
    }
}

/// Takes type, message and stack of an exception. A lone surrogate in them becomes the replacement character.
pub(super) fn exception_texts(texts: &Bound<'_, PyAny>) -> PyResult<ExceptionTexts> {
    let (kind, message, stacktrace): (Bound<'_, PyString>, Bound<'_, PyString>, Bound<'_, PyString>) =
        texts.extract()?;
    let owned = |text: &Bound<'_, PyString>| text.to_string_lossy().into_owned();
    Ok(ExceptionTexts { kind: owned(&kind), message: owned(&message), stacktrace: owned(&stacktrace) })
}

/// The route, as far as it is known.
pub(super) struct Route<'py> {
    template: Option<Bound<'py, PyAny>>,
    outermost: Option<Bound<'py, PyAny>>,
    inner: Option<Bound<'py, PyAny>>,
}

impl<'py> Route<'py> {
    /// The values are owned, since each look-up can run foreign code that empties the scope.
    #[inline]
    pub(super) fn of(scope: &Bound<'py, PyDict>, keys: &Keys) -> Self {
        let own = |key| item(scope, key).map(Borrowed::to_owned);
        let template = own(&keys.route).and_then(|route| template(scope, &route, keys));
        match template {
            None => Self { template, outermost: None, inner: None },
            Some(_) => Self { template, outermost: own(&keys.app_root_path), inner: own(&keys.root_path) },
        }
    }

    /// Appends the route; absent if it is not known.
    pub(super) fn push(&self, scratch: &mut Scratch) {
        fields::Route { prefix: self.prefix(), template: text_of(&self.template) }.push(scratch);
    }

    #[inline]
    fn prefix(&self) -> &str {
        mount_prefix(&self.outermost, &self.inner)
    }
}

/// Messages of ASGI extensions that concern the answer.
enum Extension {
    Path,
    ZeroCopy,
    Trailers,
    Other,
}

fn kind_of_extension(kind: &str) -> Extension {
    match kind {
        "http.response.pathsend" => Extension::Path,
        "http.response.zerocopysend" => Extension::ZeroCopy,
        "http.response.trailers" => Extension::Trailers,
        _ => Extension::Other,
    }
}

/// # Safety
/// Called by the interpreter only: `this` is a [`RequestObserver`], `message` a live object.
unsafe extern "C" fn send(this: *mut ffi::PyObject, message: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        let observer = Borrowed::from_ptr(py, this).cast_unchecked::<RequestObserver>().get();
        let seen = Borrowed::from_ptr(py, message);
        let replacement = observer.stopwatch.time(py, || observer.observe_sent(py, seen));
        let message = replacement.as_ref().map_or(message, Py::as_ptr);
        let server = observer.send.as_ptr(py);
        if server.is_null() {
            return refuse(py);
        }
        let end: *mut ffi::PyObject = std::ptr::null_mut();
        ffi::PyObject_CallFunctionObjArgs(server, message, end)
    }
}

/// # Safety
/// As [`send`], without a message.
unsafe extern "C" fn receive(this: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        let observer = Borrowed::from_ptr(py, this).cast_unchecked::<RequestObserver>().get();
        let (coroutine, server) = (observer.shared().observed_receive.as_ptr(py), observer.receive.as_ptr(py));
        if coroutine.is_null() || server.is_null() {
            return refuse(py);
        }
        let end: *mut ffi::PyObject = std::ptr::null_mut();
        ffi::PyObject_CallFunctionObjArgs(coroutine, server, this, end)
    }
}

/// Raises the error for a call on a request that the garbage collector has cleared.
#[cold]
fn refuse(py: Python<'_>) -> *mut ffi::PyObject {
    ended().restore(py);
    std::ptr::null_mut()
}
