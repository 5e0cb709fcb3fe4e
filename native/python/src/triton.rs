//! Terminal records for requests to a model of Triton's Python backend, as `model.py` sees them.
//!
//! The methods of Triton's own classes read the fields, and they take longer than everything else here. So a field is
//! read only if a record needs it, and no method is called that asks the server (`is_cancelled`). The sampler decides
//! before the tensors are read: those of a request that it leaves out are read at the end, if it is recorded after all.

use super::gil_cell::GilCell;
use super::held::Held;
use super::hot_path::Turns;
use super::service::PyService;
use super::settings::PySettings;
use super::value::utf8;
use ::request::fields::{Correlation, Exact, Served};
use ::request::ids::IdSource;
use ::request::outcome::Ending;
use ::request::requests::Requests;
use batch::Batch;
use calls::Calls;
use listen::service::Service;
use pyo3::exceptions::PyOSError;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyList;
use queue::system::now_monotonic_nano;
pub use request::ModelRequest;
use rounds::Rounds;
use std::collections::HashMap;
use std::sync::Arc;
use tensors::Tensors;

mod batch;
mod calls;
mod request;
mod rounds;
mod tensors;

/// The longest text among the values that are known at the beginning.
const MAX_TEXT_BYTES: usize = 96;

/// The requests of one model instance: configuration, and those that are under way.
#[pyclass(frozen, module = "inference_logging._native")]
pub struct ModelLog {
    shared: ModelShared,
}

/// The state that all requests of a model instance share.
pub struct ModelShared {
    requests: Requests,
    service: Arc<Service>,
    ids: IdSource,
    turns: Turns,
    /// Those of calls of `end`, each of which follows one of `begin`.
    ends: Turns,
    methods: Methods,
    /// Name, version and instance of the model.
    model: [String; 3],
    /// The requests' path for the sampler.
    path: String,
    /// None: tensors are not recorded.
    tensors: Option<Tensors>,
    /// `read(parameters)` takes the request's parameters as JSON. It returns `traceparent`, `tracestate`, the recorded
    /// parameters as JSON, and name and value of those that can be recorded headers.
    read_parameters: Held,
    /// `failed(error)`: something could not be read.
    failed: Held,
    /// `raised(begun, error)`: a call of the model raised.
    raised: Held,
    /// `returned(begun, responses)`: a call of the model returned neither responses nor None. It returns the value for
    /// Triton instead.
    returned: Held,
    /// `ended()`, after each batch.
    ended: Held,
    /// `set` and `reset` of the context variable for the ids of the request under way.
    context: (Held, Held),
    /// If a call returns None, response senders answer its requests.
    decoupled: bool,
    /// None: the model has no sequences, and each request comes once.
    rounds: Option<Rounds>,
    /// The open requests by the address of Triton's object, which its model holds as long as it can answer. They are
    /// few: a batch, or the streams that a model serves at once.
    open: GilCell<Vec<(usize, Py<ModelRequest>)>>,
}

/// Methods of Triton's classes, looked up once.
struct Methods {
    request_id: Py<PyAny>,
    correlation_id: Py<PyAny>,
    parameters: Py<PyAny>,
    /// None: the server makes no traces for a request to report.
    trace: Option<Py<PyAny>>,
    inputs: Py<PyAny>,
    has_error: Py<PyAny>,
    output_tensors: Py<PyAny>,
}

