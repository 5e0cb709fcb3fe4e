//! The tensors of a request or of its answer, as a record shows them: names, types, shapes and bytes, as JSON.
//!
//! A model's tensors have few names and shapes, so the JSON of those seen last is kept.

use super::calls::Calls;
use super::{number, text};
use crate::gil_cell::GilCell;
use lines::json::escape;
use pyo3::ffi;
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
/// The most dimensions that are read without an allocation.
const USUAL_RANK: usize = 8;
/// The most tensors whose JSON is kept, a power of 2.
const MAX_KNOWN: usize = 32;
/// The longest JSON of one tensor that is kept.
const MAX_KNOWN_BYTES: usize = 256;

/// The way to read the tensors of a model.
pub struct Tensors {
    name: Py<PyAny>,
    shape: Py<PyAny>,
    /// The type of each tensor by name, and the bytes of an element, 0 if they differ.
    datatypes: HashMap<String, (String, u64)>,
    /// The input of a model whose requests have no other.
    only_input: Option<String>,
    /// Each tensor has its place by name and shape, where the last one stays.
    known: GilCell<[Known; MAX_KNOWN]>,
}

/// A tensor that was seen, and its JSON; empty: none yet.
#[derive(Default)]
struct Known {
    name: String,
    sizes: Vec<u64>,
    json: Vec<u8>,
}

impl Known {
    fn place(name: &str, sizes: &[u64]) -> usize {
        let step = |hash: u64, value: u64| (hash ^ value).wrapping_mul(0x0100_0000_01b3);
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| step(hash, u64::from(byte)));
        let hash = sizes.iter().fold(hash, |hash, size| step(hash, *size));
        // The upper bits depend on all bits of the values.
        (hash >> 32) as usize % MAX_KNOWN
    }

    /// Replaces the tensor; the memory stays.
    fn replace(&mut self, name: &str, sizes: &[u64], json: &[u8]) {
        self.name.clear();
        self.name.push_str(name);
        self.sizes.clear();
        self.sizes.extend_from_slice(sizes);
        self.json.clear();
        self.json.extend_from_slice(json);
    }
}

impl Tensors {
    /// Takes the methods of Triton's class.
    pub fn of(
        class: &Bound<'_, PyAny>,
        datatypes: HashMap<String, (String, u64)>,
        only_input: Option<String>,
    ) -> PyResult<Self> {
        Ok(Self {
            name: class.getattr("name")?.unbind(),
            shape: class.getattr("shape")?.unbind(),
            datatypes,
            only_input,
            known: GilCell::new(std::array::from_fn(|_| Known::default())),
        })
    }

    /// Shows the methods to the garbage collector.
    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.name)?;
        visit.call(&self.shape)
    }

    /// Names, types, shapes and bytes of a request's inputs as JSON.
    pub fn inputs<'py>(&self, calls: &mut Calls<'py>, tensors: &Bound<'py, PyAny>) -> PyResult<Vec<u8>> {
        self.json(calls, tensors, self.only_input.as_deref())
    }

    /// The same of a response's outputs.
    pub fn outputs<'py>(&self, calls: &mut Calls<'py>, tensors: &Bound<'py, PyAny>) -> PyResult<Vec<u8>> {
        self.json(calls, tensors, None)
    }

    /// Reads tensors; `only` is the name of the tensor if there is just one.
    fn json<'py>(&self, calls: &mut Calls<'py>, tensors: &Bound<'py, PyAny>, only: Option<&str>) -> PyResult<Vec<u8>> {
        let mut json = Vec::with_capacity(USUAL_BYTES);
        json.push(b'[');
        if let Ok(list) = tensors.cast::<PyList>() {
            let only = only.filter(|_| list.len() == 1);
            for tensor in list.iter() {
                if !self.push(&mut json, calls, &tensor, only)? {
                    break;
                }
            }
        } else {
            for tensor in tensors.try_iter()? {
                if !self.push(&mut json, calls, &tensor?, None)? {
                    break;
                }
            }
        }
        json.push(b']');
        Ok(json)
    }

    /// Appends a tensor; returns whether it has room. `name` is its name, if it is known.
    fn push<'py>(
        &self,
        json: &mut Vec<u8>,
        calls: &mut Calls<'py>,
        tensor: &Bound<'py, PyAny>,
        name: Option<&str>,
    ) -> PyResult<bool> {
        let before = json.len();
        let read = match name {
            Some(_) => None,
            None => Some(calls.call(&self.name, tensor)?),
        };
        let name = name.or_else(|| read.as_ref().and_then(text)).unwrap_or("");
        let shape = calls.call(&self.shape, tensor)?;
        let shape = shape.cast::<PyList>()?;
        let (mut few, mut many) = ([0; USUAL_RANK], Vec::new());
        let rank = shape.len();
        let sizes = if rank <= USUAL_RANK {
            &mut few[..rank]
        } else {
            many.resize(rank, 0);
            &mut many[..]
        };
        for (position, size) in (0..).zip(sizes.iter_mut()) {
            // SAFETY: a live list, which holds the item while it is read; null is handled.
            *size = unsafe {
                let item = ffi::PyList_GetItem(shape.as_ptr(), position);
                number(&*Borrowed::from_ptr_or_err(shape.py(), item)?)?
            };
        }
        if before > 1 {
            json.push(b',');
        }
        self.describe(json, tensor, name, sizes)?;
        if json.len() > MAX_BYTES {
            json.truncate(before);
            return Ok(false);
        }
        Ok(true)
    }

    /// Appends the JSON of a tensor.
    fn describe(&self, json: &mut Vec<u8>, tensor: &Bound<'_, PyAny>, name: &str, sizes: &[u64]) -> PyResult<()> {
        let (py, place) = (tensor.py(), Known::place(name, sizes));
        let is_known = self.known.with(py, |known| {
            let known = &known[place];
            let found = !known.json.is_empty() && known.name == name && known.sizes == sizes;
            if found {
                json.extend_from_slice(&known.json);
            }
            found
        });
        if is_known {
            return Ok(());
        }
        let before = json.len();
        let datatype = self.datatypes.get(name);
        let elements = sizes.iter().fold(1, |elements: u64, size| elements.saturating_mul(*size));
        let bytes = match datatype {
            Some((_, 0)) => bytes_of_texts(tensor, elements)?,
            Some((_, each)) => Some(elements.saturating_mul(*each)),
            None => None,
        };
        let datatype = datatype.map(|(datatype, each)| (datatype.as_str(), *each));
        push_tensor(json, name, datatype.map(|(datatype, _)| datatype), sizes, bytes);
        let has_texts = datatype.is_some_and(|(_, each)| each == 0);
        if !has_texts && json.len() - before <= MAX_KNOWN_BYTES {
            self.known.with(py, |known| known[place].replace(name, sizes, &json[before..]));
        }
        Ok(())
    }
}

fn push_tensor(json: &mut Vec<u8>, name: &str, datatype: Option<&str>, sizes: &[u64], bytes: Option<u64>) {
    json.extend_from_slice(b"{\"name\":");
    escape::push_string(json, name.as_bytes());
    if let Some(datatype) = datatype {
        json.extend_from_slice(b",\"datatype\":");
        escape::push_string(json, datatype.as_bytes());
    }
    json.extend_from_slice(b",\"shape\":[");
    for (position, size) in sizes.iter().enumerate() {
        if position > 0 {
            json.push(b',');
        }
        push_number(json, *size);
    }
    json.push(b']');
    if let Some(bytes) = bytes {
        json.extend_from_slice(b",\"bytes\":");
        push_number(json, bytes);
    }
    json.push(b'}');
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
