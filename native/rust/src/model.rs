//! A request that a model serves: which model, and the tensors that it takes and returns. Its record is the one of a
//! request to a model of Triton.

use request::fields::{Correlation, Exact, Json, Served, Tensors};
use request::observer::ModelFacts;

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
