//! One request of the ASGI middleware: reads scope and messages, never changes, delays or refuses them.
//!
//! `send` is a C function that looks at the message and returns `send(message)`, the server's own awaitable: no
//! coroutine of ours per chunk. `receive` returns a coroutine, since there the result is what is looked at. Every value
//! is taken out of the message before the state is borrowed, since only that can run foreign code (a key with its own
//! `__eq__`).

use super::FunctionDef;
use super::asgi::{
    Keys, content, content_of_headers, copied, first, is_true, item, mount_prefix, template, text, text_of,
    whole_number,
};
use super::factory::Shared;
use super::gil_cell::GilCell;
use super::hot_path::Stopwatch;
use super::request_ids::PyRequestIds;
use super::response_header::with_request_id;
use super::value::utf8;
use crate::observer::{Chunks, Observer, RequestTexts, Told};
use crate::outcome::Ending;
use crate::system::now_monotonic_nano;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// One request under way.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct RequestObserver {
    pub(super) shared: Arc<Shared>,
    pub(super) receive: Py<PyAny>,
    pub(super) send: Py<PyAny>,
    pub(super) scope: Py<PyDict>,
    /// As the server gave it; inner applications may change the scope.
    pub(super) path: Option<Py<PyAny>>,
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

    /// Emit the terminal record of an application that returned; further calls do nothing.
    fn finish(&self, py: Python<'_>) {
        self.finish_with(py, Ending::Returned);
    }

    /// Emit the terminal record of an application that did not return; further calls do nothing.
    ///
    /// `ending` is one of `raised`, `timed_out`, `cancelled`, `disconnected`; `error_type` the exception's class name.
    fn fail(&self, py: Python<'_>, ending: &str, error_type: &Bound<'_, PyAny>) -> PyResult<()> {
        let error_type = text(error_type.as_borrowed());
        let ending = match ending {
            "raised" => Ending::Raised(error_type),
            "timed_out" => Ending::TimedOut(error_type),
            "cancelled" => Ending::Cancelled(error_type),
            "disconnected" => {
                self.state.with(py, Observer::disconnect);
                Ending::Raised(error_type)
            }
            other => return Err(PyValueError::new_err(format!("ending={other:?}: unknown"))),
        };
        self.finish_with(py, ending);
        Ok(())
    }
}

impl RequestObserver {
    /// Whether the request is the parent's: a forked child that goes on with it must leave the record to its parent.
    #[inline]
    fn is_inherited(&self) -> bool {
        self.generation != self.shared.service.producer.generation()
    }

