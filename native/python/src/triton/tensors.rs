//! The tensors of a request or of its answer, as a record shows them: names, types, shapes and bytes, as JSON.

use super::text;
use lines::json::escape;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::collections::HashMap;

/// The longest list of tensors as JSON; tensors beyond that are left out.
const MAX_BYTES: usize = 1280;
/// Room for the list of a model with two or three tensors.
const USUAL_BYTES: usize = 256;
/// The most elements of a tensor of texts that are measured.
const MAX_TEXTS: usize = 4096;

/// The way to read the tensors of a model.
pub struct Tensors {
    name: Py<PyAny>,
    shape: Py<PyAny>,
    /// The type of each tensor by name, and the bytes of an element, 0 if they differ.
    datatypes: HashMap<String, (String, u64)>,
}

impl Tensors {
    /// Takes the methods of Triton's class.
    pub fn of(class: &Bound<'_, PyAny>, datatypes: HashMap<String, (String, u64)>) -> PyResult<Self> {
        Ok(Self { name: class.getattr("name")?.unbind(), shape: class.getattr("shape")?.unbind(), datatypes })
    }

    /// Shows the methods to the garbage collector.
    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.name)?;
        visit.call(&self.shape)
    }

    /// Names, types, shapes and bytes of tensors as JSON.
    pub fn json(&self, tensors: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        let py = tensors.py();
        let mut json = Vec::with_capacity(USUAL_BYTES);
        json.push(b'[');
        for tensor in tensors.try_iter()? {
            let (tensor, before) = (tensor?, json.len());
            let name = self.name.call1(py, (&tensor,))?;
            let name = text(name.bind(py)).unwrap_or("");
            let shape = self.shape.call1(py, (&tensor,))?;
            json.extend_from_slice(if before > 1 { b",{\"name\":" } else { b"{\"name\":" });
            escape::push_string(&mut json, name.as_bytes());
            let datatype = self.datatypes.get(name);
            if let Some((datatype, _)) = datatype {
                json.extend_from_slice(b",\"datatype\":");
                escape::push_string(&mut json, datatype.as_bytes());
            }
            json.extend_from_slice(b",\"shape\":[");
            let mut elements = 1_u64;
            for (position, size) in shape.bind(py).cast::<PyList>()?.iter().enumerate() {
                let size: u64 = size.extract()?;
                elements = elements.saturating_mul(size);
                if position > 0 {
                    json.push(b',');
                }
                push_number(&mut json, size);
            }
            json.push(b']');
            let bytes = match datatype {
                Some((_, 0)) => bytes_of_texts(&tensor, elements)?,
                Some((_, each)) => Some(elements.saturating_mul(*each)),
                None => None,
            };
            if let Some(bytes) = bytes {
                json.extend_from_slice(b",\"bytes\":");
                push_number(&mut json, bytes);
            }
            json.push(b'}');
            if json.len() > MAX_BYTES {
                json.truncate(before);
                break;
            }
        }
        json.push(b']');
        Ok(json)
    }
}

/// The bytes of a tensor of texts on the wire, each text behind its length; None for very many texts.
fn bytes_of_texts(tensor: &Bound<'_, PyAny>, elements: u64) -> PyResult<Option<u64>> {
    if elements > MAX_TEXTS as u64 {
        return Ok(None);
    }
    let texts = tensor.call_method0(intern!(tensor.py(), "as_numpy"))?.getattr(intern!(tensor.py(), "flat"))?;
    let mut bytes = 4 * elements;
    for element in texts.try_iter()? {
        let element = element?;
        bytes += match text(&element) {
            Some(text) => text.len(),
            None => element.len().unwrap_or(0),
        } as u64;
    }
    Ok(Some(bytes))
}

fn push_number(json: &mut Vec<u8>, number: u64) {
    let mut digits = itoa::Buffer::new();
    json.extend_from_slice(digits.format(number).as_bytes());
}
