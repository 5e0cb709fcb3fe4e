//! One request to a model: its responses as they pass, and its terminal record.

use super::calls::Calls;
use super::{ModelInput, ModelLog, ModelShared};
use crate::gil_cell::GilCell;
use crate::middleware::exception_texts;
use crate::request_ids::PyRequestIds;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyWeakrefReference;
use queue::system::now_monotonic_nano;
use request::fields::{Json, Tensors, Usage};
use request::ids::RequestIds;
use request::observer::{Chunks, ModelFacts, Observer, ObserverSettings, RequestSource};
use request::outcome::Ending;
use request::requests::Requests;

/// `TRITONSERVER_RESPONSE_COMPLETE_FINAL`
const FINAL: u64 = 1;

/// One request under way.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct ModelRequest {
    log: Py<ModelLog>,
    pub(super) state: GilCell<State>,
}

/// The mutable part of a request.
pub struct State {
    pub(super) answerable: Answerable,
    observer: Observer,
    ids: RequestIds,
    /// The ids as the application has them, if it has asked: what it sets of the request is there.
    object: Option<Py<PyRequestIds>>,
    pub(super) given: ModelInput,
    /// Monotonic nanoseconds.
    started: u64,
    /// The sampler leaves the request out, unless it fails, is slow, or the client cancels.
    is_left_out: bool,
    /// The client has cancelled.
    is_cancelled: bool,
    /// Triton's request, whose inputs are not read yet. Only while the model's call with it is under way.
    unread: Option<Py<PyAny>>,
    /// The outputs as JSON.
    outputs: Option<Vec<u8>>,
    /// None: nothing of it. Python's own allocator has no room for objects of more than 512 bytes.
    rare: Option<Box<Rare>>,
}

/// What most requests do not have.
#[derive(Default)]
struct Rare {
    /// When the request was rescheduled, in monotonic nanoseconds; None: it is in a round.
    rescheduled: Option<u64>,
    /// The recorded parameters as JSON.
    parameters: Option<String>,
    usage: [Option<u64>; 2],
    /// The code of an error with which the model answered.
    error: Option<String>,
}

#[pymethods]
impl ModelRequest {
    /// The ids, for the context of the work on this request.
    #[getter]
    pub fn ids(&self, py: Python<'_>) -> PyResult<Py<PyRequestIds>> {
        if let Some(known) = self.state.with(py, |state| state.object.as_ref().map(|object| object.clone_ref(py))) {
            return Ok(known);
        }
        let object = Py::new(py, PyRequestIds::new(self.state.with(py, |state| state.ids.clone()), true))?;
        self.state.with(py, |state| state.object = Some(object.clone_ref(py)));
        Ok(object)
    }

    /// Take note of a response that a response sender is about to send.
    fn sending(&self, response: &Bound<'_, PyAny>, flags: u64) -> PyResult<()> {
        let (py, now) = (response.py(), now_monotonic_nano());
        let is_chunk = !response.is_none() && self.look(&mut Calls::new(py), response, true)?;
        let Requests { producer, settings, .. } = &self.shared().requests;
        self.state.with(py, |state| {
            state.observer.stream();
            state.observer.model_response(is_chunk, flags & FINAL == 0, now, settings);
            if is_chunk && state.observer.chunks(settings) == Chunks::Events {
                state.observer.emit_chunks(&state.ids, producer, 1, None);
            }
        });
        Ok(())
    }

    /// Take note that the model asks Triton for another round of the request, or takes that back.
    pub fn reschedule(&self, py: Python<'_>, is_rescheduled: bool) {
        let now = now_monotonic_nano();
        self.state.with(py, |state| {
            if is_rescheduled || state.rescheduled().is_some() {
                state.rare().rescheduled = is_rescheduled.then_some(now);
            }
        });
    }

    /// Take note that the model has a response sender.
    fn sender_made(&self, py: Python<'_>) {
        self.state.with(py, |state| state.answerable.senders += 1);
    }

    /// Take note that a response sender is gone. Without one, and without Triton's request, nobody answers any more.
    fn sender_gone(&self, py: Python<'_>) {
        self.state.with(py, |state| state.answerable.senders = state.answerable.senders.saturating_sub(1));
        self.finish_unanswerable(py);
    }

