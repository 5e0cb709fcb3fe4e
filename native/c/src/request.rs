//! A request of a C or C++ server: the same observer as behind the Python middleware.

use crate::Text;
use crate::emit::{Event, Value, emit};
use crate::guarded;
use crate::log::Log;
use inferlog::{Content, Ending, RequestIds};
use queue::hex;
use std::borrow::Cow;
use std::ffi::c_char;
use std::ptr;
use std::slice;

/// A request under way. One thread uses it at a time. The header declares it in any case, for `inferlog_message`.
///
/// cbindgen:ignore
pub struct Request(inferlog::Request);

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
    /// The client forbids storing texts of its request, such as by the header of `capture_opt_out_header`.
    pub is_private: bool,
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
    // SAFETY: the caller's promise.
    let (log, start) = unsafe { (Log::at(log), start.as_ref()) };
    guarded(ptr::null_mut(), || {
        let log = log.ok_or("log=NULL: must be an open log")?;
        let start = start.ok_or("start=NULL: must be a structure")?;
        // SAFETY: the caller's promise.
        let begun = unsafe { begin(log, start) };
        Ok(begun.map_or(ptr::null_mut(), |request| Box::into_raw(Box::new(Request(request)))))
    })
}

impl Request {
    /// Its ids.
    pub const fn ids(&self) -> &RequestIds {
        self.0.ids()
    }
}

/// # Safety
/// The texts live during the call.
unsafe fn begin(log: inferlog::Log, start: &RequestStart<'_>) -> Option<inferlog::Request> {
    // SAFETY: the caller's promise.
    unsafe {
        let text = |text: Text<'_>| String::from_utf8_lossy(text.bytes()).into_owned();
        let [method, route, protocol_version, client_address] =
            [start.method, start.route, start.protocol_version, start.client_address].map(text);
        let texts =
            start.model.map(|model| [model.name, model.version, model.instance, model.correlation_id].map(text));
        let model = start.model.zip(texts.as_ref()).map(|(model, [name, version, instance, correlation_id])| {
            let (batch_size, batch_position) = (model.batch_size, model.batch_position);
            inferlog::Model { name, version, instance, batch_size, batch_position, correlation_id }
        });
        let tracestate: Vec<&[u8]> = start.tracestate.given().into_iter().collect();
        log.begin(&inferlog::RequestStart {
            method: &method,
            path: start.path.bytes(),
            route: &route,
            protocol_version: &protocol_version,
            client_address: &client_address,
            traceparent: start.traceparent.given(),
            tracestate: &tracestate,
            request_id: start.x_request_id.given(),
            headers: &[],
            content: start.content_type.given().map(Content::of_type),
            is_private: start.is_private,
            model: model.as_ref(),
        })
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
    let trace = &request.ids().trace;
    let (high, low) = trace.trace_id.split_at(8);
    let half = |bytes: &[u8]| hex::of_id(bytes.try_into().unwrap_or_default());
    put(&mut ids.trace_id, &[half(high), half(low)].concat());
    put(&mut ids.span_id, &hex::of_id(trace.span_id));
    put(&mut ids.request_id, &request.ids().request_id());
    true
}

fn put(to: &mut [c_char], text: &[u8]) {
    to.fill(0);
    to.iter_mut().zip(text).for_each(|(to, byte)| *to = *byte as c_char);
}

/// Takes note of a header of the request, of which those are recorded that `record_headers` names. Of a request that a model
/// serves none is.
///
/// # Safety
/// `request` is NULL or under way; the texts live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_request_header(request: *mut Request, name: Text<'_>, value: Text<'_>) {
    // SAFETY: the caller's promise.
    if let Some(request) = unsafe { request.as_mut() } {
        // SAFETY: the caller's promise.
        unsafe { request.0.header(name.bytes(), value.bytes()) };
    }
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
        request.0.body(unsafe { bytes.bytes() });
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
    // SAFETY: the caller's promise.
    request.0.answer(status, || unsafe { content_type.given() }.map(Content::of_type));
}

/// Takes note of the next part of the answer's body. `more`: others follow. An answer without a body ends with an empty
/// part. A model's answer in one piece needs no call.
///
/// # Safety
/// `request` is NULL or under way; the text lives during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_request_chunk(request: *mut Request, bytes: Text<'_>, more: bool) {
    // SAFETY: the caller's promise.
    if let Some(request) = unsafe { request.as_mut() } {
        // SAFETY: the caller's promise.
        request.0.chunk(unsafe { bytes.bytes() }, more);
    }
}

