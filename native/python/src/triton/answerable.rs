//! A decoupled request that the model cannot answer any more: it dropped Triton's request and all response senders
//! without the final flag. Triton waits for such a request until the server ends; its record says at once what it is.

use super::ModelRequest;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;

/// Whether a decoupled model can still answer: it holds Triton's request, or a response sender.
#[derive(Default)]
pub struct Answerable {
    /// A weak reference to Triton's request, with a callback. None: nobody watches it.
    pub watch: Option<Py<PyAny>>,
    /// Triton's request is gone.
    pub is_gone: bool,
    /// The number of response senders.
    pub senders: u32,
}

impl ModelRequest {
    /// Waits for the end of Triton's object, which cannot be answered after it.
    pub fn watch(this: &Bound<'_, Self>, request: &Bound<'_, PyAny>) {
        let py = this.py();
        // An object that takes no weak references is not watched.
        let watch = this
            .getattr(intern!(py, "request_gone"))
            .and_then(|gone| PyWeakrefReference::new_with(request, gone))
            .ok()
            .map(|watch| watch.into_any().unbind());
        let before = this.get().state.with(py, |state| {
            state.answerable.is_gone = false;
            std::mem::replace(&mut state.answerable.watch, watch)
        });
        drop(before);
    }

    /// Ends a request that the model cannot answer any more, unless it has another round.
    pub fn finish_unanswerable(&self, py: Python<'_>) {
        let is_over = self.state.with(py, |state| {
            let Answerable { is_gone, senders, .. } = state.answerable;
            is_gone && senders == 0 && state.rescheduled().is_none()
        });
        if is_over {
            self.finish(py);
        }
    }
}
