//! A request of a C or C++ server: the same observer as behind the Python middleware.

use crate::emit::{Event, Value, emit};
use crate::failure::guarded;
use crate::log::Log;
use crate::model::{Model, ServedModel};
use crate::text::Text;
use queue::record::Scratch;
use queue::system::now_monotonic_nano;
use request::capture::Content;
use request::fields::Group;
use request::ids::{RequestIds, hex16};
use request::in_flight::facts::BODY_HEAD_BYTES;
use request::observer::{Chunks, Observer, RequestSource, RequestTexts};
use request::outcome::Ending;
use request::requests::Start;
use request::trace_state::TraceState;
use std::ffi::c_char;
use std::ptr;

/// A request under way. One thread uses it at a time.
pub struct Request {
    log: &'static Log,
    observer: Observer,
    ids: RequestIds,
    method: String,
    path: Vec<u8>,
    route: String,
    protocol_version: String,
    client_address: String,
    /// The model that serves it, instead of a handler.
    model: Option<Box<ServedModel>>,
}

/// What is known of a request at its beginning. A text that is not known is empty.
#[repr(C)]
pub struct RequestStart<'a> {
    pub method: Text<'a>,
    pub path: Text<'a>,
    /// The path's template.
    pub route: Text<'a>,
    /// Of HTTP: `1.1`.
    pub protocol_version: Text<'a>,
    pub client_address: Text<'a>,
    /// The headers of these names.
    pub traceparent: Text<'a>,
    pub tracestate: Text<'a>,
    pub x_request_id: Text<'a>,
    /// The type of the request's body. Of a JSON body the model and its parameters are recorded.
    pub content_type: Text<'a>,
    /// The model that serves the request; NULL for a request of a server. Of the members before, only the path and the
    /// headers count with it: without a path, the sampler sees `/v2/models/NAME/versions/VERSION/infer`.
    pub model: Option<&'a Model<'a>>,
}

/// The ids of a request as texts that end with a zero byte, in lowercase hex digits.
#[repr(C)]
pub struct Ids {
    pub trace_id: [c_char; 33],
    pub span_id: [c_char; 17],
    pub request_id: [c_char; 17],
}

/// How a request ends.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The handler returned; the answer decides the outcome.
    Returned = 0,
    /// The handler failed.
    Failed = 1,
    TimedOut = 2,
    /// The client is gone.
    Disconnected = 3,
    /// The server stops.
    Cancelled = 4,
}

/// Begins a request: ids, the sampler's decision, and a slot of the flight recorder, so that a request that the process
/// does not survive is on record. Returns NULL if logging is switched off; the other functions take NULL and do nothing.
///
/// # Safety
/// `log` is NULL or an open log; the texts live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_request_begin(log: *const Log, start: *const RequestStart<'_>) -> *mut Request {
    // SAFETY: the caller's promise; a log is never freed.
    let (log, start): (Option<&'static Log>, _) = unsafe { (log.as_ref(), start.as_ref()) };
    guarded(ptr::null_mut(), || {
        let log = log.ok_or("log=NULL: must be an open log")?;
        let start = start.ok_or("start=NULL: must be a structure")?;
        let now = now_monotonic_nano();
        if log.service.is_disabled(now) {
            return Ok(ptr::null_mut());
        }
        // SAFETY: the caller's promise.
        Ok(Box::into_raw(Box::new(unsafe { begin(log, start, now) })))
    })
}

impl Request {
    /// Its ids.
    pub fn ids(&self) -> &RequestIds {
        &self.ids
    }

    /// The model that serves it.
    pub fn model(&mut self) -> Option<&mut ServedModel> {
        self.model.as_deref_mut()
    }
}

/// # Safety
/// The texts live during the call.
unsafe fn begin(log: &'static Log, start: &RequestStart<'_>, now: u64) -> Request {
    // SAFETY: the caller's promise.
    unsafe {
        let text = |text: Text<'_>| String::from_utf8_lossy(text.bytes()).into_owned();
        let trace = log.ids.trace(start.traceparent.given());
        let state = start.tracestate.given().filter(|_| trace.parent_span_id != [0; 8]);
        let state = state.and_then(|line| TraceState::from_lines(std::iter::once(line)));
        let mut ids = RequestIds::new(trace, start.x_request_id.given(), state);
        let (method, path, route) = (text(start.method), start.path.bytes().to_vec(), text(start.route));
        let (protocol_version, client_address) = (text(start.protocol_version), text(start.client_address));
        let model = start.model.map(|model| Box::new(ServedModel::new(model)));
        let path = model.as_ref().filter(|_| path.is_empty()).map_or(path, |model| model.path().into_bytes());
        let served = model.as_ref().map(|model| {
            let mut served = Scratch::new();
            model.served().push(&mut served);
            served
        });
        let served = served.as_ref().map_or(&[][..], Scratch::as_slice);
        let begun = Start {
            now,
            method: method.as_bytes(),
            path: &path,
            protocol_version: protocol_version.as_bytes(),
            client_address: client_address.as_bytes(),
            model: &served[..served.len().min(BODY_HEAD_BYTES)],
        };
        let settings = &log.requests.settings;
        let mut observer = log.requests.begin(&mut ids, &begun, |sampler| sampler.trusts(&client_address));
        if let Some(content_type) = start.content_type.given().filter(|_| model.is_none()) {
            let content = Content::of_type(content_type);
            if content == Content::Json || settings.texts.is_on() {
                observer.capture_request(content, false, settings);
            }
        }
        if let Some(in_flight) = observer.in_flight() {
            in_flight.settle(&mut ids, "", &route);
        }
        Request { log, observer, ids, method, path, route, protocol_version, client_address, model }
    }
}

