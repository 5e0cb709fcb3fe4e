//! One request of the ASGI middleware: reads scope and messages, never changes, delays or refuses them.
//!
//! `send` is a C function that looks at the message and returns `send(message)`, the server's own awaitable: no
//! coroutine of ours per chunk. `receive` returns a coroutine, since there the result is what is looked at. Every value is taken out of the message before the state is borrowed, since only that
//! can run foreign code (a key with its own `__eq__`).

use super::service::PyService;
use super::value::{bytes_of, utf8};
use super::{FunctionDef, bind};
use crate::ids::IdSource;
use crate::observer::{Chunks, Ending, Observer, ObserverSettings, RequestTexts};
use crate::producer::now_monotonic_nano;
use crate::record::{BodyKind, Scratch, Trace};
use crate::service::Service;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
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

/// Interned names, so that a look-up compares pointers.
struct Keys {
    kind: Py<PyString>,
    body: Py<PyString>,
    more_body: Py<PyString>,
    status: Py<PyString>,
    headers: Py<PyString>,
    method: Py<PyString>,
    path: Py<PyString>,
    root_path: Py<PyString>,
    route: Py<PyString>,
    http_version: Py<PyString>,
    client: Py<PyString>,
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
    root_path: Option<Py<PyAny>>,
    state: GilCell<Observer>,
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

