//! The requests of a comparison: which are recorded, and a `send` that times each of them, alike in both arms.
//!
//! It stands between the server's `send` and whatever the application gets, the observer's or itself, so that neither
//! arm pays more for being timed than the other.

use super::asgi::{Message, dict, exact_bytes, text};
use super::calling::call;
use super::gil_cell::GilCell;
use super::held::{Held, ended};
use super::shared::RequestFactory;
use super::{FunctionDef, bind, raised};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use queue::system::now_monotonic_nano;
use request::runtime::comparison::RequestTimer;

static SEND: FunctionDef = FunctionDef::one_argument(c"send", send, c"Pass an ASGI message on to the server.");

/// What becomes of a request while something is overridden, with the `send` for the observer or the application.
pub enum Decision {
    Recorded(Py<PyAny>),
    /// None: the application gets what the server gave.
    NotRecorded(Option<Py<PyAny>>),
}

/// Decides about a request that begins at `now`. One that is not recorded is counted only if it `is_asked_again`, since
/// the middleware asks twice about those.
#[cold]
#[inline(never)]
pub fn decide(
    factory: Borrowed<'_, '_, RequestFactory>,
    server_send: Py<PyAny>,
    now: u64,
    is_asked_again: bool,
) -> PyResult<Decision> {
    let begins = factory.get().shared.service.runtime.begins(now);
    let timed = begins.compared.filter(|_| begins.is_recorded || is_asked_again);
    let Some(compared) = timed else {
        return Ok(if begins.is_recorded { Decision::Recorded(server_send) } else { Decision::NotRecorded(None) });
    };
    let timer = GilCell::new(RequestTimer::begin(compared, now));
    let timed = TimedSend { factory: factory.to_owned().unbind(), send: Held::new(server_send), timer };
    let send = bind(&SEND, Bound::new(factory.py(), timed)?.as_any())?;
    Ok(if begins.is_recorded { Decision::Recorded(send) } else { Decision::NotRecorded(Some(send)) })
}

/// The server's own function behind a `send`; None, once the garbage collector has cleared it.
pub fn server_send(send: Bound<'_, PyAny>) -> Option<Bound<'_, PyAny>> {
    let py = send.py();
    match send.getattr(intern!(py, "__self__")).ok().and_then(|this| this.cast_into::<TimedSend>().ok()) {
        Some(timed) => timed.get().send.get(py),
        None => Some(send),
    }
}

/// One request of a comparison.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct TimedSend {
    factory: Py<RequestFactory>,
    send: Held,
    timer: GilCell<RequestTimer>,
}

#[pymethods]
impl TimedSend {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.factory)?;
        self.send.visit(&visit)
    }

    fn __clear__(&self, py: Python<'_>) {
        self.send.clear(py);
    }
}

impl TimedSend {
    fn observe(&self, py: Python<'_>, message: Borrowed<'_, '_, PyAny>) {
        let Some(message) = dict(message) else { return };
        let (keys, mut kept) = (&self.factory.get().shared.keys, [None, None]);
        let seen = Message::read(&message, keys).unwrap_or_else(|| Message::look_up(&message, keys, &mut kept));
        let (has_content, more) = match seen.kind.map_or("", text) {
            "http.response.body" => {
                (seen.body.is_some_and(|body| exact_bytes(body).is_none_or(|bytes| !bytes.is_empty())), seen.more_body)
            }
            "http.response.zerocopysend" => (true, seen.more_body),
            "http.response.pathsend" => (true, false),
            _ => return,
        };
        let now = now_monotonic_nano();
        self.timer.with(py, |timer| timer.part(has_content, more, now));
    }
}

/// # Safety
/// Called by the interpreter only: `this` is a [`TimedSend`], `message` a live object.
unsafe extern "C" fn send(this: *mut ffi::PyObject, message: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's promise, and it holds the GIL.
    unsafe {
        let py = Python::assume_attached();
        let timed = Borrowed::from_ptr(py, this).cast_unchecked::<TimedSend>().get();
        timed.observe(py, Borrowed::from_ptr(py, message));
        let server = timed.send.as_ptr(py);
        if server.is_null() {
            return raised(py, ended());
        }
        call(server, [std::ptr::null_mut(), message])
    }
}