    /// Take note that Triton's request is gone; as `sender_gone`.
    fn request_gone(&self, py: Python<'_>, _weak: &Bound<'_, PyAny>) {
        self.state.with(py, |state| state.answerable.is_gone = true);
        self.finish_unanswerable(py);
    }

    /// Take note that the client has cancelled.
    fn cancelled(&self, py: Python<'_>) {
        self.state.with(py, State::cancel);
    }

    /// Take note of the number of tokens that were read and generated.
    #[pyo3(signature = (*, input_tokens = None, output_tokens = None))]
    fn usage(&self, py: Python<'_>, input_tokens: Option<u64>, output_tokens: Option<u64>) {
        self.state.with(py, |state| {
            let Rare { usage: [input, output], .. } = state.rare();
            (*input, *output) = (input_tokens.or(*input), output_tokens.or(*output));
        });
    }

    /// Emit the terminal record of an answered request; further calls do nothing.
    pub fn finish(&self, py: Python<'_>) {
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

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.log)?;
        // SAFETY: the collector holds the GIL, and reads only.
        let state = unsafe { self.state.peek() };
        visit.call(&state.answerable.watch)?;
        visit.call(&state.unread)
    }

    // The request's log stays: it gives up the requests under way.
    fn __clear__(&self, py: Python<'_>) {
        drop(self.state.with(py, |state| (state.unread.take(), state.answerable.watch.take())));
    }
}

impl State {
    /// A request that has begun.
    pub fn new(
        observer: Observer,
        ids: RequestIds,
        given: ModelInput,
        parameters: Option<String>,
        (started, is_left_out): (u64, bool),
    ) -> Self {
        Self {
            answerable: Answerable::default(),
            observer,
            ids,
            object: None,
            given,
            started,
            is_left_out,
            is_cancelled: false,
            unread: None,
            outputs: None,
            rare: parameters.map(|parameters| Box::new(Rare { parameters: Some(parameters), ..Rare::default() })),
        }
    }

    /// Whether the sampler leaves the request out, if nothing happens.
    pub const fn is_left_out(&self) -> bool {
        self.is_left_out
    }

    /// Takes the inputs as JSON.
    pub fn set_inputs(&mut self, inputs: Vec<u8>) {
        self.given.inputs = Some(inputs);
    }

    /// Leaves the inputs of `request` for [`ModelRequest::read_inputs`].
    pub fn put_off(&mut self, request: &Bound<'_, PyAny>) {
        self.unread = Some(request.clone().unbind());
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    fn error(&self) -> Option<&str> {
        self.rare.as_ref()?.error.as_deref()
    }

    pub(super) fn rescheduled(&self) -> Option<u64> {
        self.rare.as_ref()?.rescheduled
    }

    pub(super) fn cancel(&mut self) {
        self.is_cancelled = true;
        self.observer.disconnect();
    }

    /// Whether the request is on record if it ends well at `now`. May say so of one that is not.
    fn is_wanted(&self, now: u64, settings: &ObserverSettings) -> bool {
        let nano = now.saturating_sub(self.started);
        let is_kept = || settings.sampler.tail(self.observer.head(), false, false, nano, false).is_some();
        !self.is_left_out || self.is_cancelled || is_kept()
    }

    /// The same with its ending.
    fn is_recorded(&self, ending: Ending<'_>, now: u64, settings: &ObserverSettings) -> bool {
        let is_good = ending == Ending::Returned && self.error().is_none() && self.observer.is_complete();
        !is_good || self.is_wanted(now, settings)
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
    pub fn respond<'py>(&self, calls: &mut Calls<'py>, response: &Bound<'py, PyAny>, now: u64) -> PyResult<()> {
        let (py, settings) = (response.py(), &self.shared().requests.settings);
        let is_wanted = self.state.with(py, |state| state.is_wanted(now, settings));
        self.look(calls, response, is_wanted)?;
        self.state.with(py, |state| state.observer.model_response(true, false, now, settings));
        Ok(())
    }

    /// Reads a response: its error, and the outputs if they are wanted and no earlier response had any. Returns whether it
    /// answers, which an error does not.
    fn look<'py>(&self, calls: &mut Calls<'py>, response: &Bound<'py, PyAny>, is_wanted: bool) -> PyResult<bool> {
        let (py, methods) = (response.py(), &self.shared().methods);
        if calls.call(&methods.has_error, response)?.is_truthy()? {
            let code = response.call_method0(intern!(py, "error"))?.call_method0(intern!(py, "code"))?;
            let error = error_name(&code)?;
            self.state.with(py, |state| {
                if error == CANCELLED {
                    state.cancel();
                }
                state.rare().error = Some(error);
            });
            return Ok(false);
        }
        if let Some(tensors) = &self.shared().tensors
            && is_wanted
            && self.state.with(py, |state| state.outputs.is_none())
        {
            let outputs = calls.call(&methods.output_tensors, response)?;
            let outputs = tensors.outputs(calls, &outputs)?;
            self.state.with(py, |state| state.outputs = Some(outputs));
        }
        Ok(true)
    }