#[pymethods]
impl ModelLog {
    #[new]
    #[pyo3(signature = (service, settings, *, classes, model, path, datatypes, only_input, traces, read_parameters, failed, raised, returned, ended, context, decoupled, sequences))]
    #[expect(
        clippy::too_many_arguments,
        reason = "keyword-only; what Triton says of the model, and functions of the package"
    )]
    fn new(
        service: &PyService,
        settings: &PySettings,
        classes: (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>),
        model: (String, String, String),
        path: String,
        datatypes: HashMap<String, (String, u64)>,
        only_input: Option<String>,
        traces: bool,
        read_parameters: Py<PyAny>,
        failed: Py<PyAny>,
        raised: Py<PyAny>,
        returned: Py<PyAny>,
        ended: Py<PyAny>,
        context: &Bound<'_, PyAny>,
        decoupled: bool,
        sequences: Option<usize>,
    ) -> PyResult<Self> {
        let (service, parameters) = (service.service(), settings.of());
        let settings = parameters.model_observer(&service).map_err(PyOSError::new_err)?;
        let tensors =
            parameters.values.triton_tensors.then(|| Tensors::of(&classes.2, datatypes, only_input)).transpose()?;
        Ok(Self {
            shared: ModelShared {
                requests: service.requests(settings),
                service,
                ids: IdSource::new()?,
                turns: Turns::new(),
                ends: Turns::new(),
                methods: Methods::of(&classes.0, &classes.1, traces)?,
                tensors,
                model: [model.0, model.1, model.2].map(|text| cut(&text).to_owned()),
                path,
                read_parameters: Held::new(read_parameters),
                failed: Held::new(failed),
                raised: Held::new(raised),
                returned: Held::new(returned),
                ended: Held::maybe(parameters.values.triton_metrics.then_some(ended)),
                context: (Held::new(context.getattr("set")?.unbind()), Held::new(context.getattr("reset")?.unbind())),
                decoupled,
                rounds: sequences.map(Rounds::new),
                open: GilCell::new(Vec::new()),
            },
        })
    }

    /// Begin to observe the requests of a batch. Return one object for each, or none if they cannot be read; None in
    /// place of one that only pads a batch of sequences.
    fn begin<'py>(this: &Bound<'py, Self>, requests: &Bound<'py, PyAny>) -> Bound<'py, PyList> {
        // Without `serve` nobody says until when the requests can be read.
        Batch::new(false).begin(this, requests)
    }

    /// Take note of the responses of a batch; None for those that a response sender sends; None for all of them in a
    /// decoupled model.
    fn end(&self, begun: &Bound<'_, PyList>, responses: &Bound<'_, PyAny>) {
        let (py, now) = (begun.py(), now_monotonic_nano());
        if !(begun.is_empty() || responses.is_none() && self.shared.decoupled) {
            let watch = self.shared.ends.next(py);
            let done = ModelShared::end_all(begun, responses, now);
            watch.finish(py, now, &self.shared.requests.producer);
            self.shared.report_failure(py, done);
        }
        if let Some(ended) = self.shared.ended.get(py) {
            self.shared.report_failure(py, ended.call0().map(drop));
        }
    }

    /// Call `execute(model, requests)` with its requests on record; return its result or raise its exception.
    fn serve<'py>(
        this: &Bound<'py, Self>,
        execute: &Bound<'py, PyAny>,
        model: &Bound<'py, PyAny>,
        requests: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, log) = (execute.py(), this.get());
        let shared = &log.shared;
        let mut batch = Batch::new(true);
        let begun = batch.begin(this, requests);
        let entered = shared.enter(&begun);
        let done = execute.call1((model, requests)).and_then(|responses| {
            if responses.is_none() || responses.is_exact_instance_of::<PyList>() {
                log.end(&begun, &responses);
                return Ok(responses);
            }
            shared.returned.call1(py, (&begun, responses))
        });
        if let Some(token) = entered {
            shared.context.1.call1(py, (token,))?;
        }
        if let Err(error) = &done {
            let reported = shared.raised.call1(py, (&begun, error.clone_ref(py).into_value(py)));
            shared.report_failure(py, reported.map(drop));
        }
        if batch.has_put_off {
            // What ends later cannot read its request any more.
            for request in begun.iter().filter_map(|request| request.cast_into::<ModelRequest>().ok()) {
                request.get().read_inputs(py, true);
            }
        }
        done
    }

    /// Return the observed request for a request of Triton's, or None once it has ended.
    fn find(&self, request: &Bound<'_, PyAny>) -> Option<Py<ModelRequest>> {
        let (py, key) = (request.py(), request.as_ptr() as usize);
        self.shared
            .open
            .with(py, |open| open.iter().rev().find(|(open, _)| *open == key).map(|(_, request)| request.clone_ref(py)))
    }

    /// End every request that is still open: the model is unloaded, so nobody answers it any more.
    fn close(&self, py: Python<'_>) {
        let (shared, now) = (&self.shared, now_monotonic_nano());
        if let Some(rounds) = &shared.rounds {
            rounds.end_all(shared, py);
        }
        for (_, request) in shared.open.with(py, std::mem::take) {
            request.get().finish_with(py, Ending::Returned, now);
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let shared = &self.shared;
        if let Some(rounds) = &shared.rounds {
            rounds.visit(&visit)?;
        }
        shared.methods.visit(&visit)?;
        if let Some(tensors) = &shared.tensors {
            tensors.visit(&visit)?;
        }
        shared.callbacks().iter().try_for_each(|callback| callback.visit(&visit))?;
        // SAFETY: the collector holds the GIL, and reads only.
        unsafe { shared.open.peek() }.iter().try_for_each(|(_, request)| visit.call(request))
    }

    fn __clear__(&self, py: Python<'_>) {
        self.shared.callbacks().iter().for_each(|callback| callback.clear(py));
        drop(self.shared.open.with(py, std::mem::take));
        if let Some(rounds) = &self.shared.rounds {
            rounds.clear(py);
        }
    }
}

impl ModelShared {
    /// The Python callbacks.
    fn callbacks(&self) -> [&Held; 7] {
        let Self { read_parameters, failed, raised, returned, ended, context: (set, reset), .. } = self;
        [read_parameters, failed, raised, returned, ended, set, reset]
    }

