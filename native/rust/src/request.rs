//! A request under way: the same observer as behind the Python middleware.

use crate::event::{Event, Value, emit};
use crate::log::Log;
#[cfg(feature = "tower")]
use crate::websocket::{Connection, ConnectionStart};
use queue::record::Scratch;
use queue::system::now_monotonic_nano;
#[cfg(feature = "tower")]
use request::added::AddedFields;
use request::added::Members;
use request::capture::Content;
use request::fields::{Correlation, Exact, Group, Json, Served, Tensors};
use request::ids::{RequestIds, TraceState};
use request::in_flight::facts::BODY_HEAD_BYTES;
use request::observer::{Chunks, ModelFacts, Observer, RequestSource, RequestTexts};
use request::outcome::{Ending, RpcStatus};
use request::requests::Start;

/// What is known of a request at its beginning. A text that is not known is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestStart<'a> {
    pub method: &'a str,
    pub path: &'a [u8],
    /// The path's template.
    pub route: &'a str,
    /// Of HTTP: `1.1`.
    pub protocol_version: &'a str,
    pub client_address: &'a str,
    /// The header of this name, unless there are several.
    pub traceparent: Option<&'a [u8]>,
    /// The headers of this name.
    pub tracestate: &'a [&'a [u8]],
    /// The header `X-Request-Id`.
    pub request_id: Option<&'a [u8]>,
    /// Name and value of each header, of which `record_headers` are recorded; [`Log::records_headers`] says whether there
    /// are any. None of them counts with a model.
    pub headers: &'a [(&'a [u8], &'a [u8])],
    /// The content of the request's body. Of a JSON body the model and its parameters are recorded.
    pub content: Option<Content<'a>>,
    /// The client forbids storing texts of its request.
    pub is_private: bool,
    /// The model that serves the request, if it is none of a server. Of the members before, only the path and the headers
    /// count with it: without a path, the sampler sees `/v2/models/NAME/versions/VERSION/infer`.
    pub model: Option<&'a Model<'a>>,
}

/// A request under way. Dropped without an end, it ends as one that the server has given up.
pub struct Request {
    log: Log,
    observer: Observer,
    ids: RequestIds,
    method: Box<str>,
    path: Box<[u8]>,
    route: Box<str>,
    protocol_version: Box<str>,
    client_address: Box<str>,
    model: Option<Box<ServedModel>>,
    /// Those that are recorded.
    headers: Members,
    /// The generation of processes in which the request began.
    generation: u32,
}

impl Log {
    /// Whether the configuration names headers that are recorded.
    #[must_use]
    pub fn records_headers(self) -> bool {
        self.requests.settings.recorded.has_headers()
    }

    /// Begins a request: ids, the sampler's decision, and a slot of the flight recorder, so that a request that the
    /// process does not survive is on record. None if logging is switched off.
    #[must_use]
    pub fn begin(self, start: &RequestStart<'_>) -> Option<Request> {
        let now = now_monotonic_nano();
        if self.service.runtime.leaves_out(now, || 1) {
            return None;
        }
        let trace = self.ids.trace(start.traceparent);
        let is_continued = trace.parent_span_id != [0; 8];
        let state = if is_continued { TraceState::from_lines(start.tracestate.iter().copied()) } else { None };
        let mut ids = RequestIds::new(trace, start.request_id, state);
        let model = start.model.map(|model| Box::new(ServedModel::new(model)));
        let model_path = model.as_ref().filter(|_| start.path.is_empty()).map(|model| model.path());
        let mut served = Scratch::new();
        if let Some(model) = &model {
            model.served().push(&mut served);
        }
        let begun = Start {
            now,
            method: start.method.as_bytes(),
            path: model_path.as_ref().map_or(start.path, String::as_bytes),
            prefix: 0,
            protocol_version: start.protocol_version.as_bytes(),
            client_address: start.client_address.as_bytes(),
            model: &served.as_slice()[..served.as_slice().len().min(BODY_HEAD_BYTES)],
        };
        let settings = &self.requests.settings;
        let mut observer = self.requests.begin(&mut ids, &begun, |sampler| sampler.trusts(start.client_address));
        let headers = if model.is_none() { settings.recorded.of_headers(start.headers) } else { Members::default() };
        if !headers.is_empty() {
            observer.identify(headers.clone());
        }
        let content = start.content.filter(|_| model.is_none());
        if let Some(content) = content.filter(|content| content.has_facts() || settings.texts.is_on()) {
            observer.capture_request(content, start.is_private, settings);
        }
        if let Some(in_flight) = observer.in_flight() {
            in_flight.settle(&mut ids, "", start.route);
        }
        Some(Request {
            log: self,
            observer,
            ids,
            method: start.method.into(),
            path: start.path.into(),
            route: start.route.into(),
            protocol_version: start.protocol_version.into(),
            client_address: start.client_address.into(),
            model,
            headers,
            generation: self.requests.producer.generation(),
        })
    }
}

