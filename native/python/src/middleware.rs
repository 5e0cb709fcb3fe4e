//! One request of the ASGI middleware: reads scope and messages, never changes, delays or refuses them. The server, the
//! application and the middleware reach it by C functions. `send` returns `send(message)`, the server's own awaitable, so a
//! chunk costs no coroutine of ours; `receive` returns a coroutine, since its result is what is observed.
//!
//! Every value is taken out of the message before the state is borrowed, since only that step can run foreign code (a key
//! with its own `__eq__`).

use super::asgi::{Message, content, copied, dict, first, item, text, text_of};
use super::calling::call;
use super::gil_cell::GilCell;
use super::held::{Held, ended};
use super::hot_path::Stopwatch;
use super::request_ids::{IdsCell, PyRequestIds};
use super::scope::Route;
use super::shared::{MiddlewareShared, RequestFactory};
use super::value::utf8;
use super::{FunctionDef, raised, timed_send};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use queue::system::now_monotonic_nano;
use request::observer::{ExceptionTexts, Observer, RequestSource, RequestTexts};
use request::outcome::Ending;
use request::requests::ServedPath;
use request::sampler::Sampler;
use std::sync::OnceLock;

/// One request under way. What each part of a stream needs comes first: it fills few cache lines, which matters where
/// thousands of streams take turns.
#[pyclass(frozen, module = "inference_logging._native")]
#[repr(C)]
pub struct RequestObserver {
    pub(super) send: Held,
    pub(super) factory: Py<RequestFactory>,
    pub(super) stopwatch: Stopwatch,
    /// The request is a HEAD: servers send no byte of the answer's body.
    pub(super) is_head: bool,
    pub(super) state: GilCell<Observer>,
    pub(super) receive: Held,
    pub(super) scope: Held<PyDict>,
    /// The path from the server; inner applications may change the scope.
    pub(super) path: Held,
    /// The length of the prefix in it, as it was at the beginning.
    pub(super) prefix: usize,
    pub(super) own_ids: IdsCell,
    /// The ids as an object, once somebody has asked for it; they replace those above.
    pub(super) ids_object: OnceLock<Py<PyRequestIds>>,
    /// The generation of processes in which the request began.
    pub(super) generation: u32,
}

#[pymethods]
impl RequestObserver {
    /// The ids of the request.
    #[getter(ids)]
    fn ids_for_others(&self, py: Python<'_>) -> PyResult<Py<PyRequestIds>> {
        self.ids_as_object(py)
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
        self.send.get(py).and_then(timed_send::server_send)
    }

