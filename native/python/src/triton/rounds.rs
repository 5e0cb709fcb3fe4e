//! Requests of a model with sequences, which Triton gives to `execute` once per round.
//!
//! A model with iterative sequences reschedules a request (`set_release_flags`). Triton then frees its object and
//! gives the same request back in a later batch, as another object. Its correlation id stays, and no other request under
//! way has it. Triton does not give back a request whose client has cancelled meanwhile, and says so to nobody. It gives
//! an instance a limited number of sequences at a time. So once more than that wait, the first of them are gone.
//!
//! Triton pads a batch of sequences with requests that no client has sent. They have no correlation id.

use super::calls::Calls;
use super::{CorrelationId, ModelRequest, ModelShared};
use crate::gil_cell::GilCell;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use queue::system::now_monotonic_nano;
use request::outcome::Ending;

/// `TRITONSERVER_REQUEST_FLAG_SEQUENCE_START`
const START: u64 = 1;

/// The rescheduled requests that wait for their next round, the oldest first.
pub struct Rounds {
    waiting: GilCell<Vec<Py<ModelRequest>>>,
    /// The most sequences that an instance serves at a time.
    limit: usize,
}

impl Rounds {
    pub fn new(limit: usize) -> Self {
        Self { waiting: GilCell::new(Vec::new()), limit }
    }

    /// Finds the requests that come back with this batch; for each request of the batch, its record if it has one.
    pub fn resume(&self, shared: &ModelShared, requests: &Bound<'_, PyAny>) -> PyResult<Vec<Option<Py<ModelRequest>>>> {
        let py = requests.py();
        self.take_rescheduled(shared, py);
        if self.waiting.with(py, |waiting| waiting.is_empty()) {
            return Ok(Vec::new());
        }
        let (mut calls, mut resumed, mut sequences) = (Calls::new(py), Vec::new(), 0);
        for request in requests.try_iter()? {
            let request = request?;
            let correlation = CorrelationId::of(&calls.call(&shared.methods.correlation_id, &request)?);
            sequences += usize::from(!correlation.is_none());
            let before = self.waiting.with(py, |waiting| {
                let at = waiting.iter().position(|waiting| waiting.get().is_of(py, &correlation));
                at.map(|at| waiting.remove(at))
            });
            let Some(before) = before else {
                resumed.push(None);
                continue;
            };
            if request.call_method0(intern!(py, "flags"))?.extract::<u64>()? & START == 0 {
                before.get().reschedule(py, false);
                if shared.decoupled {
                    ModelRequest::watch(before.bind(py), &request);
                }
                let key = request.as_ptr() as usize;
                shared.open.with(py, |open| open.push((key, before.clone_ref(py))));
                resumed.push(Some(before));
            } else {
                // Another sequence has taken the id, so the one before is gone.
                before.get().leave(py);
                resumed.push(None);
            }
        }
        let room = self.limit.saturating_sub(sequences);
        let gone = self.waiting.with(py, |waiting| {
            let gone = waiting.len().saturating_sub(room);
            waiting.drain(..gone).collect::<Vec<_>>()
        });
        gone.iter().for_each(|gone| gone.get().leave(py));
        Ok(resumed)
    }

    /// Ends every request that waits: none comes back.
    pub fn end_all(&self, shared: &ModelShared, py: Python<'_>) {
        self.take_rescheduled(shared, py);
        self.waiting.with(py, std::mem::take).iter().for_each(|gone| gone.get().leave(py));
    }

    /// Takes over the requests that were rescheduled since the last batch: their addresses are free for others.
    fn take_rescheduled(&self, shared: &ModelShared, py: Python<'_>) {
        let rescheduled = shared.open.with(py, |open| {
            let is_rescheduled = |(_, request): &mut (usize, Py<ModelRequest>)| request.get().is_rescheduled(py);
            open.extract_if(.., is_rescheduled).map(|(_, request)| request).collect::<Vec<_>>()
        });
        self.waiting.with(py, |waiting| waiting.extend(rescheduled));
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // SAFETY: the collector holds the GIL, and reads only.
        unsafe { self.waiting.peek() }.iter().try_for_each(|request| visit.call(request))
    }

    pub fn clear(&self, py: Python<'_>) {
        drop(self.waiting.with(py, std::mem::take));
    }
}

impl ModelRequest {
    /// Whether the request waits for its next round.
    fn is_rescheduled(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.rescheduled().is_some())
    }

    fn is_of(&self, py: Python<'_>, correlation: &CorrelationId) -> bool {
        self.state.with(py, |state| state.given.correlation == *correlation)
    }

    /// Ends a rescheduled request that does not come back: its client has cancelled it meanwhile.
    fn leave(&self, py: Python<'_>) {
        let since = self.state.with(py, |state| {
            state.cancel();
            state.rescheduled()
        });
        self.finish_with(py, Ending::Returned, since.unwrap_or_else(now_monotonic_nano));
    }
}
