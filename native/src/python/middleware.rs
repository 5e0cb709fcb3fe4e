//! One request of the ASGI middleware: reads scope and messages, never changes, delays or refuses them.
//!
//! `send` is a C function that looks at the message and returns `send(message)`, the server's own awaitable: no
//! coroutine of ours per chunk. `receive` returns a coroutine, since there the result is what is looked at. Every value is taken out of the message before the state is borrowed, since only that
//! can run foreign code (a key with its own `__eq__`).

use super::asgi::{Head, Keys, content, first, has_body, is_true, item, mount_prefix, response_kind, template, text};
use super::service::PyService;
use super::value::utf8;
use super::{FunctionDef, bind};
use crate::ids::{IdSource, RequestIds};
use crate::observer::{Chunks, Observer, ObserverSettings, RequestTexts};
use crate::outcome::Ending;
use crate::service::Service;
use crate::system::now_monotonic_nano;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// Makes the observers of a middleware's requests: configuration, and a source of ids.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct RequestFactory {
    shared: Arc<Shared>,
}

struct Shared {
    service: Arc<Service>,
    settings: ObserverSettings,
    ids: IdSource,
    keys: Keys,
    /// `async def observed_receive(receive, observer)`.
    observed_receive: Py<PyAny>,
}

/// One request under way.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct RequestObserver {
    shared: Arc<Shared>,
    receive: Py<PyAny>,
    send: Py<PyAny>,
    scope: Py<PyDict>,
    /// As the server gave it; inner applications may change the scope.
    path: Option<Py<PyAny>>,
    state: GilCell<Observer>,
}

/// The ids of a request, for every record that is made while it is handled.
///
/// A context that outlives the request (a timer that was started in it) keeps this and nothing else of it alive.
#[pyclass(frozen, name = "RequestIds", module = "inference_logging._native")]
pub struct PyRequestIds(pub RequestIds);

#[pymethods]
impl PyRequestIds {
    /// The trace id, 32 lowercase hex digits.
    #[getter]
    fn trace_id(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0.trace.trace_id))
    }

    /// The id of this request's span, 16 lowercase hex digits.
    #[getter]
    fn span_id(&self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.0.trace.span_id))
    }

    /// The client's request id where it sent a valid one, otherwise the span id.
    #[getter]
    fn request_id(&self) -> String {
        self.0.request_id()
    }
}

/// State that is only touched with the GIL held and without running Python code in between.
struct GilCell<T>(UnsafeCell<T>);

// SAFETY: `with` is called with the GIL held (the stable ABI knows no build without one), so there is one thread, and
// its closures run no Python code, so there is one borrow.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T> GilCell<T> {
    #[inline]
    fn with<R>(&self, _py: Python<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: see above.
        work(unsafe { &mut *self.0.get() })
    }
}

static BEGIN: FunctionDef = FunctionDef::fast(c"begin", begin, c"Begin to observe a request.");
static SEND: FunctionDef = FunctionDef::one_argument(c"send", send, c"Pass an ASGI message on to the server.");
static RECEIVE: FunctionDef =
    FunctionDef::no_argument(c"receive", receive, c"Receive an ASGI message from the server.");

#[pymethods]
impl RequestFactory {
    #[new]
    #[pyo3(signature = (service, observed_receive, *, chunks, chunk_timeline_limit, capture_head_bytes, capture_tail_bytes, sample_threshold, adjusted_count))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only, one per setting")]
    fn new(
        py: Python<'_>,
        service: &PyService,
        observed_receive: Py<PyAny>,
        chunks: &str,
        chunk_timeline_limit: usize,
        capture_head_bytes: usize,
        capture_tail_bytes: usize,
        sample_threshold: u64,
        adjusted_count: f64,
    ) -> PyResult<Self> {
        let chunks = match chunks {
            "off" => Chunks::Off,
            "summary" => Chunks::Summary,
            "timeline" => Chunks::Timeline,
            "events" => Chunks::Events,
            other => {
                return Err(PyValueError::new_err(format!(
                    "chunks={other:?}: must be off, summary, timeline or events"
                )));
            }
        };
        let settings = ObserverSettings {
            chunks,
            chunk_timeline_limit,
            capture_head_bytes,
            capture_tail_bytes,
            sample_threshold,
            adjusted_count,
        };
        let shared = Shared {
            service: service.service(),
            settings,
            ids: IdSource::new()?,
            keys: Keys::intern(py),
            observed_receive,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The function `begin(scope, receive, send)`, which returns the observer, its ids, and the
    /// `receive` and `send` to go on with.
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
    fn observer<'py>(
        &self,
        scope: &Bound<'py, PyDict>,
        receive: Py<PyAny>,
        send: Py<PyAny>,
    ) -> PyResult<Bound<'py, RequestObserver>> {
        let keys = &self.shared.keys;
        let head = Head::read(item(scope, &keys.headers));
        let ids = RequestIds::new(self.shared.ids.trace(head.traceparent), head.request_id);
        let mut state = Observer::begin(ids, now_monotonic_nano());
        if head.is_json && item(scope, &keys.method).is_some_and(has_body) {
            state.capture_request(&self.shared.settings);
        }
        let observer = RequestObserver {
            path: item(scope, &keys.path).map(|path| path.to_owned().unbind()),
            shared: Arc::clone(&self.shared),
            receive,
            send,
            scope: scope.clone().unbind(),
            state: GilCell(UnsafeCell::new(state)),
        };
        Bound::new(scope.py(), observer)
    }
}

#[pymethods]
impl RequestObserver {
    /// Take note of a message that the application has received.
    fn received(&self, message: &Bound<'_, PyAny>) {
        self.observe_received(message.py(), message.as_borrowed());
    }