impl Request {
    /// Its ids.
    #[must_use]
    pub const fn ids(&self) -> &RequestIds {
        &self.ids
    }

    /// The log of its records.
    #[must_use]
    pub const fn log(&self) -> Log {
        self.log
    }

    /// Takes note of a header of the request, in addition to those that it began with. Of a request that a model serves none
    /// is recorded.
    pub fn header(&mut self, name: &[u8], value: &[u8]) {
        let headers = self.log.requests.settings.recorded.of_headers(&[(name, value)]);
        if self.model.is_none() && !headers.is_empty() {
            self.headers.add_all(headers.as_bytes());
            self.observer.identify(self.headers.clone());
        }
    }

    /// Takes note of the next bytes of the request's body.
    pub fn body(&mut self, bytes: &[u8]) {
        self.observer.request_bytes(bytes);
    }

    /// Takes note of the beginning of the answer: its status, and the content of its body, for which `content` is asked if
    /// it matters.
    pub fn answer<'a>(&mut self, status: u16, content: impl FnOnce() -> Option<Content<'a>>) {
        let settings = &self.log.requests.settings;
        let content = if self.observer.wants_content_type(settings) { content() } else { None };
        self.observer.response_start(status, content, settings);
    }

    /// Takes note of the next part of the answer's body. `more`: others follow. An answer without a body ends with an empty
    /// part. A model's answer in one piece needs no call.
    pub fn chunk(&mut self, bytes: &[u8], more: bool) {
        let (settings, now) = (&self.log.requests.settings, now_monotonic_nano());
        let chunks = match &mut self.model {
            None => self.observer.response_body(bytes, more, now, settings),
            Some(model) => {
                let is_chunk = more || !bytes.is_empty();
                model.is_streamed |= more;
                self.observer.model_response(is_chunk, more, now, settings);
                u32::from(is_chunk)
            }
        };
        if chunks > 0 && self.observer.chunks(settings) == Chunks::Events && !self.is_inherited() {
            let bytes = self.model.is_none().then_some(bytes.len());
            self.observer.emit_chunks(&self.ids, &self.log.service.producer, chunks, bytes);
        }
    }

    /// Takes note of the inputs of a request that a model serves. Their list has at most 1,280 bytes as JSON; what is
    /// beyond is left out.
    pub fn inputs<'a>(&mut self, tensors: impl IntoIterator<Item = Tensor<'a>>) {
        if let Some(model) = &mut self.model {
            model.inputs = Some(list(tensors));
        }
    }

    /// As [`Request::inputs`], of the outputs.
    pub fn outputs<'a>(&mut self, tensors: impl IntoIterator<Item = Tensor<'a>>) {
        if let Some(model) = &mut self.model {
            model.outputs = Some(list(tensors));
        }
    }

    /// Takes note of a part of the answer's body that ends no chunk. `more`: others follow.
    pub fn part(&mut self, bytes: &[u8], more: bool) {
        self.observer.response_part(bytes, more, now_monotonic_nano());
    }

    /// The request is a call over gRPC, with this status as far as it is known.
    pub fn call(&mut self, status: RpcStatus) {
        self.observer.call(status);
    }

    /// Whether the whole answer has passed.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.observer.is_complete()
    }

    /// Takes note that the client is gone before the whole answer.
    pub fn disconnect(&mut self) {
        self.observer.disconnect();
    }

    /// As [`Log::emit`], with the ids of the request where the event is registered with `in_request`.
    pub fn emit(&self, event: Event, severity: u8, values: &[Value<'_>]) -> bool {
        emit(&self.log, Some(&self.ids), event, severity, values)
    }

    /// Ends without a record, since the server has agreed to a WebSocket, and begins the connection's.
    #[cfg(feature = "tower")]
    pub(crate) fn into_connection(mut self, subprotocol: &str) -> Connection {
        let started = self.observer.discard();
        let start = ConnectionStart {
            path: String::from_utf8_lossy(&self.path).into_owned(),
            protocol_version: "1.1",
            client_address: self.client_address.to_string(),
        };
        let added = AddedFields::of(std::mem::take(&mut self.headers));
        let mut connection = Connection::new(self.log, self.ids.clone(), start, added, started);
        connection.answer(101, subprotocol);
        connection
    }

    /// Ends the request with its record.
    pub fn end(mut self, ending: Ending<'_>) {
        self.finish(ending);
    }

    /// Ends the request with its record; a second call does nothing.
    pub(crate) fn finish(&mut self, ending: Ending<'_>) {
        // A forked child leaves the record to its parent.
        if self.is_inherited() {
            return;
        }
        let now = now_monotonic_nano();
        let (producer, settings) = (&self.log.service.producer, &self.log.requests.settings);
        if let Some(model) = &self.model {
            if ending == Ending::Returned && !model.is_streamed {
                // A call that returns has answered; only of a stream a part can be missing.
                self.observer.model_response(true, false, now, settings);
            }
            let source = RequestSource::Model(model.facts());
            return self.observer.finish(&self.ids, ending, &source, now, producer, settings);
        }
        if ending == Ending::Returned && self.observer.finish_plain(&self.ids, now, producer, settings) {
            return;
        }
        let texts = RequestTexts {
            method: &self.method,
            path: &self.path,
            route_prefix: "",
            route: &self.route,
            protocol_version: &self.protocol_version,
            client_address: &self.client_address,
        };
        let source = RequestSource::Http { texts, engine: None };
        self.observer.finish(&self.ids, ending, &source, now, producer, settings);
    }

    fn is_inherited(&self) -> bool {
        self.generation != self.log.requests.producer.generation()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let is_panic = std::thread::panicking();
        self.finish(if is_panic { Ending::Raised("panic") } else { Ending::Cancelled("") });
    }
}