    /// The function `begin(scope, receive, send)`, which returns the observer and the `receive` and `send` to go on with.
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
        let trace = self.shared.ids.trace(head.traceparent);
        let mut state = Observer::begin(trace, head.request_id, now_monotonic_nano());
        if head.is_json && item(scope, &keys.method).is_some_and(has_body) {
            state.capture_request(&self.shared.settings);
        }
        let observer = RequestObserver {
            path: item(scope, &keys.path).map(|path| path.to_owned().unbind()),
            root_path: item(scope, &keys.root_path).map(|path| path.to_owned().unbind()),
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

    /// The trace id, 32 lowercase hex digits.
    #[getter]
    fn trace_id(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.trace().trace_id))
    }

    /// The id of this request's span, 16 lowercase hex digits.
    #[getter]
    fn span_id(&self) -> String {
        format!("{:016x}", u64::from_be_bytes(self.trace().span_id))
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
    /// The request's trace context.
    #[inline]
    pub fn trace(&self) -> Trace {
        // SAFETY: read with the GIL held by every caller in this module tree; `trace` never changes after `begin`.
        unsafe { (*self.state.0.get()).trace }
    }

    /// Appends the request id.
    #[inline]
    pub fn push_request_id(&self, scratch: &mut Scratch) {
        // SAFETY: as in `trace`.
        unsafe { (*self.state.0.get()).push_request_id(scratch) }
    }

    fn finish_with(&self, py: Python<'_>, ending: Ending<'_>) {
        let now = now_monotonic_nano();
        let keys = &self.shared.keys;
        let scope = self.scope.bind(py);
        let route = item(scope, &keys.route).and_then(|route| route.getattr(&keys.path).ok());
        let root_path = item(scope, &keys.root_path).map_or("", text);
        let mounted_at = self.root_path.as_ref().map_or("", |path| text(path.bind_borrowed(py)));
        let client = item(scope, &keys.client).and_then(first);
        let path = self.path.as_ref().and_then(|path| {
            // SAFETY: a live object, borrowed no longer than `self.path` lives.
            unsafe { utf8(path.as_ptr()) }
        });
        let texts = RequestTexts {
            method: item(scope, &keys.method).map_or("", text),
            path: path.unwrap_or("<path that cannot be encoded>").as_bytes(),
            route_prefix: if route.is_some() { root_path.strip_prefix(mounted_at).unwrap_or("") } else { "" },
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
        let first_events = settings.chunks == Chunks::Events && more && !bytes.is_empty();
        self.state.with(py, |state| {
            state.response_body(bytes, more, now, settings);
            if first_events {
                state.emit_chunk(&self.shared.service.producer, bytes.len());
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
    let begun = unsafe {
        let py = Python::assume_attached();
        if count != 3 {
            PyTypeError::new_err("begin takes scope, receive and send").restore(py);
            return std::ptr::null_mut();
        }
        let argument = |position| Borrowed::from_ptr(py, *arguments.add(position)).to_owned();
        let factory = Borrowed::from_ptr(py, this).cast_unchecked::<RequestFactory>().get();
        begin_bound(factory, &argument(0), argument(1).unbind(), argument(2).unbind())
    };
    // SAFETY: as above.
    begun.map_or_else(
        |error| {
            error.restore(unsafe { Python::assume_attached() });
            std::ptr::null_mut()
        },
        Bound::into_ptr,
    )
}

#[inline]
fn begin_bound<'py>(
    factory: &RequestFactory,
    scope: &Bound<'py, PyAny>,
    server_receive: Py<PyAny>,
    server_send: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let observer = factory.observer(scope.cast::<PyDict>()?, server_receive, server_send)?.into_any();
    let receive = bind(&RECEIVE, &observer)?;
    let send = bind(&SEND, &observer)?;
    // SAFETY: a fresh tuple of three, each place filled once with a reference that it takes over.
    unsafe {
        let tuple = Bound::from_owned_ptr_or_err(scope.py(), ffi::PyTuple_New(3))?;
        ffi::PyTuple_SetItem(tuple.as_ptr(), 0, observer.into_ptr());
        ffi::PyTuple_SetItem(tuple.as_ptr(), 1, receive.into_ptr());
        ffi::PyTuple_SetItem(tuple.as_ptr(), 2, send.into_ptr());
        Ok(tuple)
    }
}

impl Keys {
    fn intern(py: Python<'_>) -> Self {
        Self {
            kind: intern!(py, "type").clone().unbind(),
            body: intern!(py, "body").clone().unbind(),
            more_body: intern!(py, "more_body").clone().unbind(),
            status: intern!(py, "status").clone().unbind(),
            headers: intern!(py, "headers").clone().unbind(),
            method: intern!(py, "method").clone().unbind(),
            path: intern!(py, "path").clone().unbind(),
            root_path: intern!(py, "root_path").clone().unbind(),
            route: intern!(py, "route").clone().unbind(),
            http_version: intern!(py, "http_version").clone().unbind(),
            client: intern!(py, "client").clone().unbind(),
        }
    }
}

/// What the request's headers say, for a list of pairs of `bytes` as ASGI asks for.
#[derive(Default)]
struct Head<'a> {
    traceparent: Option<&'a [u8]>,
    request_id: Option<&'a [u8]>,
    is_json: bool,
}

impl<'a> Head<'a> {
    fn read(headers: Option<Borrowed<'a, '_, PyAny>>) -> Self {
        let mut head = Self::default();
        for_each_header(headers, |name, value| match name.len() {
            11 if name == b"traceparent" => head.traceparent = Some(value),
            12 if name == b"x-request-id" => head.request_id = Some(value),
            12 if name == b"content-type" => head.is_json = is_json(value),
            _ => (),
        });
        head
    }
}

/// Most headers of a message that are looked at.
const MAX_HEADERS: isize = 256;

#[inline]
fn for_each_header<'a>(headers: Option<Borrowed<'a, '_, PyAny>>, mut visit: impl FnMut(&'a [u8], &'a [u8])) {
    let Some(headers) = headers else { return };
    // SAFETY: every object is checked for its exact kind before its content is borrowed; the borrows live as long as
    // the header list, which the scope or message keeps.
    unsafe {
        if ffi::PyList_Check(headers.as_ptr()) == 0 {
            return;
        }
        for position in 0..ffi::PyList_Size(headers.as_ptr()).min(MAX_HEADERS) {
            let pair = ffi::PyList_GetItem(headers.as_ptr(), position);
            let (name, value) = if ffi::PyTuple_Check(pair) != 0 && ffi::PyTuple_Size(pair) == 2 {
                (ffi::PyTuple_GetItem(pair, 0), ffi::PyTuple_GetItem(pair, 1))
            } else if ffi::PyList_Check(pair) != 0 && ffi::PyList_Size(pair) == 2 {
                (ffi::PyList_GetItem(pair, 0), ffi::PyList_GetItem(pair, 1))
            } else {
                continue;
            };
            if ffi::PyBytes_Check(name) != 0 && ffi::PyBytes_Check(value) != 0 {
                visit(bytes_of(name), bytes_of(value));
            }
        }
    }
}

fn is_json(content_type: &[u8]) -> bool {
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    kind.eq_ignore_ascii_case(b"application/json")
        || (kind.len() > 5 && kind[kind.len() - 5..].eq_ignore_ascii_case(b"+json"))
}

fn response_kind(headers: Borrowed<'_, '_, PyAny>) -> Option<BodyKind> {
    let mut kind = None;
    for_each_header(Some(headers), |name, value| {
        if name.eq_ignore_ascii_case(b"content-type") {
            let is_stream = value.len() >= 17 && value[..17].eq_ignore_ascii_case(b"text/event-stream");
            kind = if is_stream { Some(BodyKind::Stream) } else { is_json(value).then_some(BodyKind::Response) };
        }
    });
    kind
}

fn has_body(method: Borrowed<'_, '_, PyAny>) -> bool {
    matches!(text(method), "POST" | "PUT" | "PATCH")
}

/// Borrows a dictionary's value; None if it is missing (or its look-up fails).
#[inline]
fn item<'a, 'py>(dict: &'a Bound<'py, PyDict>, key: &Py<PyString>) -> Option<Borrowed<'a, 'py, PyAny>> {
    // SAFETY: live objects, the GIL is held; a borrowed reference, kept by the dictionary, which nobody changes while
    // the message is looked at.
    unsafe {
        let found = ffi::PyDict_GetItemWithError(dict.as_ptr(), key.as_ptr());
        if found.is_null() {
            if !ffi::PyErr_Occurred().is_null() {
                ffi::PyErr_Clear();
            }
            return None;
        }
        Some(Borrowed::from_ptr(dict.py(), found))
    }
}

/// Borrows a `str`; empty for anything else.
#[inline]
fn text<'a>(object: Borrowed<'a, '_, PyAny>) -> &'a str {
    // SAFETY: a live object; the kind is checked before.
    unsafe { if ffi::PyUnicode_Check(object.as_ptr()) != 0 { utf8(object.as_ptr()).unwrap_or("") } else { "" } }
}

/// Borrows the bytes of a body; empty for anything that is neither `bytes` nor `bytearray`.
#[inline]
fn content<'a>(object: Borrowed<'a, '_, PyAny>) -> &'a [u8] {
    // SAFETY: the kinds are checked; nothing runs that could change a bytearray while it is borrowed.
    unsafe {
        if ffi::PyBytes_Check(object.as_ptr()) != 0 {
            return bytes_of(object.as_ptr());
        }
        if ffi::PyByteArray_Check(object.as_ptr()) != 0 {
            let len = ffi::PyByteArray_Size(object.as_ptr()) as usize;
            return std::slice::from_raw_parts(ffi::PyByteArray_AsString(object.as_ptr()).cast(), len);
        }
    }
    b""
}

#[inline]
fn is_true(object: Borrowed<'_, '_, PyAny>) -> bool {
    // SAFETY: the GIL is held.
    let (yes, no) = unsafe { (ffi::Py_True(), ffi::Py_False()) };
    object.as_ptr() == yes || (object.as_ptr() != no && object.is_truthy().unwrap_or(false))
}

/// The first member of a tuple or list: the host of an ASGI `client`.
fn first<'py>(pair: Borrowed<'_, 'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    match pair.cast::<PyTuple>() {
        Ok(pair) => pair.get_item(0).ok(),
        Err(_) => pair.get_item(0).ok(),
    }
}
