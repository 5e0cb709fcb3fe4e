//! The C functions through which the server, the application and the middleware reach the observer of a request.
//!
//! `send` returns `send(message)`, the server's own awaitable, so a chunk costs no coroutine of ours. `receive` returns a
//! coroutine, since its result is what is observed.

use super::calling::call;
use super::held::ended;
use super::middleware::RequestObserver;
use super::{FunctionDef, raised};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use queue::system::now_monotonic_nano;

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
