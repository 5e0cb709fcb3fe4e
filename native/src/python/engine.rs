//! The inference engine behind the server: what it says of a request, and the headers by which it learns the ids.

use super::asgi::{is_true, item};
use super::head::RequestHead;
use super::request_ids::PyRequestIds;
use super::value;
use crate::ids::{RequestIds, traceparent};
use crate::observer::EngineFacts;
use crate::record::Scratch;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

/// `read(scope, ids)`, which returns None, or whether the engine gave the request up and the values of the last fields
/// of its record, None where there is none.
pub struct EngineReader(pub Py<PyAny>);

impl EngineReader {
    /// Asks at the end of a request. The function should not raise; if it does, the request has no such facts.
    pub fn read(&self, scope: &Bound<'_, PyDict>, ids: &Py<PyRequestIds>) -> Option<EngineFacts> {
        let told = match self.0.bind(scope.py()).call1((scope, ids)) {
            Ok(told) => told,
            Err(error) => {
                error.write_unraisable(scope.py(), None);
                return None;
            }
        };
        let values = told.cast::<PyTuple>().ok()?;
        let mut values = values.iter_borrowed();
        let aborted = values.next().is_some_and(is_true);
        let mut scratch = Scratch::new();
        for value in values {
            // SAFETY: a live object, kept by the tuple; the GIL is held and no exception is set.
            unsafe {
                if value.is_none() {
                    scratch.push_absent();
                } else {
                    value::push(scope.py(), &mut scratch, value.as_ptr());
                }
            }
        }
        Some(EngineFacts { aborted, values: scratch.as_slice().to_vec() })
    }
}

/// Which ids the application is told in headers, where the client sent none.
#[derive(Clone, Copy, Default)]
pub struct ForwardIds {
    pub trace: bool,
    pub request: bool,
}

impl ForwardIds {
    #[inline]
    pub const fn is_on(self) -> bool {
        self.trace || self.request
    }

    /// Adds the headers to a scope whose header list can be added to.
    pub fn add(self, scope: &Bound<'_, PyDict>, headers: &Py<PyString>, head: Sent, ids: &RequestIds) {
        let headers = item(scope, headers).map(Borrowed::to_owned);
        let Some(headers) = headers.as_ref().and_then(|headers| headers.cast::<PyList>().ok()) else { return };
        let add = |name: &[u8], value: &[u8]| {
            let py = scope.py();
            // Without memory for it the application does without.
            let _ = headers.append((PyBytes::new(py, name), PyBytes::new(py, value)));
        };
        if self.trace && !head.trace {
            add(b"traceparent", traceparent(&ids.trace).as_bytes());
            if let Some(state) = ids.outgoing_state() {
                add(b"tracestate", state.as_bytes());
            }
        }
        if self.request && !head.request {
            add(b"x-request-id", &ids.request_id());
        }
    }
}

/// Which ids the client sent, valid or not.
#[derive(Clone, Copy)]
pub struct Sent {
    pub trace: bool,
    pub request: bool,
}

impl From<&RequestHead<'_>> for Sent {
    #[inline]
    fn from(head: &RequestHead<'_>) -> Self {
        let trace = head.traceparent.iter().next().is_some() || head.tracestate.iter().next().is_some();
        Self { trace, request: head.request_id.is_some() }
    }
}
