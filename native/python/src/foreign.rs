//! Data of other libraries in the process about the request under way: OpenTelemetry's span, and the client's id from
//! asgi-correlation-id.
//!
//! A search for both runs when a logger opens and at every 64th request, since an application may import them late. If
//! they are not used, a request pays one load and one branch for each.

use super::value::{bytes_of, utf8};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use queue::record::Trace;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Reads the active span: see `inference_logging.record.otel`.
pub static ACTIVE_SPAN: Reader = Reader::missing();
/// Reads the correlation id: see `inference_logging.record.otel`.
pub static CORRELATION_ID: Reader = Reader::missing();

const IDS_BYTES: usize = 33;
/// A flag besides those of W3C.
const REMOTE_PARENT: u8 = 0x80;

/// A Python function, once it is found. A reference that is put here is never dropped, so that a call on its way always
/// finds it alive.
pub struct Reader {
    function: AtomicPtr<ffi::PyObject>,
    /// A function without a frame of its own. It returns a dictionary that is empty while there is nothing to read;
    /// null: there is no such short cut.
    context: AtomicPtr<ffi::PyObject>,
}

impl Reader {
    const fn missing() -> Self {
        Self { function: AtomicPtr::new(std::ptr::null_mut()), context: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Takes the function that `find` returns, unless that is None.
    pub fn find(&self, find: &Bound<'_, PyAny>) {
        match find.call0() {
            Ok(reader) if !reader.is_none() => self.set(Some(reader)),
            Ok(_) => (),
            // A library that cannot be imported counts as missing.
            Err(_) => self.set(None),
        }
    }

    /// Sets or forgets the function: one alone, or a pair of it and the function that returns its context.
    pub fn set(&self, reader: Option<Bound<'_, PyAny>>) {
        let (function, context) = match reader.map(|reader| (reader.extract(), reader)) {
            Some((Ok((function, context)), _)) => (Some(function), Some(context)),
            Some((Err(_), function)) => (Some(function), None),
            None => (None, None),
        };
        let pointer = |function: Option<Bound<'_, PyAny>>| function.map_or(std::ptr::null_mut(), Bound::into_ptr);
        self.context.store(pointer(context), Ordering::Release);
        self.function.store(pointer(function), Ordering::Release);
    }

    /// Whether the library is not used, as far as is known.
    #[inline]
    pub fn is_missing(&self) -> bool {
        self.function.load(Ordering::Relaxed).is_null()
    }

    #[inline]
    fn call<'py>(&self, py: Python<'py>, argument: Option<&Bound<'py, PyAny>>) -> Option<Bound<'py, PyAny>> {
        // Acquire pairs with the Release in `set`.
        let function = self.function.load(Ordering::Acquire);
        if function.is_null() || self.has_nothing(py) { None } else { call(py, function, argument) }
    }

    /// Whether the context is empty. If that is not known, the caller has to ask the function.
    #[cold]
    #[inline(never)]
    fn has_nothing(&self, py: Python<'_>) -> bool {
        let context = self.context.load(Ordering::Acquire);
        let context = if context.is_null() { None } else { call(py, context, None) };
        context.is_some_and(|context| context.cast::<PyDict>().is_ok_and(|context| context.is_empty()))
    }
}

#[cold]
fn call<'py>(
    py: Python<'py>,
    function: *mut ffi::PyObject,
    argument: Option<&Bound<'py, PyAny>>,
) -> Option<Bound<'py, PyAny>> {
    let end: *mut ffi::PyObject = std::ptr::null_mut();
    // SAFETY: functions of readers are never dropped, the GIL is held; the result is a new reference or null with an exception set.
    unsafe {
        let argument = argument.map_or(end, Bound::as_ptr);
        let value = Bound::from_owned_ptr_or_opt(py, ffi::PyObject_CallFunctionObjArgs(function, argument, end));
        if value.is_none() {
            ffi::PyErr_Clear();
        }
        value
    }
}

/// The ids of the active span.
#[derive(Clone, Copy, Debug)]
pub struct ActiveSpan {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub flags: u8,
    /// The span continues a trace that came with the request, in whatever headers the tracer reads.
    pub has_remote_parent: bool,
    /// The span of the request: this span, or its ancestor; zeros: unknown.
    request_span_id: [u8; 8],
}

impl ActiveSpan {
    /// Reads the active span; None if there is none.
    #[inline]
    pub fn read(py: Python<'_>) -> Option<Self> {
        let value = ACTIVE_SPAN.call(py, None)?;
        Self::parse(&value).map(|(span, _)| span)
    }

    /// Reads the active span and its `tracestate`.
    pub fn read_with_state(py: Python<'_>) -> Option<(Self, String)> {
        let value = ACTIVE_SPAN.call(py, Some(&PyBool::new(py, true).to_owned().into_any()))?;
        Self::parse(&value).map(|(span, state)| (span, String::from_utf8_lossy(state).into_owned()))
    }

    #[inline(never)]
    fn parse<'a>(value: &'a Bound<'_, PyAny>) -> Option<(Self, &'a [u8])> {
        // SAFETY: a live object, whose kind is checked first; the slice lives as long as it.
        let bytes = unsafe {
            if ffi::PyBytes_Check(value.as_ptr()) == 0 {
                return None;
            }
            bytes_of(value.as_ptr())
        };
        let (ids, state) = bytes.split_at_checked(IDS_BYTES)?;
        let span = Self {
            trace_id: ids[..16].try_into().ok()?,
            span_id: ids[16..24].try_into().ok()?,
            flags: ids[24] & !REMOTE_PARENT,
            has_remote_parent: ids[24] & REMOTE_PARENT != 0,
            request_span_id: ids[25..].try_into().ok()?,
        };
        Some((span, state))
    }

    /// The span of the request, if it is known.
    #[must_use]
    pub fn request_span_id(&self) -> Option<[u8; 8]> {
        Some(self.request_span_id).filter(|id| *id != [0; 8])
    }

    /// The trace context of a record from within this span.
    pub fn trace(&self) -> Trace {
        Trace { trace_id: self.trace_id, span_id: self.span_id, parent_span_id: [0; 8], flags: self.flags }
    }
}

/// Calls `take` with the correlation id of the request under way, if there is one.
#[inline]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.hot"))]
pub fn with_correlation_id(py: Python<'_>, take: impl FnOnce(&[u8])) {
    let Some(value) = CORRELATION_ID.call(py, None) else { return };
    // SAFETY: a live object, whose kind is checked first; the text is used while it lives.
    let id = unsafe { if ffi::PyUnicode_Check(value.as_ptr()) != 0 { utf8(value.as_ptr()) } else { None } };
    if let Some(id) = id {
        take(id.as_bytes());
    }
}