    /// Reads the inputs that were put off, if the record needs them; in any case gives Triton's request up.
    pub fn read_inputs(&self, py: Python<'_>, is_recorded: bool) {
        let Some(request) = self.state.with(py, |state| state.unread.take()) else { return };
        let Some(tensors) = self.shared().tensors.as_ref().filter(|_| is_recorded) else { return };
        let (request, mut calls) = (request.into_bound(py), Calls::new(py));
        let inputs = calls.call(&self.shared().methods.inputs, &request);
        match inputs.and_then(|inputs| tensors.inputs(&mut calls, &inputs)) {
            Ok(inputs) => self.state.with(py, |state| state.set_inputs(inputs)),
            Err(error) => self.shared().report_failure(py, Err(error)),
        }
    }

    pub fn finish_with(&self, py: Python<'_>, ending: Ending<'_>, now: u64) {
        let settings = &self.shared().requests.settings;
        let unread =
            self.state.with(py, |state| state.unread.is_some().then(|| state.is_recorded(ending, now, settings)));
        if let Some(is_recorded) = unread {
            self.read_inputs(py, is_recorded);
        }
        // The list's reference lives until the end of this function, which uses the request.
        let this = std::ptr::from_ref(self);
        let _open = self.shared().open.with(py, |open| {
            let at = open.iter().rposition(|(_, request)| std::ptr::eq(request.get(), this));
            at.map(|at| open.swap_remove(at))
        });
        drop(self.state.with(py, |state| state.answerable.watch.take()));
        self.emit(py, ending, now);
    }

    pub fn emit(&self, py: Python<'_>, ending: Ending<'_>, now: u64) {
        self.take_set(py);
        let Requests { producer, settings, .. } = &self.shared().requests;
        self.state.with(py, |state| {
            let State { observer, ids, given, outputs, rare, .. } = state;
            let rare = rare.as_deref();
            let [input, output] = rare.map_or([None; 2], |rare| rare.usage);
            let ending = match (ending, rare.and_then(|rare| rare.error.as_deref())) {
                (Ending::Returned, Some(error)) => Ending::Raised(error),
                (ending, _) => ending,
            };
            let is_reported = input.or(output).is_some();
            let facts = ModelFacts {
                served: self.shared().served(given),
                tensors: Tensors {
                    parameters: rare
                        .and_then(|rare| rare.parameters.as_ref())
                        .map(|parameters| Json(parameters.as_bytes())),
                    inputs: given.inputs.as_deref().map(Json),
                    outputs: outputs.as_deref().map(Json),
                },
                usage: is_reported.then_some(Usage { input, output, cached: None, source: "model" }),
            };
            observer.finish(ids, ending, &RequestSource::Model(facts), now, producer, settings);
        });
    }
}

impl ModelRequest {
    /// Takes over what the application has set and asked for.
    fn take_set(&self, py: Python<'_>) {
        let object = self.state.with(py, |state| state.object.as_ref().map(|object| object.clone_ref(py)));
        let Some(object) = object else { return };
        let ids = object.get();
        ids.end();
        if ids.is_special() {
            let (is_forced, fields) = (ids.is_forced(), ids.take_fields(py));
            self.state.with(py, |state| {
                if is_forced {
                    state.observer.force();
                }
                if let Some(fields) = fields {
                    state.observer.add(fields);
                }
            });
        }
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
