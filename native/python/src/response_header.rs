//! The request id as a header of the answer, if configured.

use super::asgi::item;
use super::foreign::with_correlation_id;
use super::headers::{Lengths, for_each_header};
use super::request_ids::IdsCell;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySequence, PyString, PyTuple};

/// Returns a copy of an `http.response.start` with the request id in the header `name`: the client's, or ours if it
/// sent none. The application's message stays as it is.
///
/// None, if the application (or asgi-correlation-id, around us or inside) sends such a header itself, or if the headers
/// cannot be copied without changing them.
#[cold]
#[inline(never)]
pub fn with_request_id(
    message: &Bound<'_, PyDict>,
    headers_key: &Py<PyString>,
    name: &Py<PyBytes>,
    ids: &IdsCell,
) -> Option<Py<PyDict>> {
    let py = message.py();
    let headers = item(message, headers_key).map(Borrowed::to_owned);
    let headers = headers.as_ref().map(Bound::as_borrowed);
    let is_sequence =
        |headers: &Bound<'_, PyAny>| headers.is_instance_of::<PyList>() || headers.is_instance_of::<PyTuple>();
    if headers.as_ref().is_some_and(|headers| !is_sequence(headers)) || is_sent_anyway(py, headers, name) {
        return None;
    }
    let id = ids.with(py, |ids| ids.client().map_or_else(|| ids.request_id().to_vec(), <[u8]>::to_vec));
    let added = PyTuple::new(py, [name.bind(py).clone(), PyBytes::new(py, &id)]).ok()?;
    let list = headers
        .map_or_else(|| PyResult::Ok(PyList::empty(py)), |headers| headers.cast::<PySequence>()?.to_list())
        .ok()?;
    list.append(added).ok()?;
    let copy = message.copy().ok()?;
    copy.set_item(headers_key, list).ok()?;
    Some(copy.unbind())
}

fn is_sent_anyway(py: Python<'_>, headers: Option<Borrowed<'_, '_, PyAny>>, name: &Py<PyBytes>) -> bool {
    let name = name.bind(py).as_bytes();
    let mut is_there = false;
    for_each_header(headers, Lengths::ALL, |known| {
        is_there |= known.name.eq_ignore_ascii_case(name) && known.value().is_some();
    });
    // An asgi-correlation-id inside of us has put its header there; one around us will do so.
    let mut by_others = false;
    with_correlation_id(py, |id| {
        by_others = true;
        for_each_header(headers, Lengths::ALL, |other| by_others &= other.value().is_none_or(|value| value != id));
    });
    is_there || by_others
}