    /// Take note that the server did not take the last part of the answer.
    fn take_back_end(&self, py: Python<'_>) {
        self.state.with(py, Observer::take_back_end);
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
    pub(super) fn shared(&self) -> &MiddlewareShared {
        &self.factory.get().shared
    }

    #[inline]
    pub(super) fn ids(&self) -> &IdsCell {
        self.ids_object.get().map_or(&self.own_ids, |ids| ids.get())
    }

    fn ids_as_object(&self, py: Python<'_>) -> PyResult<Py<PyRequestIds>> {
        if self.ids_object.get().is_none() {
            let _ = self.ids_object.set(self.own_ids.object(py)?);
        }
        self.ids_object.get().map(|ids| ids.clone_ref(py)).ok_or_else(ended)
    }

    /// The scope; an empty one, once the garbage collector has cleared it.
    #[inline]
    pub(super) fn scope<'py>(&self, py: Python<'py>) -> Bound<'py, PyDict> {
        self.scope.get(py).unwrap_or_else(|| PyDict::new(py))
    }

    /// Whether the request belongs to the parent: a forked child that continues it must leave the record to its parent.
    #[inline]
    pub(super) fn is_inherited(&self) -> bool {
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

    /// The application returned at `now`.
    #[inline]
    pub(super) fn finish(&self, py: Python<'_>, now: u64) {
        if self.is_inherited() {
            return;
        }
        self.settle(py);
        let (shared, ids) = (self.shared(), self.ids());
        let (producer, settings) = (&shared.requests.producer, &shared.requests.settings);
        let may_be_plain = !ids.is_forced() && shared.engine.is_none(py);
        if may_be_plain && let Some(fields) = ids.take_fields(py) {
            self.state.with(py, |state| state.add(fields));
        }
        let plain =
            |state: &mut Observer| may_be_plain && ids.with(py, |ids| state.finish_plain(ids, now, producer, settings));
        if self.state.with(py, plain) {
            self.end_ids(py);
            self.stopwatch.finish(py, now, producer);
        } else {
            self.finish_with(py, Ending::Returned, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn finish_with(&self, py: Python<'_>, ending: Ending<'_>, now: u64) {
        if self.is_inherited() {
            return;
        }
        self.settle(py);
        let shared = self.shared();
        let (keys, producer, settings) = (&shared.keys, &shared.requests.producer, &shared.requests.settings);
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
            route: route.template(),
            protocol_version: text_of(&version),
            client_address: text_of(&client),
        };
        let engine = shared.engine.get(py).and_then(|engine| {
            let broke_off = self.state.with(py, |state| state.broke_off());
            engine.get().read(scope, broke_off, || self.ids_as_object(py))
        });
        let engine = engine.as_ref().map(|report| report.facts());
        let source = RequestSource::Http { texts, engine: engine.as_ref() };
        // The engine's reader may have asked for the object.
        let ids = self.ids();
        if ids.is_special() {
            self.take_application_fields(py);
        }
        self.state.with(py, |state| {
            ids.with(py, |ids| state.finish(ids, ending, &source, now, producer, settings));
        });
        self.end_ids(py);
        self.stopwatch.finish(py, now, producer);
    }

    /// Takes over what the application wants of the record.
    #[cold]
    #[inline(never)]
    fn take_application_fields(&self, py: Python<'_>) {
        let ids = self.ids();
        let (forced, fields) = (ids.is_forced(), ids.take_fields(py));
        self.state.with(py, |state| {
            if forced {
                state.force();
            }
            if let Some(fields) = fields {
                state.add(fields);
            }
        });
    }

    /// Takes note, as the answer begins, of what the application wants so far.
    #[inline(never)]
    pub(super) fn announce_application_fields(&self, py: Python<'_>) {
        let ids = self.ids();
        self.state.with(py, |state| {
            if ids.is_forced() {
                state.force();
            }
            ids.with_fields(py, |fields| state.announce(&fields.members));
        });
    }

    /// The record is made.
    #[inline]
    fn end_ids(&self, py: Python<'_>) {
        if let Some(scope) = self.scope.get(py) {
            self.shared().forget_on_record(&scope);
        }
        if let Some(ids) = self.ids_object.get() {
            ids.get().end();
        }
    }

    /// Takes over what other libraries know about the request by now.
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub(super) fn settle(&self, py: Python<'_>) {
        let ids = self.ids();
        ids.take_correlation_id(py);
        if ids.take_moved(py) {
            self.decide_again(py);
        }
    }

    /// The request belongs to another trace than it seemed to at its beginning.
    #[cold]
    #[inline(never)]
    fn decide_again(&self, py: Python<'_>) {
        let (path, shared) = (self.path.get(py), self.shared());
        let path = ServedPath { whole: text_of(&path).as_bytes(), prefix: self.prefix };
        let sampler = &shared.requests.settings.sampler;
        self.state.with(py, |state| sampler.take_back(state.head(), path.sampled(sampler)));
        // This is a copy, since the look at the scope can run foreign code.
        let (mut copy, scope) = (self.ids().with(py, |ids| ids.clone()), self.scope(py));
        let trusts = |sampler: &Sampler| shared.trusts(sampler, &scope);
        let (head, overrides) = shared.requests.decide(&mut copy, path, now_monotonic_nano(), trusts);
        self.state.with(py, |state| {
            state.decide(head);
            if let Some(overrides) = &overrides {
                state.apply(overrides, shared.requests.runtime);
            }
        });
    }

    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
    pub(super) fn observe_received(&self, py: Python<'_>, message: Borrowed<'_, '_, PyAny>) {
        let Some(message) = dict(message) else { return };
        self.ids().look_for_span(py, true);
        let keys = &self.shared().keys;
        let seen = Message::read(&message, keys);
        let kind = seen.as_ref().map_or_else(|| item(&message, &keys.kind), |seen| seen.kind);
        match kind.map_or("", text) {
            "http.request" => {
                let body = seen.map_or_else(|| item(&message, &keys.body), |seen| seen.body);
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

pub static SEND: FunctionDef = FunctionDef::one_argument(c"send", send, c"Pass an ASGI message on to the server.");
pub static RECEIVE: FunctionDef =
    FunctionDef::no_argument(c"receive", receive, c"Receive an ASGI message from the server.");
pub static RECEIVED: FunctionDef =
    FunctionDef::fast(c"received", received, c"Take note of a message that the application has received.");
pub static FINISH: FunctionDef = FunctionDef::one_argument(
    c"finish",
    finish,
    c"Emit the terminal record of a request whose application returned; further calls do nothing.",
);

/// # Safety
/// Called by the interpreter only: `this` is a [`RequestObserver`], `message` a live object.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
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
        call(server, [std::ptr::null_mut(), message])
    }
}

/// # Safety
/// Called by the interpreter only: `observer` is a live object.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
unsafe extern "C" fn finish(_: *mut ffi::PyObject, observer: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        observed(py, Borrowed::from_ptr(py, observer), |observer| observer.finish(py, now_monotonic_nano()))
    }
}

/// # Safety
/// Called by the interpreter only: `arguments` holds `count` live objects.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
unsafe extern "C" fn received(
    _: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL; number and class are checked.
    unsafe {
        let py = Python::assume_attached();
        if count != 2 {
            return raised(py, PyTypeError::new_err("received takes an observer and a message"));
        }
        let argument = |position| Borrowed::from_ptr(py, *arguments.add(position));
        observed(py, argument(0), |observer| {
            observer.stopwatch.time(py, || observer.observe_received(py, argument(1)));
        })
    }
}

/// Does `work` with an observer and returns None; raises TypeError for anything else.
#[inline]
fn observed(
    py: Python<'_>,
    observer: Borrowed<'_, '_, PyAny>,
    work: impl FnOnce(&RequestObserver),
) -> *mut ffi::PyObject {
    match observer.cast::<RequestObserver>() {
        Ok(observer) => {
            work(observer.get());
            py.None().into_ptr()
        }
        Err(error) => raised(py, error.into()),
    }
}

/// # Safety
/// As [`send`], without a message.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
unsafe extern "C" fn receive(this: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        let observer = Borrowed::from_ptr(py, this).cast_unchecked::<RequestObserver>().get();
        let (coroutine, server) = (observer.shared().observed_receive.as_ptr(py), observer.receive.as_ptr(py));
        if coroutine.is_null() || server.is_null() {
            return refuse(py);
        }
        call(coroutine, [std::ptr::null_mut(), server, this])
    }
}

/// Raises the error for a call on a request that the garbage collector has cleared.
#[cold]
fn refuse(py: Python<'_>) -> *mut ffi::PyObject {
    raised(py, ended())
}
