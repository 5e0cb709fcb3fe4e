//! A request that a model serves: which model, and the tensors that it takes and returns. Its record is the one of a
//! request to a model of Triton.

use crate::request::Request;
use crate::text::Text;
use request::fields::{Correlation, Exact, Json, Served, Tensors};
use request::observer::ModelFacts;
use std::slice;

/// The longest text among those that name the model; the slot of the flight recorder has room for all of them.
const MAX_NAME_BYTES: usize = 96;
/// The longest list of tensors as JSON; tensors beyond that are left out.
const MAX_LIST_BYTES: usize = 1280;

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

/// What a request keeps of its model until its end.
pub struct ServedModel {
    name: String,
    version: String,
    instance: String,
    correlation_id: String,
    batch_size: u64,
    batch_position: u64,
    inputs: Option<Vec<u8>>,
    outputs: Option<Vec<u8>>,
    /// The answer has parts.
    pub is_streamed: bool,
}

impl ServedModel {
    /// # Safety
    /// The texts live during the call.
    pub unsafe fn new(model: &Model<'_>) -> Self {
        // SAFETY: the caller's promise.
        let text = |text: Text<'_>| cut(String::from_utf8_lossy(unsafe { text.bytes() }).into_owned());
        Self {
            name: text(model.name),
            version: text(model.version),
            instance: text(model.instance),
            correlation_id: text(model.correlation_id),
            batch_size: model.batch_size.max(1),
            batch_position: model.batch_position,
            inputs: None,
            outputs: None,
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
    let Some(model) = (unsafe { request.as_mut() }).and_then(Request::model) else { return };
    // SAFETY: the caller's promise.
    unsafe {
        model.inputs = list(inputs, input_count).or(model.inputs.take());
        model.outputs = list(outputs, output_count).or(model.outputs.take());
    }
}

/// # Safety
/// `tensors` is null or points to `count` tensors, whose texts and shapes live during the call.
unsafe fn list(tensors: *const Tensor<'_>, count: usize) -> Option<Vec<u8>> {
    if tensors.is_null() {
        return None;
    }
    let mut json = vec![b'['];
    // SAFETY: the caller's promise.
    for tensor in unsafe { slice::from_raw_parts(tensors, count) } {
        let before = json.len();
        if before > 1 {
            json.push(b',');
        }
        // SAFETY: the caller's promise.
        unsafe { push(&mut json, tensor) };
        if json.len() > MAX_LIST_BYTES {
            json.truncate(before);
            break;
        }
    }
    json.push(b']');
    Some(json)
}

/// # Safety
/// The tensor's texts and its shape live during the call.
unsafe fn push(json: &mut Vec<u8>, tensor: &Tensor<'_>) {
    // SAFETY: the caller's promise.
    let quoted = |text: Text<'_>| serde_json::Value::from(String::from_utf8_lossy(unsafe { text.bytes() })).to_string();
    let shape = match tensor.shape.is_null() {
        true => &[],
        // SAFETY: the caller's promise.
        false => unsafe { slice::from_raw_parts(tensor.shape, tensor.rank) },
    };
    let sizes = shape.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let (name, datatype, bytes) = (quoted(tensor.name), quoted(tensor.datatype), tensor.bytes);
    let one = format!(r#"{{"name":{name},"datatype":{datatype},"shape":[{sizes}],"bytes":{bytes}}}"#);
    json.extend_from_slice(one.as_bytes());
}

fn cut(mut text: String) -> String {
    let end = (0..=MAX_NAME_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text
}