    /// Emit the terminal record of an application that returned; further calls do nothing.
    fn finish(&self, py: Python<'_>) {
        self.finish_with(py, Ending::Returned);
    }

    /// Emit the terminal record of an application that did not return; further calls do nothing.
    ///
    /// `ending` is one of `raised`, `timed_out`, `cancelled`, `disconnected`; `error_type` the exception's class name.
    fn fail(&self, py: Python<'_>, ending: &str, error_type: &str) -> PyResult<()> {
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
    fn finish_with(&self, py: Python<'_>, ending: Ending<'_>) {
        let now = now_monotonic_nano();
        let keys = &self.shared.keys;
        let scope = self.scope.bind(py);
        let route = item(scope, &keys.route).and_then(|route| template(scope, route, keys));
        let prefix = if route.is_some() { mount_prefix(scope, keys) } else { "" };
        let client = item(scope, &keys.client).and_then(first);
        let path = self.path.as_ref().and_then(|path| {
            // SAFETY: a live object, borrowed no longer than `self.path` lives.
            unsafe { utf8(path.as_ptr()) }
        });
        let texts = RequestTexts {
            method: item(scope, &keys.method).map_or("", text),
            path: path.unwrap_or("<path that cannot be encoded>").as_bytes(),
            route_prefix: prefix,
            route: route.as_ref().map_or("", |route| text(route.as_borrowed())),
            protocol_version: item(scope, &keys.http_version).map_or("", text),
            client_address: client.as_ref().map_or("", |client| text(client.as_borrowed())),
        };
        let shared = &*self.shared;
        self.state.with(py, |state| state.finish(ending, &texts, now, &shared.service.producer, &shared.settings));
    }

    #[inline]
    fn observe_sent(&self, py: Python<'_>, message: Borrowed<'_, '_, PyAny>) {
        let Ok(message) = message.cast::<PyDict>() else { return };
        let keys = &self.shared.keys;
        match item(&message, &keys.kind).map_or("", text) {
            "http.response.body" => self.observe_body(py, &message),
            "http.response.start" => self.observe_start(py, &message),
            _ => (),
        }
    }

    #[inline]
    fn observe_body(&self, py: Python<'_>, message: &Bound<'_, PyDict>) {
        let (keys, settings) = (&self.shared.keys, &self.shared.settings);
        let body = item(message, &keys.body);
        let more = item(message, &keys.more_body).is_some_and(is_true);
        let bytes = body.map_or(&b""[..], content);
        let now = now_monotonic_nano();
        let with_record = settings.chunks == Chunks::Events && !bytes.is_empty();
        self.state.with(py, |state| {
            state.response_body(bytes, more, now, settings);
            if with_record {
                state.emit_chunk(&self.shared.service.producer, bytes.len(), settings);
            }
        });
    }

    fn observe_start(&self, py: Python<'_>, message: &Bound<'_, PyDict>) {
        let keys = &self.shared.keys;
        let status = item(message, &keys.status).and_then(|status| status.extract::<u16>().ok()).unwrap_or(0);
        let wanted = self.state.with(py, |state| state.wants_content_type());
        let headers = if wanted { item(message, &keys.headers) } else { None };
        let kind = headers.and_then(response_kind);
        self.state.with(py, |state| state.response_start(status, kind, &self.shared.settings));
    }

    #[inline]
    fn observe_received(&self, py: Python<'_>, message: Borrowed<'_, '_, PyAny>) {
        let Ok(message) = message.cast::<PyDict>() else { return };
        let keys = &self.shared.keys;
        match item(&message, &keys.kind).map_or("", text) {
            "http.request" => {
                let bytes = item(&message, &keys.body).map_or(&b""[..], content);
                self.state.with(py, |state| state.request_bytes(bytes));
            }
            "http.disconnect" => self.state.with(py, |state| state.disconnect()),
            _ => (),
        }
    }
}

/// # Safety
/// Called by the interpreter only: `this` is a [`RequestObserver`], `message` a live object.
unsafe extern "C" fn send(this: *mut ffi::PyObject, message: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        let observer = Borrowed::from_ptr(py, this).cast_unchecked::<RequestObserver>().get();
        observer.observe_sent(py, Borrowed::from_ptr(py, message));
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
        if count != 3 {
            PyTypeError::new_err("begin takes scope, receive and send").restore(py);
            return std::ptr::null_mut();
        }
        let argument = |position| Borrowed::from_ptr(py, *arguments.add(position)).to_owned();
        let factory = Borrowed::from_ptr(py, this).cast_unchecked::<RequestFactory>().get();
        match begin_bound(factory, &argument(0), argument(1).unbind(), argument(2).unbind()) {
            Ok(begun) => begun.into_ptr(),
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
) -> PyResult<Bound<'py, PyAny>> {
    let observer = factory.observer(scope.cast::<PyDict>()?, server_receive, server_send)?;
    let ids = observer.get().state.with(scope.py(), |state| PyRequestIds(state.ids.clone()));
    let ids = Bound::new(scope.py(), ids)?;
    let observer = observer.into_any();
    let receive = bind(&RECEIVE, &observer)?;
    let send = bind(&SEND, &observer)?;
    // SAFETY: a fresh tuple of four, each place filled once with a reference that it takes over.
    unsafe {
        let tuple = Bound::from_owned_ptr_or_err(scope.py(), ffi::PyTuple_New(4))?;
        ffi::PyTuple_SetItem(tuple.as_ptr(), 0, observer.into_ptr());
        ffi::PyTuple_SetItem(tuple.as_ptr(), 1, ids.into_ptr());
        ffi::PyTuple_SetItem(tuple.as_ptr(), 2, receive.into_ptr());
        ffi::PyTuple_SetItem(tuple.as_ptr(), 3, send.into_ptr());
        Ok(tuple)
    }
}
