//! The record of a WebSocket connection, from the values that Python has counted.

use super::middleware::exception_texts;
use super::request_ids::PyRequestIds;
use super::scope::Route;
use super::shared::MiddlewareShared;
use super::value;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use queue::record::Scratch;
use request::fields::Group;
use request::websocket::{self, FIELDS, NAME};

/// The number of values from the caller: from `outcome` to `duration_s`, without the route.
const GIVEN: usize = 14;
/// The place of the route among them: behind outcome, error and path.
const ROUTE: usize = 3;

/// Emits the record of an ended connection. `values` are those of [`FIELDS`] from `outcome` to `duration_s`, without
/// the route; None for a missing value.
///
/// # Errors
/// ValueError if the record cannot be made.
pub fn emit(
    shared: &MiddlewareShared,
    scope: &Bound<'_, PyDict>,
    ids: &PyRequestIds,
    severity: u8,
    values: &Bound<'_, PyTuple>,
    texts: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let (py, producer) = (scope.py(), &shared.requests.producer);
    if values.len() != GIVEN {
        return Err(PyValueError::new_err(format!("values: must be {GIVEN}, not {}", values.len())));
    }
    if shared.service.runtime.is_off() {
        return Ok(());
    }
    let id = producer.register_form(NAME, &FIELDS.map(str::to_owned), true);
    let id = id.map_err(|error| PyValueError::new_err(error.to_string()))?;
    ids.take_correlation_id(py);
    ids.end();
    let mut scratch = Scratch::new();
    ids.with(py, |ids| {
        scratch.push_trace(&ids.trace);
        ids.push_request_id(&mut scratch);
        ids.push_client_request_id(&mut scratch);
    });
    for (position, value) in values.iter().enumerate() {
        if position == ROUTE {
            Route::of(scope, &shared.keys).push(&mut scratch);
        }
        if value.is_none() {
            scratch.push_absent();
        } else {
            // SAFETY: a live object, the GIL is held and no exception is set.
            unsafe { value::push(py, &mut scratch, value.as_ptr()) };
        }
    }
    websocket::push_added(&ids.added(py), producer.max_record_bytes(), &mut scratch);
    if let Some(texts) = texts {
        exception_texts(&texts.call0()?)?.within(producer.max_record_bytes()).push(&mut scratch);
    }
    producer.emit(id, severity, scratch.as_slice());
    Ok(())
}