/// Writes the ids of the request. Returns false for NULL.
///
/// # Safety
/// `request` is NULL or under way; `ids` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_request_ids(request: *const Request, ids: *mut Ids) -> bool {
    // SAFETY: the caller's promise.
    let (Some(request), Some(ids)) = (unsafe { (request.as_ref(), ids.as_mut()) }) else { return false };
    let trace = &request.ids.trace;
    let (high, low) = trace.trace_id.split_at(8);
    let half = |bytes: &[u8]| hex16(bytes.try_into().unwrap_or_default());
    put(&mut ids.trace_id, &[half(high), half(low)].concat());
    put(&mut ids.span_id, &hex16(trace.span_id));
    put(&mut ids.request_id, &request.ids.request_id());
    true
}

fn put(to: &mut [c_char], text: &[u8]) {
    to.fill(0);
    to.iter_mut().zip(text).for_each(|(to, byte)| *to = *byte as c_char);
}

/// Takes note of the next bytes of the request's body.
///
/// # Safety
/// `request` is NULL or under way; the text lives during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_request_body(request: *mut Request, bytes: Text<'_>) {
    // SAFETY: the caller's promise.
    if let Some(request) = unsafe { request.as_mut() } {
        // SAFETY: the caller's promise.
        request.observer.request_bytes(unsafe { bytes.bytes() });
    }
}

/// Takes note of the beginning of the answer: its status, and the type of its body.
///
/// # Safety
/// `request` is NULL or under way; the text lives during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_request_answer(request: *mut Request, status: u16, content_type: Text<'_>) {
    // SAFETY: the caller's promise.
    let Some(request) = (unsafe { request.as_mut() }) else { return };
    let settings = &request.log.requests.settings;
    // SAFETY: the caller's promise.
    let content = unsafe { content_type.given() }.map(Content::of_type);
    let content = content.filter(|_| request.observer.wants_content_type(settings));
    request.observer.response_start(status, content, settings);
}

/// Takes note of the next part of the answer's body. `more`: others follow. An answer without a body ends with an empty
/// part. A model's answer in one piece needs no call.
///
/// # Safety
/// `request` is NULL or under way; the text lives during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_request_chunk(request: *mut Request, bytes: Text<'_>, more: bool) {
    // SAFETY: the caller's promise.
    let Some(Request { log, observer, ids, model, .. }) = (unsafe { request.as_mut() }) else { return };
    // SAFETY: the caller's promise.
    let (settings, bytes) = (&log.requests.settings, unsafe { bytes.bytes() });
    let is_chunk = match model {
        None => observer.response_body(bytes, more, now_monotonic_nano(), settings),
        Some(model) => {
            let is_chunk = more || !bytes.is_empty();
            model.is_streamed |= more;
            observer.model_response(is_chunk, more, now_monotonic_nano(), settings);
            is_chunk
        }
    };
    if is_chunk && observer.chunks(settings) == Chunks::Events {
        observer.emit_chunk(ids, &log.service.producer, Some(bytes.len()));
    }
}

/// Takes note that the client is gone before the whole answer.
///
/// # Safety
/// `request` is NULL or under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_request_disconnect(request: *mut Request) {
    // SAFETY: the caller's promise.
    if let Some(request) = unsafe { request.as_mut() } {
        request.observer.disconnect();
    }
}

/// As `inferlog_emit`, with the ids of the request where the event is registered with `in_request`.
///
/// # Safety
/// `request` is NULL or under way; there are `count` values, whose texts live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_request_emit(
    request: *const Request,
    event: Event,
    severity: u8,
    values: *const Value<'_>,
    count: usize,
) -> bool {
    // SAFETY: the caller's promise.
    let request = unsafe { request.as_ref() };
    // SAFETY: the caller's promise.
    request.is_some_and(|request| unsafe { emit(request.log, Some(&request.ids), event, severity, values, count) })
}

/// Ends a request with its record, and frees it. `how` is one of `inferlog_end`; `error_type` names the failure, where the handler did not return.
///
/// # Safety
/// `request` is NULL or under way, and not used afterwards; the text lives during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_request_end(request: *mut Request, how: u32, error_type: Text<'_>) {
    if request.is_null() {
        return;
    }
    let now = now_monotonic_nano();
    // SAFETY: the caller's promise: it is given back once.
    let request = unsafe { Box::from_raw(request) };
    guarded((), || {
        let Request { log, mut observer, ids, method, path, route, protocol_version, client_address, model } = *request;
        // SAFETY: the caller's promise.
        let error_type = String::from_utf8_lossy(unsafe { error_type.bytes() });
        let ending = match how {
            how if how == End::Returned as u32 => Ending::Returned,
            how if how == End::TimedOut as u32 => Ending::TimedOut(&error_type),
            how if how == End::Disconnected as u32 => Ending::Disconnected(&error_type),
            how if how == End::Cancelled as u32 => Ending::Cancelled(&error_type),
            _ => Ending::Raised(&error_type),
        };
        let texts = RequestTexts {
            method: &method,
            path: &path,
            route_prefix: "",
            route: &route,
            protocol_version: &protocol_version,
            client_address: &client_address,
        };
        let source = match &model {
            None => RequestSource::Http { texts, engine: None },
            Some(model) => {
                if ending == Ending::Returned && !model.is_streamed {
                    // A call that returns has answered; only of a stream a part can be missing.
                    observer.model_response(true, false, now, &log.requests.settings);
                }
                RequestSource::Model(model.facts())
            }
        };
        observer.finish(&ids, ending, &source, now, &log.service.producer, &log.requests.settings);
        Ok(())
    });
}
