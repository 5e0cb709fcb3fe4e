//! A request that a model serves: which model, and the tensors that it takes and returns.

use crate::text::Text;
use std::borrow::Cow;
use std::slice;

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
