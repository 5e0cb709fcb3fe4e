//! The requests of a batch as they begin: what is read of each, the sampler's decision, the slot of the flight recorder.

use super::calls::Calls;
use super::request::State;
use super::{CorrelationId, ModelInput, ModelLog, ModelRequest, ModelShared, text};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use queue::record::Scratch;
use queue::system::now_monotonic_nano;
use request::added::Members;
use request::fields::Group;
use request::ids::{RequestIds, TraceState};
use request::in_flight::facts::BODY_HEAD_BYTES;
use request::outcome::Ending;
use request::requests::Start;

/// A batch whose requests begin.
pub struct Batch {
    /// The number of requests.
    size: u32,
    /// When it began, in monotonic nanoseconds.
    now: u64,
    /// Tensors may be read later than at the beginning.
    puts_off: bool,
    /// Those of a request are.
    pub has_put_off: bool,
}

impl Batch {
    pub fn new(puts_off: bool) -> Self {
        Self { size: 0, now: now_monotonic_nano(), puts_off, has_put_off: false }
    }

    /// Begins to observe the requests. Returns one object for each, as far as they can be read; None for one without a
    /// record.
    pub fn begin<'py>(&mut self, log: &Bound<'py, ModelLog>, requests: &Bound<'py, PyAny>) -> Bound<'py, PyList> {
        let (py, shared) = (requests.py(), &log.get().shared);
        let watch = shared.turns.next(py);
        let begun = PyList::empty(py);
        let resumed = match &shared.rounds {
            Some(rounds) => rounds.resume(shared, requests),
            None => Ok(Vec::new()),
        };
        let resumed = resumed.unwrap_or_else(|error| {
            shared.report_failure(py, Err(error));
            Vec::new()
        });
        let known = resumed.iter().flatten().count();
        let is_off = shared.service.runtime.leaves_out(self.now, || (requests.len().unwrap_or(0) - known) as u64);
        if is_off && known == 0 {
            return begun;
        }
        let done = self.begin_all(log, requests, &begun, resumed, is_off);
        watch.finish(py, self.now, &shared.requests.producer);
        shared.report_failure(py, done);
        begun
    }

    fn begin_all(
        &mut self,
        log: &Bound<'_, ModelLog>,
        requests: &Bound<'_, PyAny>,
        begun: &Bound<'_, PyList>,
        resumed: Vec<Option<Py<ModelRequest>>>,
        is_off: bool,
    ) -> PyResult<()> {
        self.size = u32::try_from(requests.len()?)?;
        let mut calls = Calls::new(requests.py());
        let mut resumed = resumed.into_iter();
        for (position, request) in (0..).zip(requests.try_iter()?) {
            begun.append(match resumed.next().flatten() {
                Some(resumed) => Some(resumed),
                None if is_off => None,
                None => self.begin_one(log, &mut calls, &request?, position)?,
            })?;
        }
        Ok(())
    }

    fn begin_one<'py>(
        &mut self,
        log: &Bound<'py, ModelLog>,
        calls: &mut Calls<'py>,
        request: &Bound<'py, PyAny>,
        position: u32,
    ) -> PyResult<Option<Py<ModelRequest>>> {
        let (py, key, this) = (request.py(), request.as_ptr() as usize, &log.get().shared);
        let (now, seen) = (self.now, this.look(calls, request)?);
        if this.rounds.is_some() && seen.correlation.is_none() {
            return Ok(None);
        }
        let mut state = this.open(seen, self, position);
        if let Some(tensors) = &this.tensors {
            if self.puts_off && state.is_left_out() {
                state.put_off(request);
                self.has_put_off = true;
            } else {
                let inputs = calls.call(&this.methods.inputs, request)?;
                state.set_inputs(tensors.inputs(calls, &inputs)?);
            }
        }
        let begun = Py::new(py, ModelRequest::new(log.clone().unbind(), state))?;
        if this.decoupled {
            ModelRequest::watch(begun.bind(py), request);
        }
        let before = this.open.with(py, |open| {
            let before = open.iter().position(|(open, _)| *open == key).map(|at| open.swap_remove(at));
            open.push((key, begun.clone_ref(py)));
            before
        });
        if let Some((_, before)) = before {
            // Triton's object is gone, so the request cannot be answered any more.
            before.get().emit(py, Ending::Returned, now);
        }
        Ok(Some(begun))
    }
}

