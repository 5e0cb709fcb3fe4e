//! One request to a model: its responses as they pass, and its terminal record.

use super::{ModelInput, ModelLog, ModelShared};
use crate::gil_cell::GilCell;
use crate::middleware::exception_texts;
use crate::request_ids::PyRequestIds;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use queue::system::now_monotonic_nano;
use request::fields::{Json, Tensors, Usage};
use request::ids::RequestIds;
use request::observer::{Chunks, ModelFacts, Observer, RequestSource};
use request::outcome::Ending;
use request::requests::Requests;

/// `TRITONSERVER_RESPONSE_COMPLETE_FINAL`
const FINAL: u64 = 1;

/// One request under way.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct ModelRequest {
    log: Py<ModelLog>,
    state: GilCell<State>,
}

/// The mutable part of a request.
pub struct State {
    observer: Observer,
    ids: RequestIds,
    given: ModelInput,
    /// The outputs as JSON.
    outputs: Option<Vec<u8>>,
    usage: [Option<u64>; 2],
    /// The code of an error with which the model answered.
    error: Option<String>,
}

#[pymethods]
impl ModelRequest {
    /// The ids, for the context of the work on this request.
    #[getter]
    pub fn ids(&self, py: Python<'_>) -> PyRequestIds {
        PyRequestIds::new(self.state.with(py, |state| state.ids.clone()), true)
    }

    /// Take note of a response that a response sender is about to send.
    fn sending(&self, response: &Bound<'_, PyAny>, flags: u64) -> PyResult<()> {
        let (py, now) = (response.py(), now_monotonic_nano());
        let is_chunk = !response.is_none();
        if is_chunk {
            self.look(response)?;
        }
        let Requests { producer, settings, .. } = &self.shared().requests;
        self.state.with(py, |state| {
            state.observer.stream();
            state.observer.model_response(is_chunk, flags & FINAL == 0, now, settings);
            if is_chunk && state.observer.chunks(settings) == Chunks::Events {
                state.observer.emit_chunk(&state.ids, producer, None);
            }
        });
        Ok(())
    }

    /// Take note that the client has cancelled.
    fn cancelled(&self, py: Python<'_>) {
        self.state.with(py, |state| state.observer.disconnect());
    }

    /// Take note of the number of tokens that were read and generated.
    #[pyo3(signature = (*, input_tokens = None, output_tokens = None))]
    fn usage(&self, py: Python<'_>, input_tokens: Option<u64>, output_tokens: Option<u64>) {
        self.state.with(py, |state| {
            state.usage = [input_tokens.or(state.usage[0]), output_tokens.or(state.usage[1])];
        });
    }

    /// Emit the terminal record of an answered request; further calls do nothing.
    fn finish(&self, py: Python<'_>) {
        self.finish_with(py, Ending::Returned, now_monotonic_nano());
    }

    /// Emit the terminal record of a failed request; further calls do nothing. `texts` are type, message and stack of
    /// the exception, if one ended the request.
    #[pyo3(signature = (error_type, texts = None))]
    fn fail(&self, py: Python<'_>, error_type: &str, texts: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let now = now_monotonic_nano();
        if let Some(texts) = texts {
            let exception = exception_texts(texts)?;
            self.state.with(py, |state| state.observer.raise(exception));
        }
        self.finish_with(py, Ending::Raised(error_type), now);
        Ok(())
    }

    // There is no `__clear__`: the request's log gives up the requests under way.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.log)
    }
}

impl State {
    /// A request that has begun.
    pub const fn new(observer: Observer, ids: RequestIds, given: ModelInput) -> Self {
        Self { observer, ids, given, outputs: None, usage: [None; 2], error: None }
    }
}

impl ModelRequest {
    pub const fn new(log: Py<ModelLog>, state: State) -> Self {
        Self { log, state: GilCell::new(state) }
    }

    fn shared(&self) -> &ModelShared {
        &self.log.get().shared
    }

    /// Takes the response with which the model's call ended.
    pub fn respond(&self, response: &Bound<'_, PyAny>, now: u64) -> PyResult<()> {
        self.look(response)?;
        self.state.with(response.py(), |state| {
            state.observer.model_response(true, false, now, &self.shared().requests.settings);
        });
        Ok(())
    }

    /// Reads a response: its error, and the outputs if no earlier response had any.
    fn look(&self, response: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, methods) = (response.py(), &self.shared().methods);
        if methods.has_error.call1(py, (response,))?.is_truthy(py)? {
            let code = response.call_method0(intern!(py, "error"))?.call_method0(intern!(py, "code"))?;
            let error = error_name(&code)?;
            self.state.with(py, |state| {
                if error == CANCELLED {
                    state.observer.disconnect();
                }
                state.error = Some(error);
            });
        } else if let Some(tensors) = &self.shared().tensors
            && self.state.with(py, |state| state.outputs.is_none())
        {
            let outputs = tensors.json(methods.output_tensors.call1(py, (response,))?.bind(py))?;
            self.state.with(py, |state| state.outputs = Some(outputs));
        }
        Ok(())
    }

    pub fn finish_with(&self, py: Python<'_>, ending: Ending<'_>, now: u64) {
        // The list's reference lives until the end of this function, which uses the request.
        let this = std::ptr::from_ref(self);
        let _open = self.shared().open.with(py, |open| {
            let at = open.iter().rposition(|(_, request)| std::ptr::eq(request.get(), this));
            at.map(|at| open.swap_remove(at))
        });
        self.emit(py, ending, now);
    }

    pub fn emit(&self, py: Python<'_>, ending: Ending<'_>, now: u64) {
        let Requests { producer, settings, .. } = &self.shared().requests;
        self.state.with(py, |state| {
            let State { observer, ids, given, outputs, usage: [input, output], error } = state;
            let ending = match (ending, error.as_deref()) {
                (Ending::Returned, Some(error)) => Ending::Raised(error),
                (ending, _) => ending,
            };
            let is_reported = input.or(*output).is_some();
            let facts = ModelFacts {
                served: self.shared().served(given),
                tensors: Tensors {
                    parameters: given.parameters.as_ref().map(|parameters| Json(parameters.as_bytes())),
                    inputs: given.inputs.as_deref().map(Json),
                    outputs: outputs.as_deref().map(Json),
                },
                usage: is_reported.then_some(Usage { input: *input, output: *output, cached: None, source: "model" }),
            };
            observer.finish(ids, ending, &RequestSource::Model(facts), now, producer, settings);
        });
    }
}

/// Triton's code for a request that its client cancelled.
const CANCELLED: &str = "CANCELLED";

/// The name of a member of the enumeration `TritonError.Code`, which is not Python's.
fn error_name(code: &Bound<'_, PyAny>) -> PyResult<String> {
    match code.getattr_opt(intern!(code.py(), "name"))? {
        Some(name) => name.extract(),
        None => Ok(code.str()?.to_string()),
    }
}