// A request that a model serves: which model, and the tensors that it takes and returns. Its record is the one of a
// request to a model of Triton.

/// The longest text among those that name the model; the slot of the flight recorder has room for all of them.
const MAX_NAME_BYTES: usize = 96;
/// The longest list of tensors as JSON; tensors beyond that are left out.
const MAX_LIST_BYTES: usize = 1280;

/// The model that serves a request. A text that is not known is empty; each is cut to 96 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Model<'a> {
    pub name: &'a str,
    pub version: &'a str,
    /// The session or execution context that runs it.
    pub instance: &'a str,
    /// Requests of the batch; 0 counts as 1.
    pub batch_size: u64,
    /// Place in the batch, from 0.
    pub batch_position: u64,
    /// The id of a sequence of requests.
    pub correlation_id: &'a str,
}

/// What is recorded of a tensor. Its content is not.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    pub name: &'a str,
    /// The type of an element, such as `FP32`.
    pub datatype: &'a str,
    /// The size of each dimension.
    pub shape: &'a [i64],
    /// The bytes of all elements.
    pub bytes: u64,
}

/// What a request keeps of its model until its end.
pub(crate) struct ServedModel {
    name: Box<str>,
    version: Box<str>,
    instance: Box<str>,
    correlation_id: Box<str>,
    batch_size: u64,
    batch_position: u64,
    /// JSON.
    pub inputs: Option<Vec<u8>>,
    /// JSON.
    pub outputs: Option<Vec<u8>>,
    /// The answer has parts.
    pub is_streamed: bool,
}

impl ServedModel {
    pub fn new(model: &Model<'_>) -> Self {
        let [name, version, instance, correlation_id] =
            [model.name, model.version, model.instance, model.correlation_id].map(|text| cut(text).into());
        let (batch_size, batch_position) = (model.batch_size.max(1), model.batch_position);
        let (inputs, outputs) = (None, None);
        Self {
            name,
            version,
            instance,
            correlation_id,
            batch_size,
            batch_position,
            inputs,
            outputs,
            is_streamed: false,
        }
    }

    /// The path by which the sampler knows the model, as Triton has it.
    pub fn path(&self) -> String {
        format!("/v2/models/{}/versions/{}/infer", self.name, self.version)
    }

    /// The fields that are known at the beginning.
    pub fn served(&self) -> Served<'_> {
        Served {
            name: Exact(&self.name),
            version: Exact(&self.version),
            instance: Exact(&self.instance),
            batch_size: self.batch_size,
            batch_position: self.batch_position,
            correlation: Correlation::Name(&self.correlation_id),
        }
    }

    /// All of its fields.
    pub fn facts(&self) -> ModelFacts<'_> {
        let (inputs, outputs) = (self.inputs.as_deref().map(Json), self.outputs.as_deref().map(Json));
        ModelFacts { served: self.served(), tensors: Tensors { parameters: None, inputs, outputs }, usage: None }
    }
}

/// The JSON of tensors.
pub(crate) fn list<'a>(tensors: impl IntoIterator<Item = Tensor<'a>>) -> Vec<u8> {
    let mut json = vec![b'['];
    for Tensor { name, datatype, shape, bytes } in tensors {
        let before = json.len();
        if before > 1 {
            json.push(b',');
        }
        let [name, datatype] = [name, datatype].map(|text| serde_json::Value::from(text).to_string());
        let sizes = shape.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let one = format!(r#"{{"name":{name},"datatype":{datatype},"shape":[{sizes}],"bytes":{bytes}}}"#);
        json.extend_from_slice(one.as_bytes());
        if json.len() > MAX_LIST_BYTES {
            json.truncate(before);
            break;
        }
    }
    json.push(b']');
    json
}

fn cut(text: &str) -> &str {
    let end = (0..=MAX_NAME_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}