/// Takes note of the tensors of a request that a model serves: names, types, shapes and bytes. NULL leaves those of an
/// earlier call. The list of inputs, and that of outputs, has at most 1,280 bytes as JSON; what is beyond is left out.
///
/// # Safety
/// `request` is NULL or under way; `inputs` is NULL or points to `input_count` tensors, `outputs` to `output_count`; their
/// texts and shapes live during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn inferlog_request_tensors(
    request: *mut Request,
    inputs: *const Tensor<'_>,
    input_count: usize,
    outputs: *const Tensor<'_>,
    output_count: usize,
) {
    // SAFETY: the caller's promise.
    let Some(Request(request)) = (unsafe { request.as_mut() }) else { return };
    // SAFETY: the caller's promise.
    let [inputs, outputs] = unsafe { [named(inputs, input_count), named(outputs, output_count)] };
    if let Some(inputs) = inputs {
        request.inputs(inputs.iter().map(Named::tensor));
    }
    if let Some(outputs) = outputs {
        request.outputs(outputs.iter().map(Named::tensor));
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
        request.0.disconnect();
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
    request.is_some_and(|request| unsafe { emit(request.0.log(), Some(request.ids()), event, severity, values, count) })
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
    // SAFETY: the caller's promise: it is given back once.
    let request = unsafe { Box::from_raw(request) };
    guarded((), || {
        // SAFETY: the caller's promise.
        let error_type = String::from_utf8_lossy(unsafe { error_type.bytes() });
        request.0.end(match how {
            how if how == End::Returned as u32 => Ending::Returned,
            how if how == End::TimedOut as u32 => Ending::TimedOut(&error_type),
            how if how == End::Disconnected as u32 => Ending::Disconnected(&error_type),
            how if how == End::Cancelled as u32 => Ending::Cancelled(&error_type),
            _ => Ending::Raised(&error_type),
        });
        Ok(())
    });
}

// A request that a model serves: which model, and the tensors that it takes and returns.

/// The model that serves a request. A text that is not known is empty; each is cut to 96 bytes.
#[repr(C)]
pub struct Model<'a> {
    pub name: Text<'a>,
    pub version: Text<'a>,
    /// The session or execution context that runs it.
    pub instance: Text<'a>,
    /// Requests of the batch; 0 counts as 1.
    pub batch_size: u64,
    /// Place in the batch, from 0.
    pub batch_position: u64,
    /// The id of a sequence of requests.
    pub correlation_id: Text<'a>,
}

/// What is recorded of a tensor. Its content is not.
#[repr(C)]
pub struct Tensor<'a> {
    pub name: Text<'a>,
    /// The type of an element, such as `FP32`.
    pub datatype: Text<'a>,
    /// The size of each of the `rank` dimensions.
    pub shape: *const i64,
    pub rank: usize,
    /// The bytes of all elements.
    pub bytes: u64,
}

/// A tensor whose texts are UTF-8.
pub struct Named<'a> {
    name: Cow<'a, str>,
    datatype: Cow<'a, str>,
    shape: &'a [i64],
    bytes: u64,
}

impl Named<'_> {
    pub fn tensor(&self) -> inferlog::Tensor<'_> {
        inferlog::Tensor { name: &self.name, datatype: &self.datatype, shape: self.shape, bytes: self.bytes }
    }
}

/// Reads the texts of tensors; None for null.
///
/// # Safety
/// `tensors` is null or points to `count` tensors, whose texts and shapes live as long as the result.
pub unsafe fn named<'a>(tensors: *const Tensor<'a>, count: usize) -> Option<Vec<Named<'a>>> {
    if tensors.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let named = unsafe { slice::from_raw_parts(tensors, count) }.iter().map(|tensor| {
        // SAFETY: the caller's promise.
        let text = |text: Text<'a>| String::from_utf8_lossy(unsafe { text.bytes() });
        let shape = match tensor.shape.is_null() {
            true => &[],
            // SAFETY: the caller's promise.
            false => unsafe { slice::from_raw_parts(tensor.shape, tensor.rank) },
        };
        Named { name: text(tensor.name), datatype: text(tensor.datatype), shape, bytes: tensor.bytes }
    });
    Some(named.collect())
}