    fn finish_with(&self, py: Python<'_>, ending: Ending<'_>) {
        if self.is_inherited() {
            return;
        }
        let now = now_monotonic_nano();
        self.settle(py);
        let keys = &self.shared.keys;
        let scope = self.scope.bind(py);
        // Owned, since each look-up can run foreign code that empties the scope.
        let own = |key| item(scope, key).map(Borrowed::to_owned);
        let route = Route::of(scope, keys);
        let client = own(&keys.client).and_then(|client| first(&client));
        let (method, version) = (own(&keys.method), own(&keys.http_version));
        let path = self.path.as_ref().and_then(|path| {
            // SAFETY: a live object, borrowed no longer than `self.path` lives; a text, or None comes back.
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
        let (shared, ids) = (&*self.shared, self.ids.get());
        let (producer, settings) = (&shared.service.producer, &shared.settings);
        let engine = shared.engine.as_ref().and_then(|engine| engine.get().read(scope, &self.ids));
        let forced = ids.is_forced();
        self.state.with(py, |state| {
            if forced {
                state.force();
            }
            if let Some(facts) = engine {
                state.told_by_engine(facts);
            }
            ids.with(py, |ids| state.finish(ids, ending, &Told::Http(texts), now, producer, settings));
        });
        self.stopwatch.finish(py, now, producer);
    }

    #[inline]
    fn observe_sent(&self, py: Python<'_>, message: Borrowed<'_, '_, PyAny>) -> Option<Py<PyDict>> {
        let Ok(message) = message.cast::<PyDict>() else { return None };
        let keys = &self.shared.keys;
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
        let (keys, settings) = (&self.shared.keys, &self.shared.settings);
        // The body is looked up last, since each look-up can run foreign code that empties the message.
        let more = item(message, &keys.more_body).is_some_and(is_true);
        let body = item(message, &keys.body);
        let copy = body.and_then(copied);
        let bytes = copy.as_ref().map(Bound::as_borrowed).or(body).map_or(&b""[..], content);
        let now = now_monotonic_nano();
        self.state.with(py, |state| {
            state.response_body(bytes, more, now, settings);
            if state.chunks(settings) == Chunks::Events && !bytes.is_empty() && !self.is_inherited() {
                let producer = &self.shared.service.producer;
                self.ids.get().with(py, |ids| state.emit_chunk(ids, producer, bytes.len()));
            }
        });
    }

    /// Looks at the beginning of the answer; returns the message to send in its place, if there is one.
    fn observe_start(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> Option<Py<PyDict>> {
        let (shared, ids) = (&self.shared, self.ids.get());
        let keys = &shared.keys;
        let status = item(message, &keys.status).and_then(whole_number).and_then(|status| status.try_into().ok());
        let with_trailers = item(message, &keys.trailers).is_some_and(is_true);
        // By now a tracer inside of us has begun its span.
        ids.look_for_span(py, false);
        self.settle(py);
        let forced = ids.is_forced();
        let route = Route::of(self.scope.bind(py), keys);
        let wanted = self.state.with(py, |state| {
            if forced {
                state.force();
            }
            if let Some(in_flight) = state.in_flight() {
                ids.with(py, |ids| in_flight.settle(ids, route.prefix(), text_of(&route.template)));
            }
            state.wants_content_type(&shared.settings)
        });
        let headers = if wanted { item(message, &keys.headers) } else { None };
        let content = headers.map(content_of_headers);
        self.state.with(py, |state| {
            state.response_start(status.unwrap_or(0), content, &shared.settings);
            if with_trailers {
                state.expect_trailers();
            }
        });
        let name = shared.response_header.as_ref()?;
        with_request_id(message, &keys.headers, name, ids)
    }

    /// Takes over what other libraries know of the request by now.
    #[inline]
    fn settle(&self, py: Python<'_>) {
        let ids = self.ids.get();
        ids.take_correlation_id(py);
        if ids.take_moved(py) {
            let path = self.path.as_ref().map(|path| path.bind(py));
            let sampler = &self.shared.settings.sampler;
            let text = path.map_or("", |path| text(path.as_borrowed()));
            self.state.with(py, |state| sampler.take_back(state.head(), text.as_bytes()));
            // A copy, since the sampler's look at the scope can run foreign code.
            let mut copy = ids.with(py, |ids| ids.clone());
            let (head, overrides) = self.shared.decide(self.scope.bind(py), &mut copy, path, now_monotonic_nano());
            self.state.with(py, |state| {
                state.decide(head);
                if let Some(overrides) = &overrides {
                    state.apply(overrides, self.shared.service.runtime);
                }
            });
        }
    }

    #[cold]
    fn observe_extension(&self, py: Python<'_>, extension: Extension, message: &Bound<'_, PyDict>) {
        let (keys, settings, now) = (&self.shared.keys, &self.shared.settings, now_monotonic_nano());
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
                self.state.with(py, |state| state.response_trailers(more));
            }
            Extension::Other => (),
        }
    }

    #[inline]
    fn observe_received(&self, py: Python<'_>, message: Borrowed<'_, '_, PyAny>) {
        let Ok(message) = message.cast::<PyDict>() else { return };
        self.ids.get().look_for_span(py, true);
        let keys = &self.shared.keys;
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

/// The route that was taken, as far as it is known.
struct Route<'py> {
    template: Option<Bound<'py, PyAny>>,
    outermost: Option<Bound<'py, PyAny>>,
    inner: Option<Bound<'py, PyAny>>,
}

impl<'py> Route<'py> {
    /// Owned, since each look-up can run foreign code that empties the scope.
    #[inline]
    fn of(scope: &Bound<'py, PyDict>, keys: &Keys) -> Self {
        let own = |key| item(scope, key).map(Borrowed::to_owned);
        let template = own(&keys.route).and_then(|route| template(scope, &route, keys));
        match template {
            None => Self { template, outermost: None, inner: None },
            Some(_) => Self { template, outermost: own(&keys.app_root_path), inner: own(&keys.root_path) },
        }
    }

    #[inline]
    fn prefix(&self) -> &str {
        mount_prefix(&self.outermost, &self.inner)
    }
}

/// Messages of ASGI extensions that say something about the answer.
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
        let end: *mut ffi::PyObject = std::ptr::null_mut();
        ffi::PyObject_CallFunctionObjArgs(observer.send.as_ptr(), message, end)
    }
}

/// # Safety
/// As [`send`], without a message.
unsafe extern "C" fn receive(this: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        let observer = Borrowed::from_ptr(py, this).cast_unchecked::<RequestObserver>().get();
        let end: *mut ffi::PyObject = std::ptr::null_mut();
        let coroutine = observer.shared.observed_receive.as_ptr();
        ffi::PyObject_CallFunctionObjArgs(coroutine, observer.receive.as_ptr(), this, end)
    }
}