impl ModelShared {
    /// Reads the data of a request, but not its tensors.
    #[inline]
    fn look<'py>(&self, calls: &mut Calls<'py>, request: &Bound<'py, PyAny>) -> PyResult<Seen> {
        let (py, methods) = (request.py(), &self.methods);
        let client = calls.call(&methods.request_id, request)?;
        let correlation = calls.call(&methods.correlation_id, request)?;
        let context = match &methods.trace {
            Some(trace) => Some(calls.call(trace, request)?.call_method0(intern!(py, "get_context"))?),
            None => None,
        };
        let given = calls.call(&methods.parameters, request)?;
        let (mut parent, mut state, parameters, headers) = match text(&given) {
            None | Some("" | "{}") => Given::default(),
            Some(_) => self
                .read_parameters
                .get(py)
                .map_or_else(|| Ok(Given::default()), |read| read.call1((&given,)).and_then(|given| given.extract()))?,
        };
        if let Some(context) = context.as_ref().and_then(text) {
            parent = member(context, "\"traceparent\"").map(str::to_owned).or(parent);
            state = member(context, "\"tracestate\"").map(str::to_owned).or(state);
        }
        let trace = self.ids.trace(parent.as_deref().map(str::as_bytes));
        let continued = trace.parent_span_id != [0; 8];
        let state = state.filter(|_| continued);
        let state = state.and_then(|state| TraceState::from_lines(std::iter::once(state.as_bytes())));
        let ids = RequestIds::new(trace, text(&client).map(str::as_bytes), state);
        let correlation = CorrelationId::of(&correlation);
        let (recorded, mut members) = (&self.requests.settings.recorded, Members::default());
        headers.iter().for_each(|(name, value)| recorded.take(name.as_bytes(), value.as_bytes(), &mut members));
        Ok(Seen { ids, correlation, parameters, members })
    }

    /// Decides on a request and gives it its slot of the flight recorder.
    #[inline]
    fn open(&self, seen: Seen, batch: &Batch, position: u32) -> State {
        let Seen { mut ids, correlation, parameters, members } = seen;
        let given = ModelInput { size: batch.size, position, correlation, inputs: None };
        let mut served = Scratch::new();
        self.served(&given).push(&mut served);
        let model = &served.as_slice()[..served.as_slice().len().min(BODY_HEAD_BYTES)];
        let path = self.path.as_bytes();
        let start =
            Start { now: batch.now, method: b"", path, prefix: 0, protocol_version: b"", client_address: b"", model };
        let mut observer = self.requests.begin(&mut ids, &start, |sampler| sampler.trusts(""));
        if !members.is_empty() {
            observer.identify(members);
        }
        let is_left_out = !observer.head().kept && !self.requests.runtime.is_active();
        State::new(observer, ids, given, parameters, (batch.now, is_left_out))
    }
}

/// `traceparent`, `tracestate` and the recorded parameters of a request; and those that are texts, if headers are recorded.
type Given = (Option<String>, Option<String>, Option<String>, Vec<(String, String)>);

/// The data that was read from a request.
struct Seen {
    ids: RequestIds,
    correlation: CorrelationId,
    parameters: Option<String>,
    /// Of the parameters, those that stand for recorded headers.
    members: Members,
}

/// The text of a member of a flat JSON object that needs no escapes.
fn member<'a>(object: &'a str, quoted: &str) -> Option<&'a str> {
    let rest = object[object.find(quoted)? + quoted.len()..].trim_ascii_start().strip_prefix(':')?;
    rest.trim_ascii_start().strip_prefix('"')?.split('"').next()
}