    /// If a batch has one request, makes its ids those of the context.
    fn enter<'py>(&self, begun: &Bound<'py, PyList>) -> Option<Bound<'py, PyAny>> {
        let py = begun.py();
        let only = (begun.len() == 1).then(|| begun.get_item(0)).and_then(Result::ok)?;
        let ids = only.cast::<ModelRequest>().ok()?.get().ids(py).ok()?;
        self.context.0.call1(py, (ids,)).ok()
    }

    /// Ends the requests of a batch in any case: a request that cannot be read any more has ended as well.
    fn end_all(begun: &Bound<'_, PyList>, responses: &Bound<'_, PyAny>, now: u64) -> PyResult<()> {
        let (mut calls, mut responses) = (Calls::new(begun.py()), responses.try_iter());
        let mut done = Ok(());
        for request in begun.iter() {
            let response = responses.as_mut().ok().and_then(Iterator::next).and_then(Result::ok);
            // None: it only pads the batch.
            let Ok(request) = request.cast::<ModelRequest>() else { continue };
            let request = request.get();
            let ended = match response {
                Some(response) if response.is_none() => continue,
                Some(response) => request.respond(&mut calls, &response, now),
                None => Ok(()),
            };
            // This call is idempotent.
            request.finish_with(begun.py(), Ending::Returned, now);
            done = done.and(ended);
        }
        done
    }

    /// Reports an error that belongs to no single request.
    fn report_failure(&self, py: Python<'_>, done: PyResult<()>) {
        if let Err(error) = done
            && let Err(error) = self.failed.call1(py, (error.into_value(py),))
        {
            error.write_unraisable(py, None);
        }
    }

    /// The model, as a request's record names it.
    fn served<'a>(&'a self, given: &'a ModelInput) -> Served<'a> {
        let [name, version, instance] = self.model.each_ref().map(|text| Exact(text.as_str()));
        let correlation = match &given.correlation {
            CorrelationId::Number(number) => Correlation::Number(*number),
            CorrelationId::Name(name) => Correlation::Name(name),
        };
        Served {
            name,
            version,
            instance,
            batch_size: given.size.into(),
            batch_position: given.position.into(),
            correlation,
        }
    }
}

/// What a record shows of its request.
pub struct ModelInput {
    /// The number of requests in the batch.
    size: u32,
    /// The request's place in the batch.
    position: u32,
    correlation: CorrelationId,
    /// JSON.
    pub inputs: Option<Vec<u8>>,
}

#[derive(PartialEq, Eq)]
enum CorrelationId {
    Number(u64),
    Name(Box<str>),
}

impl CorrelationId {
    fn of(object: &Bound<'_, PyAny>) -> Self {
        match text(object) {
            Some(name) => Self::Name(cut(name).into()),
            None => Self::Number(number(object).unwrap_or(0)),
        }
    }

    /// Whether the request belongs to no sequence.
    fn is_none(&self) -> bool {
        match self {
            Self::Number(number) => *number == 0,
            Self::Name(name) => name.is_empty(),
        }
    }
}

impl Methods {
    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Self { request_id, correlation_id, parameters, trace, inputs, has_error, output_tensors } = self;
        visit.call(trace)?;
        [request_id, correlation_id, parameters, inputs, has_error, output_tensors]
            .into_iter()
            .try_for_each(|method| visit.call(method))
    }

    fn of(request: &Bound<'_, PyAny>, response: &Bound<'_, PyAny>, traces: bool) -> PyResult<Self> {
        let method = |class: &Bound<'_, PyAny>, name| class.getattr(name).map(Bound::unbind);
        Ok(Self {
            request_id: method(request, "request_id")?,
            correlation_id: method(request, "correlation_id")?,
            parameters: method(request, "parameters")?,
            trace: traces.then(|| method(request, "trace")).transpose()?,
            inputs: method(request, "inputs")?,
            has_error: method(response, "has_error")?,
            output_tensors: method(response, "output_tensors")?,
        })
    }
}

/// The text of a `str`; None for anything else.
fn text<'a>(object: &'a Bound<'_, PyAny>) -> Option<&'a str> {
    // SAFETY: a live object, whose kind is checked first; the text lives as long as it.
    unsafe { if ffi::PyUnicode_Check(object.as_ptr()) != 0 { utf8(object.as_ptr()) } else { None } }
}

/// The value of an `int`, or of what has an `__index__`, if it fits.
fn number(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    // SAFETY: a live object, and the GIL is held.
    let number = unsafe { ffi::PyLong_AsUnsignedLongLong(object.as_ptr()) };
    if number == u64::MAX && PyErr::take(object.py()).is_some() { object.extract() } else { Ok(number) }
}

fn cut(text: &str) -> &str {
    let end = (0..=MAX_TEXT_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}
